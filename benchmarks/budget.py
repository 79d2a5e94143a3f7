"""`--budget auto` against the best fixed size and against no drafts, on recorded cost curves.

Real drafters draft at every position of recorded answers, and the time of a pass comes from a
curve in `cost_curves.json`. Nothing is timed, so a run takes milliseconds and does not depend on
the machine. The rule sees noisy times. The sums, for the rule and for fixed sizes, use times
without noise, because the best of eight noisy sums would be luck.

Texts are the first 128 tokens of the answers of benchmarks._data. Drafters are blend, rest,
cacheback, context, and blend as if all its tokens were wrong. *Cold*: every text starts with
nothing learnt, by the rule or the drafter. *Warm*: one text follows another.

`python -m benchmarks.budget [CURVE ...]` prints every figure, or only those of curves whose names
contain one of the arguments.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import Row
from benchmarks._data import datastore, frozen_table
from benchmarks.blend import drafters, recorded
from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.costs import MAX_NODES, PassCosts
from ngramkit.budget.model_cost import ModelCost, free_tokens
from ngramkit.drafters.base import DraftTree

CURVES = Path(__file__).with_name("cost_curves.json")
FIXED = (1, 2, 4, 8, 16, 32, 64)  # draft nodes
TOKENS = 128
PROMPT = 200  # tokens in front of every text
DRAFTING = 0.01  # of a pass without a draft, whenever a drafter is asked
NO_TOKEN = -2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """`times[n]` is what a pass with n draft nodes takes."""

    name: str
    times: Floats
    prior: str  # the device that is assumed

    def costs(self) -> PassCosts:
        """Return costs of which nothing is learnt."""
        return PassCosts(ModelCost(free_tokens(self.prior)).curve(MAX_NODES))


def machines() -> list[Machine]:
    found: dict[str, Any] = json.loads(CURVES.read_text(encoding="utf-8"))
    named = {name: curve for name, curve in found.items() if not name.startswith("_")}
    return [Machine(name, _times(curve), curve["prior"]) for name, curve in named.items()]


def _times(curve: dict[str, Any]) -> Floats:
    points = {int(rows): float(time) for rows, time in curve.items() if rows.isdigit()}
    rows, wanted = np.array(list(points)), np.arange(1, MAX_NODES + 2)
    times = np.array(list(points.values()))
    if curve.get("steps"):
        held: Floats = times[np.searchsorted(rows, wanted, side="right") - 1]
        return held
    slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2])
    between: Floats = np.interp(wanted, rows, times)
    found: Floats = between + np.maximum(wanted - rows[-1], 0) * slope
    return found


class Text(NamedTuple):
    """A recorded answer: what one drafter drafts before every token of it, and what drafts of fixed
    sizes bring there, tokens int[len(FIXED), n]."""

    answer: npt.NDArray[np.int32]
    trees: list[DraftTree]
    fixed: npt.NDArray[np.int64]


def drafted(make: Callable[[], Any], prompt: Any, answer: Any) -> Text:
    """Record what a drafter that has seen nothing drafts for an answer."""
    drafter, answer = make(), answer[: TOKENS + 1]
    drafter.start(prompt)
    trees, fixed = [], np.ones((len(FIXED), len(answer)), np.int64)
    for at in range(len(answer)):
        trees.append(drafter.draft(MAX_NODES))
        for row, size in enumerate(FIXED):
            fixed[row, at] = len(_written(drafter.draft(size), answer[at:]))
        drafter.accept(answer[at : at + 1])
    drafter.finish()
    return Text(answer, trees, fixed)


def never_right(text: Text) -> Text:
    """Return the same drafts with tokens that are never written."""
    trees = [
        DraftTree(np.full_like(each.token_ids, NO_TOKEN), each.parents, each.scores, each.source)
        for each in text.trees
    ]
    return Text(text.answer, trees, np.ones_like(text.fixed))


def _written(tree: DraftTree, answer: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return answer[: len(tree.accepted_nodes(answer.tolist())) + 1]


Noise = Callable[[int], float]  # what a pass seems to take, times so much, at a place of the text


def _quiet(random: np.random.Generator) -> Noise:
    return lambda at: 1.0


def _spread(share: float) -> Callable[[np.random.Generator], Noise]:
    return lambda random: lambda at: float(random.lognormal(0, share))


def _bursts(random: np.random.Generator) -> Noise:
    """Let another program take half of the machine for some 12 of 48 tokens."""
    begins = int(random.integers(0, 48))
    return lambda at: (2.0 if (at + begins) % 48 < 12 else 1.0) * float(random.lognormal(0, 0.03))


def _slower(random: np.random.Generator) -> Noise:
    return lambda at: (2.0 if at >= TOKENS // 2 else 1.0) * float(random.lognormal(0, 0.03))


NOISES: dict[str, Callable[[np.random.Generator], Noise]] = {
    "none": _quiet,
    "5 %": _spread(0.05),
    "20 %": _spread(0.2),
    "bursts": _bursts,
    "slower midway": _slower,
}


class Scored:
    """Stands for a drafter, in whose name the rule remembers what scores were worth."""

    def __init__(self, shares: bool) -> None:
        self.scores_are_shares = shares


def run(auto: AutoBudget, text: Text, machine: Machine, noise: Noise) -> float:
    """Time of writing a text with the rule."""
    at, spent, asking = 1, 0.0, DRAFTING * machine.times[0]
    while at < len(text.answer):
        asked, left = auto.opens(), len(text.answer) - at - 1
        tree, drafting = DraftTree.empty(), 0.0
        if asked and left:
            budget = auto.nodes_to_draft(MAX_NODES, PROMPT + at)
            tree, drafting = likeliest(text.trees[at], budget), asking
        kept = auto.cut(tree, PROMPT + at)
        written = _written(kept, text.answer[at:])
        passing = machine.times[len(kept)]
        auto.learn(written.tolist(), passing * noise(at), drafting)
        spent += passing + drafting
        at += len(written)
    return spent


def likeliest(tree: DraftTree, count: int) -> DraftTree:
    """Return the `count` best nodes by score; of equal ones the first."""
    if len(tree) <= count:
        return tree
    return tree.subtree(np.sort(np.argsort(-tree.scores, kind="stable")[:count]))


def fixed(text: Text, machine: Machine, size: int) -> float:
    """Time of writing it with drafts of `size` nodes; 0: without any."""
    at, spent = 1, 0.0
    while at < len(text.answer):
        nodes = min(size, len(text.trees[at])) if at + 1 < len(text.answer) else 0
        spent += machine.times[nodes] + DRAFTING * machine.times[0] * (size > 0)
        at += int(text.fixed[FIXED.index(size), at]) if nodes else 1
    return spent


class Ratios(NamedTuple):
    """How many times as fast `auto` was: with nothing learnt in every text, and from the second
    text on."""

    best: int  # the fixed size that was fastest over all texts
    cold: float  # against that
    warm: float
    cold_none: float  # against no drafts
    warm_none: float


def compared(texts: Sequence[Text], machine: Machine, noise: str, shares: bool) -> Ratios:
    auto = np.zeros((2, len(texts)))
    costs, drafter = machine.costs(), Scored(shares)
    for number, text in enumerate(texts):
        budgets = AutoBudget(machine.costs(), Scored(shares)), AutoBudget(costs, drafter)
        for way, budget in enumerate(budgets):
            random = np.random.default_rng([number, way])
            auto[way, number] = run(budget, text, machine, NOISES[noise](random))
    sizes = (0, *FIXED)
    times = np.array([[fixed(text, machine, size) for text in texts] for size in sizes])
    best = int(np.argmin(times.sum(axis=1)))
    cold, warm = auto[0].sum(), auto[1, 1:].sum()
    return Ratios(
        sizes[best],
        times[best].sum() / cold,
        times[best, 1:].sum() / warm,
        times[0].sum() / cold,
        times[0, 1:].sum() / warm,
    )


# The comparison.

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
    """Return the least ratios of all curves."""
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
    """Return the texts by drafter, and whether its scores are shares of matches."""
    with tempfile.TemporaryDirectory() as folder:
        store, frozen, records = datastore(Path(folder)), frozen_table(Path(folder)), recorded()
        turns = [each.turns[0] for each in records if len(each.turns[0].answer) > TOKENS]
        turns = turns[:: max(len(turns) // TEXTS, 1)][:TEXTS]
        makers, found = drafters(store, frozen), {}
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
    for of, curves in (("", ""), ("epyc, xeon: ", ("epyc", "xeon"))):
        for noise in NOISES:
            chosen = [
                r for (curve, _, n), r in found.items() if n == noise and curve.startswith(curves)
            ]
            if chosen:
                print(f"{of}{noise}: {_reached(chosen)}")


def _reached(several: Sequence[Ratios]) -> str:
    """Return how many reach the targets, and the least, cold and warm, and against none."""
    values = np.array(several)[:, 1:]
    reached = (values >= TARGETS[1:]).sum(axis=0)
    said = zip(reached, values.min(axis=0), strict=True)
    return ", ".join(f"{count} of {len(several)} (least {least:.2f})" for count, least in said)


if __name__ == "__main__":
    main()
