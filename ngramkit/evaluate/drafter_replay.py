"""Replay of one drafter: tokens/step on recorded answers, without a model.

Greedy decoding accepts a draft node exactly if the model wrote its token.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ngramkit.basics.errors import require_between
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.decode.accept import accepted_nodes
from ngramkit.drafters.base import Drafter, DraftTree, Evidence, TokenArray
from ngramkit.drafters.checked import ANY_VOCABULARY, drafts_of
from ngramkit.drafters.references import start
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.statistics import Reliability
from ngramkit.evaluate.topk_record import Misses, ReplayedEvidence, TopKRecord

MAX_MISSING = 0.01  # maximum share of contexts missing from a top-k record
CHAIN_WIDTH = 4  # tree nodes drafted per token of a chain, as in engines


@dataclass
class Tally:
    tokens: int = 0  # without the prefill's
    passes: int = 0
    empty: int = 0  # passes without a draft
    lengths: Counter[int] = field(default_factory=Counter)  # tokens of a pass -> passes
    draft_ns: list[int] = field(default_factory=list)

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.passes if self.passes else math.nan

    def count(self, written: int, *, empty: bool) -> None:
        self.tokens += written
        self.passes += 1
        self.empty += empty
        self.lengths[written] += 1

    def figures(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "tokens_per_step": self.tokens_per_step if self.passes else None,
        }

    def draft_us(self, percentile: float) -> float:
        return float(np.percentile(self.draft_ns, percentile)) / 1e3 if self.draft_ns else 0.0

    def add(self, other: Tally) -> None:
        self.tokens += other.tokens
        self.passes += other.passes
        self.empty += other.empty
        self.lengths += other.lengths
        self.draft_ns += other.draft_ns


@dataclass(repr=False)
class Replay:
    """The result of one drafter at one budget; nan if `missing` names a source."""

    drafter: str
    budget: int
    total: Tally = field(default_factory=Tally)
    by_category: dict[str, Tally] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of the records, in replay order
    by_record: list[Tally] = field(default_factory=list)  # likewise
    categories: list[str] = field(default_factory=list)  # likewise
    runs: list[str] = field(default_factory=list)  # likewise
    asked_before: list[bool] = field(default_factory=list)  # likewise: a repeated first prompt
    reliability: Reliability = field(default_factory=Reliability)
    misses: Misses | None = None  # of the top-k record, for a drafter that wants evidence
    bytes: int = 0  # of its artifacts
    sources: list[str] = field(default_factory=list)  # artifacts with their builds, the history
    missing: str | None = None
    _prompts: set[Any] = field(default_factory=set)  # first prompts so far, as bytes

    @property
    def incomplete(self) -> str | None:
        """Why the figures are too low, or None."""
        misses = self.misses
        if misses is None or misses.missing <= MAX_MISSING * misses.rows:
            return None
        return (
            f"{misses.missing:,} of {misses.rows:,} contexts "
            f"({misses.missing / misses.rows:.0%}) were not on record"
        )

    @property
    def comparable(self) -> bool:
        return self.missing is None and self.incomplete is None and self.total.passes > 0

    def add(self, record: Record, tally: Tally, name: str | None = None) -> None:
        self.total.add(tally)
        self.by_category.setdefault(record.category, Tally()).add(tally)
        self.names.append(record.name if name is None else name)
        self.categories.append(record.category)
        self.runs.append(record.run)
        prompt = record.turns[0].prompt.tobytes()
        self.asked_before.append(prompt in self._prompts)
        self._prompts.add(prompt)
        self.by_record.append(tally)

    def rows(self) -> Iterator[dict[str, Any]]:
        for name, category, tally in zip(self.names, self.categories, self.by_record, strict=True):
            yield {
                "drafter": self.drafter,
                "budget": self.budget,
                "question": name,
                "category": category,
                **tally.figures(),
            }

    def to_dict(self) -> dict[str, Any]:
        total, replayed = self.total, self.missing is None
        whole = ("drafter", "budget")
        return {
            "drafter": self.drafter,
            "budget": self.budget,
            "missing": self.missing,
            "incomplete": self.incomplete,
            "sources": self.sources,
            "bytes": self.bytes,
            **total.figures(),
            "draft_us_p50": total.draft_us(50) if replayed else None,
            "draft_us_p99": total.draft_us(99) if replayed else None,
            "empty_share": total.empty / total.passes if total.passes else None,
            "accepted_lengths": {str(n): total.lengths[n] for n in sorted(total.lengths)},
            "reliability": self.reliability.rows(),
            **({} if self.misses is None else {"oracle": asdict(self.misses)}),
            "by_category": {name: tally.figures() for name, tally in self.by_category.items()},
            "questions": [
                {key: value for key, value in row.items() if key not in whole}
                for row in self.rows()
            ],
        }

    def __repr__(self) -> str:
        if self.missing is not None:
            return f"<Replay of {self.drafter}, {self.budget} nodes: n/a ({self.missing})>"
        return (
            f"<Replay of {self.drafter}, {self.budget} nodes: "
            f"{self.total.tokens_per_step:.3f} tokens/step over {len(self.names)} questions>"
        )


def replay_drafter(
    name: str,
    make: Callable[[], Drafter],
    records: Sequence[Record],
    budget: int,
    *,
    keep_state: bool = False,
    chain: bool = False,
    topk_record: TopKRecord | None = None,
    vocabulary: int = ANY_VOCABULARY,
    reporter: Reporter = SILENT,
) -> Replay:
    """Replay `records` in order, or with `keep_state` turn by turn in the order of places.

    `make` creates a fresh drafter, without `keep_state` one per record.
    """
    result = Replay(name, budget)
    drafter = make()
    if not getattr(drafter, "wants_evidence", False):
        topk_record = None
    if topk_record is not None:
        result.misses = Misses()
    way: dict[str, Any] = {"chain": chain, "vocabulary": vocabulary}
    if records:  # warm up: exclude compilation and cold pages from draft times
        first = records[0].turns[0]
        replay_turn(make(), replace(first, answer=first.answer[:16]), budget, **way)
    tallies = [Tally() for _ in records]
    turns = [
        (i, n, turn) for i, record in enumerate(records) for n, turn in enumerate(record.turns)
    ]
    if keep_state:  # conversations overlap
        turns.sort(key=lambda each: each[2].place)
    left = Counter(i for i, _, _ in turns)
    for i, number, turn in turns:
        if not keep_state and number == 0:
            drafter = make()
        evidence = None if topk_record is None else topk_record.evidence_of(turn)
        tallies[i].add(replay_turn(drafter, turn, budget, result.reliability, evidence, **way))
        if evidence is not None and result.misses is not None:
            result.misses.add(evidence.misses)
        left[i] -= 1
        reporter.advance(not left[i])
    for record, tally in zip(records, tallies, strict=True):
        result.add(record, tally)
    return result


def replay_turn(
    drafter: Drafter,
    turn: Turn,
    budget: int,
    reliability: Reliability | None = None,
    recorded: ReplayedEvidence | None = None,
    *,
    chain: bool = False,
    vocabulary: int = ANY_VOCABULARY,
) -> Tally:
    """Run the decode loop with the recorded answer instead of the model.

    `chain`: drafts are one path of at most `budget` tokens.
    """
    drafts = drafts_of(drafter, vocabulary)
    drafted = partial(draft_chain, drafts) if chain else drafts
    answer, tally = turn.answer, Tally()
    evidence = None if recorded is None else recorded.after_prompt()
    start(drafter, turn.prompt, turn.references)
    position = 0
    if len(answer):  # the prefill's token
        position = _write(drafter, answer[:1], evidence, recorded)
    while position < len(answer):
        # As in decoding: at most the tokens that may still be written, less the model's own.
        left = budget if turn.longest is None else min(budget, turn.longest - position - 1)
        begun = time.perf_counter_ns()
        tree = drafted(left) if left > 0 else DraftTree.empty()
        tally.draft_ns.append(time.perf_counter_ns() - begun)
        nodes = accepted_nodes(tree, answer[position : position + len(tree) + 1].tolist())
        written = answer[position : position + len(nodes) + 1]  # one bonus token
        evidence = None if recorded is None or left <= 0 else recorded.after_draft(tree)
        position += _write(drafter, written, evidence, recorded)
        tally.count(len(written), empty=len(tree) == 0)
        if reliability is not None:
            reliability.add(tree.scores, nodes)
    drafter.finish()
    return tally


def draft_chain(drafts: Callable[[int], DraftTree], length: int) -> DraftTree:
    """Return the path of at most `length` tokens with the highest expected acceptance."""
    from ngramkit.kernels.tree_paths import best_path

    tree = drafts(CHAIN_WIDTH * length)
    path = best_path(tree.parents, tree.scores, length, 0.0)
    parents = np.arange(-1, len(path) - 1, dtype=np.int32)
    return DraftTree(tree.token_ids[path], parents, tree.scores[path], tree.source[path])


def _write(
    drafter: Drafter,
    tokens: TokenArray,
    evidence: Evidence | None,
    recorded: ReplayedEvidence | None,
) -> int:
    if evidence is None:
        drafter.accept(tokens)
    else:
        drafter.accept(tokens, evidence)
    if recorded is not None:
        recorded.write(tokens)
    return len(tokens)


def shuffle(records: Sequence[Record], seed: int) -> list[Record]:
    require_between("seed", seed, 0, (1 << 64) - 1)
    order = np.random.default_rng(seed).permutation(len(records))
    return [records[i] for i in order]


def categories(results: Iterable[Replay]) -> list[str]:
    return list(dict.fromkeys(c for result in results for c in result.by_category))
