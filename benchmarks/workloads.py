"""`python -m benchmarks.workloads FILE...`: blend beside Arctic's suffix decoding, call by call.

Recorded calls of agents, editors and samplers (any log that `ngramkit replay` reads) are written
again token for token: each draft is checked against what was written, the first token is given,
and nothing is accepted past an answer's end. Both sides see the same token arrays. `own`: nothing
but the request's own text; `history`: outputs of the calls before, too. cN: chains of at most N
tokens; tN: trees of N nodes. Arctic runs at several settings, of which the best for each shape
counts; blend's chains end where a token's score is below a cost, of those in COSTS the best that
verifies no more tokens than Arctic's best does counts (the lowest cost where none does less).

Arctic is `arctic-inference` of the package index, built into an environment of its own by
`make workloads`. Without it blend stands alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import load_drafter
from ngramkit.engines.batch import Asked, BatchDrafter, accepted_length
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growth import Finished
from ngramkit.evaluate.records import Record, read_records
from ngramkit.formats.manifest import TokenizerRecord

SHAPES = ("c8", "c16", "c32", "t16", "t64")
COSTS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)  # of a drafted token, in passes
DEPTH = 24  # of Arctic's suffix trees, vLLM's default
# max_spec_factor, max_spec_offset, min_token_prob: vLLM's default first.
CHAINS = [(1.0, 0.0, 0.1), (1.0, 4.0, 0.1), (4.0, 0.0, 0.1), (64.0, 64.0, 0.1), (64.0, 64.0, 0.02)]
TREES = [(64.0, 64.0, 0.0), (4.0, 0.0, 0.0), (1.0, 0.0, 0.0)]

Tokens = npt.NDArray[np.int32]
Draft = Callable[[Tokens], DraftTree]  # of the text so far


class Call(NamedTuple):
    """One call of a model: int32 each."""

    prompt: Tokens
    output: Tokens


class Figure(NamedTuple):
    """What came of all calls."""

    per_step: float  # tokens
    drafted: float  # tokens a step


class Side:
    """A drafter as this program sees it; `begin` a call, then draft, `end` it with its output."""

    def begin(self, number: int, call: Call) -> None: ...
    def draft(self, text: Tokens, length: int) -> DraftTree: ...
    def accept(self, tokens: Tokens) -> None: ...
    def end(self, number: int, call: Call) -> None: ...


class BlendTrees(Side):
    """blend as `decode` uses it."""

    def __init__(self, tokenizer: TokenizerRecord, *, history: bool) -> None:
        self.past = PastRequests(tokenizer=tokenizer) if history else None
        self.drafter = load_drafter("blend", past=self.past, tokenizer=tokenizer)

    def begin(self, number: int, call: Call) -> None:
        self.drafter.start(call.prompt)

    def draft(self, text: Tokens, length: int) -> DraftTree:
        return self.drafter.draft(length)

    def accept(self, tokens: Tokens) -> None:
        self.drafter.accept(tokens)

    def end(self, number: int, call: Call) -> None:
        if self.past is not None:
            self.past.remember(call.output, 0)


class BlendChains(Side):
    """blend as serving engines use it."""

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
        self.engine.tells()

    def begin(self, number: int, call: Call) -> None:
        self.asked = [Asked(len(call.prompt))]

    def draft(self, text: Tokens, length: int) -> DraftTree:
        return self.engine.chain_batch([text], [length], asked=self.asked)[0]

    def end(self, number: int, call: Call) -> None:
        self.engine.finish(Finished(np.concatenate(call), len(call.prompt), str(number)))


class Arctic(Side):
    """Suffix decoding with its cache of responses, as vLLM's `suffix` uses it."""

    def __init__(self, setting: tuple[float, float, float], *, tree: bool, history: bool) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self.factor, self.offset, self.least = setting
        self.tree = tree
        self.cache: Any = SuffixDecodingCache(DEPTH, -1 if history else 0)
        self.number = -1

    def begin(self, number: int, call: Call) -> None:
        self.number = number
        self.cache.start_request(number, call.prompt)

    def accept(self, tokens: Tokens) -> None:
        self.cache.add_active_response(self.number, tokens)

    def draft(self, text: Tokens, length: int) -> DraftTree:
        draft = self.cache.speculate(
            self.number,
            text[-DEPTH:],
            max_spec_tokens=length,
            max_spec_factor=self.factor,
            max_spec_offset=self.offset,
            min_token_prob=self.least,
            use_tree_spec=self.tree,
        )
        n = len(draft.token_ids)
        ids, parents = np.array(draft.token_ids, np.int32), np.array(draft.parents, np.int32)
        return DraftTree(ids, parents, np.array(draft.probs, np.float32), np.zeros(n, np.uint8))

    def end(self, number: int, call: Call) -> None:
        self.cache.stop_request(number)


def measure(calls: Sequence[Call], side: Side, length: int) -> Figure:
    """Write all calls with the drafts of `side`, of at most `length` tokens."""
    steps = written = drafted = 0
    for number, call in enumerate(calls):
        text, prompt = np.concatenate(call), len(call.prompt)
        side.begin(number, call)
        side.accept(call.output[:1])
        at = 1
        while at < len(call.output):
            draft = side.draft(text[: prompt + at], length)
            rest = call.output[at:]
            gained = min(accepted_length(draft, rest) + 1, len(rest))
            side.accept(rest[:gained])
            at, steps, written = at + gained, steps + 1, written + gained
            drafted += len(draft)
        side.end(number, call)
    return Figure(written / max(steps, 1), drafted / max(steps, 1))


def compare(
    calls: Sequence[Call], shape: str, tokenizer: TokenizerRecord, *, history: bool, arctic: bool
) -> tuple[Figure, Figure | None]:
    """Return blend's figure for a shape, and Arctic's best."""
    tree, length = shape[0] == "t", int(shape[1:])
    theirs = None
    if arctic:
        settings = TREES if tree else CHAINS
        sides = (Arctic(each, tree=tree, history=history) for each in settings)
        theirs = max(measure(calls, side, length) for side in sides)
    if tree:
        return measure(calls, BlendTrees(tokenizer, history=history), length), theirs
    best: Figure | None = None
    for cost in COSTS:
        figure = measure(calls, BlendChains(tokenizer, cost, history=history), length)
        if best is None or (theirs is not None and figure.drafted <= theirs.drafted):
            best = max(figure, best or figure)
        else:
            break
    assert best is not None
    return best, theirs


def calls_of(records: Iterable[Record]) -> list[Call]:
    """Return the calls of records whose output is longer than the token that is given."""
    turns = [turn for record in records for turn in record.turns]
    pairs = [(np.asarray(t.prompt, np.int32), np.asarray(t.answer, np.int32)) for t in turns]
    return [Call(*pair) for pair in pairs if len(pair[1]) > 1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workloads", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", required=True, help="whose tokenizer: a name or a folder")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--arctic", type=Path, help="the folder that arctic_inference lies in")
    parser.add_argument("--limit", type=int, help="only the first calls of each file")
    options = parser.parse_args()
    if options.arctic is not None:
        sys.path.append(str(options.arctic))
    tokenizer = load_tokenizer(options.model)
    print("| workload | history | shape | blend | drafted | Arctic | drafted | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for file in options.files:
        records, _ = read_records(file, None, tokenizer, "none")
        calls = calls_of(records)[: options.limit]
        for history in (False, True):
            for shape in options.shapes.split(","):
                ours, theirs = compare(
                    calls, shape, tokenizer.record, history=history,
                    arctic=options.arctic is not None,
                )  # fmt: skip
                cells = [file.name.partition(".")[0], "grows" if history else "", shape]
                cells += [f"{ours.per_step:.2f}", f"{ours.drafted:.1f}"]
                if theirs is not None:
                    ratios.append(ours.per_step / theirs.per_step)
                    cells += [
                        f"{theirs.per_step:.2f}",
                        f"{theirs.drafted:.1f}",
                        f"{ratios[-1]:.3f}",
                    ]
                print("| " + " | ".join(cells) + " |", flush=True)
    if ratios:
        print(f"\nmean ratio {np.exp(np.mean(np.log(ratios))):.3f}, least {min(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
