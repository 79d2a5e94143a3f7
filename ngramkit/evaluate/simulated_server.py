"""A simulated server that answers recorded requests pass by pass.

Each pass writes one token of each running request, and the drafted tokens that match the record.
Requests start in log order, after those that they continue. A request joins the history in the pass
after its last, as in engines.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.references import reference_texts
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.replay_loop import accept_recorded

if TYPE_CHECKING:
    from ngramkit.engines.batch import BatchDrafter


@dataclass
class Served:
    """The passes of a server. A step is one request's part in a pass; prefills are not passes."""

    requests: list[Record] = field(default_factory=list)  # of each request, by number
    ended: list[int] = field(default_factory=list)  # numbers of requests, in order of their ends
    batches: list[int] = field(default_factory=list)  # requests of each pass
    contexts: list[float] = field(default_factory=list)  # their mean length in tokens, likewise
    draft_seconds: list[float] = field(default_factory=list)  # on this machine, likewise
    request: list[int] = field(default_factory=list)  # number of each step's request
    written: list[int] = field(default_factory=list)  # tokens, likewise
    drafted: list[int] = field(default_factory=list)  # tokens, likewise
    accepted: list[int] = field(default_factory=list)  # of these, likewise


@dataclass
class _Request:
    record: Record  # with this turn only; its category is the request's kind
    waits: bool  # it continues another
    next: list[int] = field(default_factory=list)  # numbers


class _Running:
    def __init__(self, number: int, request: _Request) -> None:
        turn = request.record.turns[0]
        self.number, self.prompt = number, len(turn.prompt)
        self.references = reference_texts(turn.references)
        joined = np.concatenate([turn.prompt, turn.answer])
        self.text: TokenArray = joined.astype(np.int32, copy=False)
        self.size = self.prompt + 1

    @property
    def left(self) -> int:
        return len(self.text) - self.size


def simulate_server(
    records: Sequence[Record],
    drafter: BatchDrafter,
    *,
    concurrency: int,
    tokens: int,
    reporter: Reporter = SILENT,
) -> Served:
    from ngramkit.engines.batch import Asked
    from ngramkit.engines.growing_history import Finished

    requests = _in_order(records)
    result = Served([request.record for request in requests])
    queue = _Queue(requests, concurrency)
    while running := queue.running():
        rows = [each.text[: each.size] for each in running]
        lengths = [tokens] * len(running)  # engines do not know where an answer will end
        asked = [
            Asked(each.prompt, references=each.references, name=str(each.number), holder=each)
            for each in running
        ]
        before = drafter.statistics.seconds
        drafts = drafter.chain_batch(rows, lengths, asked=asked)
        result.draft_seconds.append(drafter.statistics.seconds - before)
        result.batches.append(len(running))
        result.contexts.append(sum(each.size for each in running) / len(running))
        for each, draft in zip(running, drafts, strict=True):
            nodes, written = accept_recorded(draft, each.text[each.size :])
            each.size += len(written)
            result.request.append(each.number)
            result.written.append(len(written))
            result.drafted.append(len(draft))
            result.accepted.append(len(nodes))
            if not each.left:
                drafter.sessions.end(str(each.number))
                drafter.finish(Finished(each.text, each.prompt, f"{each.number:020}"))
                result.ended.append(each.number)
                reporter.advance(1)
        queue.end()
    return result


class _Queue:
    def __init__(self, requests: Sequence[_Request], most: int) -> None:
        self._requests, self._most = requests, most
        self._ready = [n for n, request in enumerate(requests) if not request.waits]
        self._running: list[_Running] = []

    def running(self) -> list[_Running]:
        while self._ready and len(self._running) < self._most:
            number = heapq.heappop(self._ready)
            begun = _Running(number, self._requests[number])
            if begun.left:
                self._running.append(begun)
            else:  # the prefill wrote the whole answer
                self._queue_followers(number)
        return self._running

    def end(self) -> None:
        for each in self._running:
            if not each.left:
                self._queue_followers(each.number)
        self._running = [each for each in self._running if each.left]

    def _queue_followers(self, number: int) -> None:
        for following in self._requests[number].next:
            heapq.heappush(self._ready, following)


def _in_order(records: Sequence[Record]) -> list[_Request]:
    turns = [(turn, record) for record in records for turn in record.turns if len(turn.answer)]
    turns.sort(key=lambda each: each[0].place)
    requests: list[_Request] = []
    last: dict[int, int] = {}  # id(record) -> number of its latest request
    by_place: dict[int, int] = {}
    for number, (turn, record) in enumerate(turns):
        before = last.get(id(record))
        if before is None and turn.after is not None:
            before = by_place.get(turn.after)
        if before is not None:
            requests[before].next.append(number)
        alone = replace(record, category=turn.kind or record.category, turns=[turn])
        requests.append(_Request(alone, waits=before is not None))
        last[id(record)] = by_place[turn.place] = number
    return requests
