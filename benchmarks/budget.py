"""`--budget auto` against the best fixed size and against none, on curves of what passes cost.

Nothing is timed: see `_simulated`. Texts are the first 128 tokens of answers, as of
benchmarks.blend (NGRAMKIT_BENCH_DATA names a folder of recorded ones, else files of the standard
library stand in); drafters are blend, rest, cacheback, context, and blend as if its tokens were
never right. *Cold*: every text begins with nothing learnt, nothing of its drafter either. *Warm*:
one text after another.

`python -m benchmarks.budget [CURVE ...]` prints every figure, of curves whose names hold one of
those given.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import Row
from benchmarks._simulated import (
    NOISES,
    TOKENS,
    Machine,
    Ratios,
    Text,
    compared,
    drafted,
    machines,
    never_right,
)
from benchmarks.blend import _drafters, _given

TEXTS = 10
NAMES = ("blend", "rest", "cacheback", "context")
WRONG = "never right"
TARGETS = Ratios(0, 0.95, 0.98, 0.97, 0.97)

Found = dict[tuple[str, str, str], Ratios]  # by curve, drafter and noise


def rows() -> Iterator[Row]:
    found = _found(machines())
    for noise in NOISES:
        for name in (*NAMES, WRONG):
            yield _row(
                name, noise, {key: r for key, r in found.items() if key[1:] == (name, noise)}
            )


def _row(name: str, noise: str, found: Found) -> Row:
    """The least of all curves."""
    least = []
    for field, target in zip(Ratios._fields[1:], TARGETS[1:], strict=True):
        (curve, *_), ratios = min(found.items(), key=lambda pair: getattr(pair[1], field))
        least.append((getattr(ratios, field), target, curve))
    said = [f"{ratio:.2f} ({curve})" for ratio, _, curve in least]
    return Row(
        f"--budget auto, {len(found)} made-up machines, noise: {noise}, drafter {name}",
        f"least of all: cold {said[0]}, warm {said[1]}",
        f"the best fixed size; against no drafts cold {said[2]}, warm {said[3]}",
        min(ratio / target for ratio, target, _ in least),
        ">= 1: 0.95 of the best cold, 0.98 warm, 0.97 of none",
    )


def _found(asked: Sequence[Machine]) -> Found:
    found: Found = {}
    for (name, shares), several in _texts().items():
        for machine in asked:
            for noise in NOISES:
                found[machine.name, name, noise] = compared(several, machine, noise, shares)
    return found


def _texts() -> dict[tuple[str, bool], list[Text]]:
    """By drafter, and whether its scores are shares of matches."""
    with tempfile.TemporaryDirectory() as folder:
        datastore, frozen, records = _given(Path(folder))
        turns = [each.turns[0] for each in records if len(each.turns[0].answer) > TOKENS]
        turns = turns[:: max(len(turns) // TEXTS, 1)][:TEXTS]
        makers, found = _drafters(datastore, frozen), {}
        for name in NAMES:
            shares = bool(getattr(makers[name](), "scores_are_shares", False))
            found[name, shares] = [drafted(makers[name], t.prompt, t.answer) for t in turns]
    found[WRONG, False] = [never_right(text) for text in found["blend", False]]
    return found


def main() -> None:
    asked = [m for m in machines() if not sys.argv[1:] or any(a in m.name for a in sys.argv[1:])]
    print("curve, drafter, noise: best fixed size; cold and warm against it; against none")
    found = _found(asked)
    for (curve, name, noise), r in sorted(found.items()):
        short = "*" if any(np.array(r[1:]) < TARGETS[1:]) else " "
        print(
            f"{short} {curve:34} {name:12} {noise:14} {r.best:3} {r.cold:5.2f} {r.warm:5.2f} "
            f"{r.cold_none:6.2f} {r.warm_none:5.2f}"
        )
    for field, target in zip(Ratios._fields[1:], TARGETS[1:], strict=True):
        values = np.array([getattr(each, field) for each in found.values()])
        print(f"{field}: least {values.min():.2f}, {(values < target).mean():.1%} below {target}")


if __name__ == "__main__":
    main()
