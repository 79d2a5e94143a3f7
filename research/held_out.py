"""Text that no datastore holds, to fit and judge blend: `python -m research.held_out`.

    chat CORPUS...  from a chat corpus (parquet: model, instruction, output). Every tenth model and
                    a third of the instructions are left out of kept.jsonl, from which a datastore
                    is built. fit.jsonl and check.jsonl hold conversations of two turns: the
                    left-out models' answers to one and the other half of the left-out instructions.
    code            from the standard library's held-out files (which python-stdlib datastores
                    never hold): fit.jsonl and check.jsonl, half of the files each, forty lines
                    after the forty before.

What goes where is decided by hashes of the names, so it does not change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ngramkit.corpus.stdlib import is_held_out, stdlib_files

MODELS, INSTRUCTIONS = 10, 6  # one model of ten; of six instructions one to fit and one to check
LINES = 40

Line = dict[str, Any]


def hashed(text: str) -> int:
    """Hash the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def chat(corpus: Sequence[Path]) -> tuple[list[Line], list[Line], list[Line]]:
    """Write kept, fit and check; fit and check as `messages`, the model as the category."""
    import pyarrow.parquet as parquet

    kept: list[Line] = []
    answers: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for path in corpus:
        columns = parquet.read_table(path).select(["model", "instruction", "output"])
        for model, instruction, output in zip(*columns.to_pydict().values(), strict=True):
            part = hashed("i" + instruction) % INSTRUCTIONS
            left_out = hashed("m" + model) % MODELS == 0
            if not left_out and part > 1:
                kept.append({"text": output})
            elif left_out and part <= 1:
                answers.setdefault((part, model), []).append((instruction, output))
    fit, check = ([*_conversations(answers, part)] for part in (0, 1))
    return kept, fit, check


def _conversations(
    answers: dict[tuple[int, str], list[tuple[str, str]]], part: int
) -> Iterator[Line]:
    for (where, model), pairs in sorted(answers.items()):
        if where != part:
            continue
        ordered = sorted(pairs, key=lambda pair: hashed(model + pair[0]))
        for two in zip(ordered[::2], ordered[1::2], strict=False):
            messages = []
            for instruction, output in two:
                messages.append({"role": "user", "content": instruction})
                messages.append({"role": "assistant", "content": output})
            yield {"category": model, "messages": messages}


def code() -> tuple[list[Line], list[Line]]:
    """Write fit and check, as `prompt` and `output`."""
    parts: tuple[list[Line], list[Line]] = ([], [])
    for name, path in stdlib_files():
        if not is_held_out(name):
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        for begin in range(0, len(lines) - 2 * LINES + 1, 2 * LINES):
            middle, end = begin + LINES, begin + 2 * LINES
            pair = {"prompt": "".join(lines[begin:middle]), "output": "".join(lines[middle:end])}
            parts[hashed(name) >> 32 & 1].append({"id": f"{name}:{middle + 1}", **pair})
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("chat", "code"))
    parser.add_argument("corpus", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "code":
        named = dict(zip(("fit", "check"), code(), strict=True))
    else:
        named = dict(zip(("kept", "fit", "check"), chat(options.corpus), strict=True))
    for name, lines in named.items():
        _write(options.out / f"{name}.jsonl", lines)
        print(f"{options.out / name}.jsonl: {len(lines):,} lines")


def _write(path: Path, lines: Iterable[Line]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
