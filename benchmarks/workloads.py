"""`python -m benchmarks.workloads FILE...`: blend and Arctic's suffix decoding, call by call.

Recorded calls of agents, editors and samplers (any log that `ngramkit replay` reads) are replayed
token for token: each draft is compared with the recorded text, the first token is given, and
nothing is accepted beyond an answer's end. Both sides get the same token arrays. `own`: only the
request's own text; `history`: also outputs of earlier calls. cN: chains of at most N tokens; tN:
trees of N nodes. Arctic runs at several settings, and the best for each shape counts. blend's
chains end where a token's score is below a cost: of those in COSTS, the best that verifies no more
tokens than Arctic's best counts (the highest cost if none does). --write keeps the table of
docs/benchmarks.md.

Arctic is `arctic-inference` from the package index, built into its own environment by
`make workloads`. Without it only blend runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import markdown, table_line
from benchmarks._figures import write_figures
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growing_history import Finished
from ngramkit.evaluate.records import Record, Turn, read_records
from ngramkit.evaluate.replay_loop import replay_drafter
from ngramkit.formats.tokenizer_record import TokenizerRecord

SHAPES = ("c8", "c16", "c32", "t16", "t64")
COSTS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)  # of a drafted token, in passes
DEPTH = 24  # of Arctic's suffix trees, vLLM's default
# max_spec_factor, max_spec_offset, min_token_prob: vLLM's default first.
CHAINS = [(1.0, 0.0, 0.1), (1.0, 4.0, 0.1), (4.0, 0.0, 0.1), (64.0, 64.0, 0.1), (64.0, 64.0, 0.02)]
TREES = [(64.0, 64.0, 0.0), (4.0, 0.0, 0.0), (1.0, 0.0, 0.0)]
HEAD = ("workload", "history", "shape", "blend", "drafted", "Arctic", "drafted", "ratio")
# As the table in docs/benchmarks.md calls them.
WORKLOADS = {
    "tau-airline-0-24": "tau-bench, airline agent",
    "mini-swe-gemini-django": "mini-swe-agent",
    "codet-even": "20 samples of a prompt (CodeT)",
    "aider-answers-1": "aider's answers",
    "aider-edits-1": "aider's edits",
    "tora-gsm8k-1": "maths with code (ToRA)",
}

Tokens = npt.NDArray[np.int32]


class Figure(NamedTuple):
    """The totals over all calls."""

    per_step: float  # tokens
    drafted: float  # tokens a step


class Chains:
    """A drafter that is called with whole texts, as serving engines do: blend."""

    def __init__(self, tokenizer: TokenizerRecord, cost: float, *, history: bool) -> None:
        config = DraftConfig(
            history=True if history else None,
            vocabulary=tokenizer.vocabulary,
            min_probability=cost,
            pause=False,
            threads=1,
            log_steps=0,
        )
        self.engine = BatchDrafter.open(config, vocabulary=tokenizer.vocabulary)
        self.numbers = count()

    def start(self, prompt: Tokens) -> None:
        self.name = str(next(self.numbers))
        self.text, self.asked = prompt, [Asked(len(prompt), name=self.name)]

    def draft(self, budget: int) -> DraftTree:
        return self.engine.chain_batch([self.text], [budget], asked=self.asked)[0]

    def accept(self, tokens: Tokens, evidence: Any = None) -> None:
        self.text = np.concatenate([self.text, tokens])

    def finish(self) -> None:
        self.engine.sessions.end(self.name)
        self.engine.finish(Finished(self.text, self.asked[0].prompt or 0, self.name))


class Arctic:
    """Suffix decoding with its cache of responses, as vLLM's `suffix` uses it."""

    def __init__(self, setting: tuple[float, float, float], *, tree: bool, history: bool) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self.factor, self.offset, self.least = setting
        self.tree = tree
        self.cache: Any = SuffixDecodingCache(DEPTH, -1 if history else 0)
        self.number = -1

    def start(self, prompt: Tokens) -> None:
        self.number += 1
        self.text = prompt[-DEPTH:]
        self.cache.start_request(self.number, prompt)

    def draft(self, budget: int) -> DraftTree:
        draft = self.cache.speculate(
            self.number,
            self.text,
            max_spec_tokens=budget,
            max_spec_factor=self.factor,
            max_spec_offset=self.offset,
            min_token_prob=self.least,
            use_tree_spec=self.tree,
        )
        n = len(draft.token_ids)
        ids, parents = np.array(draft.token_ids, np.int32), np.array(draft.parents, np.int32)
        return DraftTree(ids, parents, np.array(draft.probs, np.float32), np.zeros(n, np.uint8))

    def accept(self, tokens: Tokens, evidence: Any = None) -> None:
        self.text = np.concatenate([self.text, tokens])[-DEPTH:]
        self.cache.add_active_response(self.number, tokens)

    def finish(self) -> None:
        self.cache.stop_request(self.number)


def measure(calls: list[Record], make: Callable[[], Any], length: int) -> Figure:
    """Write all calls with one drafter, in drafts of at most `length` tokens."""
    replay = replay_drafter("", make, calls, length, keep_state=True)
    steps = max(replay.total.passes, 1)
    return Figure(replay.total.tokens / steps, int(replay.reliability.nodes.sum()) / steps)


def compare(
    calls: list[Record], shape: str, tokenizer: TokenizerRecord, *, history: bool, arctic: bool
) -> tuple[Figure, Figure | None]:
    """Return blend's figure for a shape, and Arctic's best."""
    tree, length = shape[0] == "t", int(shape[1:])
    theirs = None
    if arctic:
        theirs = max(
            measure(calls, lambda: Arctic(setting, tree=tree, history=history), length)  # noqa: B023
            for setting in (TREES if tree else CHAINS)
        )
    if tree:

        def make() -> Any:
            past = PastRequests(tokenizer=tokenizer, prompts=False) if history else None
            return load_drafter("blend", past=past, tokenizer=tokenizer)

        return measure(calls, make, length), theirs
    best: Figure | None = None
    for cost in COSTS:
        figure = measure(calls, lambda: Chains(tokenizer, cost, history=history), length)  # noqa: B023
        if best is None or (theirs is not None and figure.drafted <= theirs.drafted):
            best = max(figure, best or figure)
        else:
            break
    assert best is not None
    return best, theirs


def read_calls(file: Path, model: Any) -> list[Record]:
    """Return the calls whose output is longer than the token that is given, a record each."""
    records, _ = read_records(file, None, model, "none")
    turns = [(record, turn) for record in records for turn in record.turns if len(turn.answer) > 1]
    return [Record(r.name, r.category, [Turn(t.prompt, t.answer)]) for r, t in turns]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workloads", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", required=True, help="whose tokenizer: a name or a folder")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--arctic", type=Path, help="the folder that arctic_inference lies in")
    parser.add_argument("--limit", type=int, help="only the first calls of each file")
    parser.add_argument("--write", action="store_true", help="keep the table for docs/")
    options = parser.parse_args()
    if options.write and options.arctic is None:
        parser.error("--write needs --arctic")
    if options.arctic is not None:
        sys.path.append(str(options.arctic))
    tokenizer = load_tokenizer(options.model)
    print(markdown(HEAD, []))
    ratios, rows = [], []
    for file in options.files:
        name = file.name.partition(".")[0]
        calls = read_calls(file, tokenizer)[: options.limit]
        for history in (False, True):
            rows.append([WORKLOADS.get(name, name), "grows" if history else "none"])
            for shape in options.shapes.split(","):
                ours, theirs = compare(
                    calls, shape, tokenizer.record, history=history,
                    arctic=options.arctic is not None,
                )  # fmt: skip
                cells = [name, "grows" if history else "", shape]
                cells += [f"{ours.per_step:.2f}", f"{ours.drafted:.1f}"]
                if theirs is not None:
                    ratios.append(ours.per_step / theirs.per_step)
                    cells += [f"{theirs.per_step:.2f}", f"{theirs.drafted:.1f}"]
                    cells.append(f"{ratios[-1]:.3f}")
                    rows[-1].append(f"{ours.per_step:.2f} / {theirs.per_step:.2f}")
                print(table_line(cells), flush=True)
    if ratios:
        print(f"\nmean ratio {np.exp(np.mean(np.log(ratios))):.3f}, least {min(ratios):.3f}")
    if options.write:
        titles = {"c": "chain", "t": "tree"}
        shapes = [f"{titles[shape[0]]} {shape[1:]}" for shape in options.shapes.split(",")]
        head = ["calls", "history", *shapes]
        write_figures("workloads", "make workloads", {"head": head, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
