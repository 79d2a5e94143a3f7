"""A server that answers recorded requests, pass by pass, as an engine's adapter sees it.

At most so many requests run at once; each pass writes one token of a request and what of its draft
is on record. Requests begin in their order, but none before the one that it goes on with has ended:
an agent's next turn waits for its last. Drafts are the engine's own (`engines.batch`), and so is
what they learn from: a request joins the history in the pass after its last.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ngramkit.drafters.base import TokenArray
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.simulation import Replay, Tally
from ngramkit.progress import SILENT, Reporter

if TYPE_CHECKING:
    from ngramkit.engines.batch import BatchDrafter


@dataclass
class Passes:
    """The passes of a server: of each, its requests, the tokens that it read for them, and the mean
    length of their contexts."""

    requests: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    contexts: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, running: Sequence[_Running], drafted: int) -> None:
        self.requests.append(len(running))
        self.tokens.append(len(running) + drafted)
        self.contexts.append(sum(each.size for each in running) / len(running))


@dataclass
class Served:
    """What a server did for requests: its passes, those without drafts, and tallies by request, in
    the order in which they ended."""

    replay: Replay
    passes: Passes
    plain: Passes
    drafted: int = 0  # tokens
    draft_seconds: float = 0.0  # of drafting, on this machine


@dataclass
class _Request:
    """A request, and the one that goes on with it."""

    record: Record
    prompt: int
    text: TokenArray  # int32[n], prompt and answer
    then: int | None = None  # its number
    waits: bool = False  # it goes on with another


class _Running:
    """A request while it runs; the prefill has written its first token."""

    def __init__(self, number: int, request: _Request) -> None:
        self.number, self.request = number, request
        self.size = request.prompt + 1
        self.tally = Tally()

    @property
    def left(self) -> int:
        return len(self.request.text) - self.size


def serve(
    records: Sequence[Record],
    drafter: BatchDrafter,
    *,
    concurrency: int,
    tokens: int,
    label: str,
    reporter: Reporter = SILENT,
) -> Served:
    """Serve all requests, at most `concurrency` at once, with drafts of at most `tokens`."""
    from ngramkit.engines.batch import Asked, accepted_length

    requests = _chained(records)
    result = Served(Replay(label, tokens), Passes(), without_drafts(records, concurrency))
    queue = _Queue(requests, concurrency)
    while running := queue.running():
        rows = [each.request.text[: each.size] for each in running]
        lengths = [tokens] * len(running)  # engines do not know where an answer will end
        asked = [Asked(each.request.prompt) for each in running]
        before = drafter.statistics.seconds
        drafts = drafter.chain_batch(rows, lengths, asked=asked)
        spent = drafter.statistics.seconds - before
        result.draft_seconds += spent
        result.passes.add(running, sum(map(len, drafts)))
        for each, draft in zip(running, drafts, strict=True):
            rest = each.request.text[each.size : each.size + len(draft) + 1]
            accepted = min(accepted_length(draft, rest), each.left - 1)
            each.size += accepted + 1
            each.tally.passes += 1
            each.tally.tokens += accepted + 1
            each.tally.empty += len(draft) == 0
            each.tally.accepted[accepted] += 1
            each.tally.draft_ns.append(int(spent / len(running) * 1e9))
            result.drafted += len(draft)
            if not each.left:
                record = each.request.record
                result.replay.add(record, each.tally, f"{each.number}: {record.name}")  # each once
                reporter.advance(1)
        queue.end()
    return result


def without_drafts(records: Sequence[Record], concurrency: int) -> Passes:
    """Return the passes that the same server takes without drafts."""
    passes, queue = Passes(), _Queue(_chained(records), concurrency)
    while running := queue.running():
        passes.add(running, 0)
        for each in running:
            each.size += 1
        queue.end()
    return passes


class _Queue:
    """The requests that run, and those that may begin."""

    def __init__(self, requests: Sequence[_Request], most: int) -> None:
        self._requests, self._most = requests, most
        self._ready = [n for n, request in enumerate(requests) if not request.waits]
        self._running: list[_Running] = []

    def running(self) -> list[_Running]:
        """Begin what may begin, and return the requests of the next pass, in their places."""
        while self._ready and len(self._running) < self._most:
            number = heapq.heappop(self._ready)
            begun = _Running(number, self._requests[number])
            if begun.left:
                self._running.append(begun)
            else:  # the prefill wrote all of it
                self._allow(number)
        return self._running

    def end(self) -> None:
        """Let the requests go that have ended."""
        for each in self._running:
            if not each.left:
                self._allow(each.number)
        self._running = [each for each in self._running if each.left]

    def _allow(self, number: int) -> None:
        then = self._requests[number].then
        if then is not None:
            heapq.heappush(self._ready, then)


def _chained(records: Sequence[Record]) -> list[_Request]:
    """Return all requests in order; turns of a record go on with each other, and so does a record
    with the one before, where its turn is the next of the same run."""
    requests: list[_Request] = []
    last: Record | None = None
    for record in records:
        follows = (
            last is not None
            and len(requests) > 0
            and record.turn == last.turn + len(last.turns)
            and record.turn > 0
            and (record.run, record.category) == (last.run, last.category)
        )
        for turn in record.turns:
            if not len(turn.answer):
                continue
            text = np.concatenate([turn.prompt, turn.answer]).astype(np.int32)
            if follows:
                requests[-1].then = len(requests)
            requests.append(_Request(record, len(turn.prompt), text, waits=follows))
            follows = True
        last = record
    return requests
