"""The loop of a replay: one drafter on recorded answers, without a model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.drafters.base import Drafter, DraftTree, TokenArray
from ngramkit.drafters.checked import ANY_VOCABULARY, drafts_of
from ngramkit.drafters.references import start_with_references
from ngramkit.evaluate.recorded_evidence import Misses, RecordedEvidence, ReplayedEvidence
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay_figures import Replay, Tally
from ngramkit.evaluate.replay_page import WatchedTurn
from ngramkit.evaluate.statistics import Reliability

CHAIN_WIDTH = 4  # tree nodes drafted per token of a chain, as in engines


def replay_drafter(
    name: str,
    make: Callable[[], Drafter],
    records: Sequence[Record],
    budget: int,
    *,
    keep_state: bool = False,
    chain: bool = False,
    recorded_evidence: RecordedEvidence | None = None,
    vocabulary: int = ANY_VOCABULARY,
    watch: Callable[[Record, int, Turn], WatchedTurn | None] | None = None,
    reporter: Reporter = SILENT,
) -> Replay:
    """Replay `records` in order, or with `keep_state` turn by turn in the order of places.

    `make` creates a fresh drafter, without `keep_state` one per record. `watch` returns what keeps
    the passes of a turn of a record, if anything does.
    """
    result = Replay(name, budget)
    drafter = make()
    if not getattr(drafter, "wants_evidence", False):
        recorded_evidence = None
    if recorded_evidence is not None:
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
        evidence = None if recorded_evidence is None else recorded_evidence.evidence_of(turn)
        watched = None if watch is None else watch(records[i], number, turn)
        tallies[i].add(
            replay_turn(drafter, turn, budget, result.reliability, evidence, watched, **way)
        )
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
    watched: WatchedTurn | None = None,
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
    if len(turn.references):
        start_with_references(drafter, turn.prompt, turn.references)
    else:
        drafter.start(turn.prompt)
    position, written = 0, answer[:1]  # the prefill's token
    while len(written):
        drafter.accept(written, evidence)
        if recorded is not None:
            recorded.write(written)
        position += len(written)
        if position == len(answer):
            break
        # As in decoding: at most the tokens that may still be written, less the model's own.
        left = budget if turn.longest is None else min(budget, turn.longest - position - 1)
        begun = time.perf_counter_ns()
        tree = drafted(left) if left > 0 else DraftTree.empty()
        tally.draft_ns.append(time.perf_counter_ns() - begun)
        nodes, written = accept_recorded(tree, answer[position:])
        evidence = None if recorded is None or left <= 0 else recorded.after_draft(tree)
        tally.count(len(written), empty=len(tree) == 0)
        if reliability is not None:
            reliability.add(tree.scores, nodes)
        if watched is not None:
            watched.add(tree, nodes, len(written))
    drafter.finish()
    return tally


def accept_recorded(tree: DraftTree, rest: TokenArray) -> tuple[list[int], TokenArray]:
    """Return the nodes that the `rest` of a recorded answer accepts, and the tokens of the pass.

    Greedy decoding accepts a node exactly if the model wrote its token. One more is the model's.
    """
    nodes = tree.accepted_nodes(rest[: len(tree) + 1].tolist())
    return nodes, rest[: len(nodes) + 1]


def draft_chain(drafts: Callable[[int], DraftTree], length: int) -> DraftTree:
    """Return the path of at most `length` tokens with the highest expected acceptance."""
    from ngramkit.kernels.tree_paths import best_path

    tree = drafts(CHAIN_WIDTH * length)
    return tree.subtree(best_path(tree.parents, tree.scores, length, 0.0))
