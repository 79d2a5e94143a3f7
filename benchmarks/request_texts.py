"""`python -m benchmarks.request_texts FILE --model MODEL`: steps of requests that bring text.

Each recorded edit is replayed through the drafter of the serving engines, one request at a time:
its request without the old text is the prompt, the old text is the reference or is left out. The
first token is given, and nothing is accepted beyond the answer's end. *All*: K tokens are drafted
in each step, as asynchronous vLLM verifies them; *as many as pay*: a dense model's passes, with
pauses. `shared/data/workloads` holds a FILE, aider-edits.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import markdown
from benchmarks._figures import write_figures
from ngramkit.budget.pass_times import pass_times
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import Source
from ngramkit.drafters.references import NONE, ReferenceTexts
from ngramkit.engines.batch import Asked, BatchDrafter, accepted_length
from ngramkit.engines.config import DraftConfig

K = 8
HEAD = (
    "drafted", "requests", "tokens", "steps without the reference", "with it",
    "over no drafts", "over no reference", "accepted of the drafted reference tokens",
)  # fmt: skip
Tokens = npt.NDArray[np.int32]


class Edit(NamedTuple):
    prompt: Tokens  # without the old text
    answer: Tokens
    old: Tokens


class Count(NamedTuple):
    steps: int
    drafted: int  # tokens of the reference
    accepted: int  # of these


def read_edits(file: Path, tokenizer: Any) -> Iterator[Edit]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for each in map(json.loads, lines):
            prompt = each["prompt"].replace(each["reference"], "")
            if each["reference"] and prompt != each["prompt"]:
                yield Edit(
                    tokenizer.encode_prompt(prompt),
                    tokenizer.encode(each["output"]),
                    tokenizer.encode(each["reference"]),
                )


def replay(edits: Iterable[Edit], vocabulary: int, *, given: bool, everything: bool) -> Count:
    """Write all answers; return the steps after the first token of each."""
    config = DraftConfig(threads=1, log_steps=0, pause=not everything)
    drafter = BatchDrafter.open(config, vocabulary=vocabulary, cost=pass_times())
    steps = drafted = accepted = 0
    for number, edit in enumerate(edits):
        references = ReferenceTexts([edit.old]) if given else NONE
        asked = [Asked(len(edit.prompt), references=references, name=str(number))]
        text, written = np.concatenate([edit.prompt, edit.answer]), 1
        while written < len(edit.answer):
            row = text[: len(edit.prompt) + written]
            left = len(edit.answer) - written
            (chain,) = drafter.chain_batch([row], [K], 0.0 if everything else None, asked=asked)
            right = min(accepted_length(chain, text[len(row) :]), left)
            own = chain.source == Source.REFERENCE
            drafted, accepted = drafted + int(own.sum()), accepted + int(own[:right].sum())
            written, steps = written + right + 1, steps + 1
        drafter.sessions.end(str(number))
    return Count(steps, drafted, accepted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_texts", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", required=True, help="whose tokenizer: a name or a folder")
    parser.add_argument("--limit", type=int, help="only the first requests")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.model)
    edits = list(read_edits(options.file, tokenizer))[: options.limit]
    tokens, cells = sum(len(edit.answer) - 1 for edit in edits), []
    for name, everything in (("all", True), ("as many as pay", False)):
        without, with_it = (
            replay(edits, tokenizer.record.vocabulary, given=given, everything=everything)
            for given in (False, True)
        )
        cells.append([
            name, f"{len(edits):,}", f"{tokens:,}", f"{without.steps:,}", f"{with_it.steps:,}",
            f"{with_it.steps / tokens:.2f}", f"{with_it.steps / without.steps:.2f}",
            f"{100 * with_it.accepted / max(with_it.drafted, 1):.0f} %",
        ])  # fmt: skip
    print(markdown(HEAD, cells))
    if options.write:
        command = "python -m benchmarks.request_texts --write"
        write_figures("request_texts", command, {"head": HEAD, "rows": cells})
    return 0


if __name__ == "__main__":
    sys.exit(main())
