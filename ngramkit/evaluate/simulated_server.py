"""A simulated server: it answers recorded requests, pass by pass, as an engine's adapter sees it.

At most so many requests run at once; each pass writes one token of a request and what of its draft
is on record. Requests begin in their order, but none before the one that it goes on with has ended:
an agent's next turn waits for its last. Drafts are the engine's own (`engines.batch`), and so is
what they learn from: a request joins the history in the pass after its last.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.budget.profile import Pass, Profile
from ngramkit.drafters.base import TokenArray
from ngramkit.engines.token_cost import FREE
from ngramkit.evaluate.drafter_replay import Replay, Tally
from ngramkit.evaluate.records import Record

if TYPE_CHECKING:
    from ngramkit.engines.batch import BatchDrafter


@dataclass
class ServedPasses:
    """The passes of a server: for each the number of requests, of tokens read, and the mean length
    of the contexts."""

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
    """The work of a server for requests: its passes, those without drafts, and tallies by request,
    in the order in which they ended."""

    replay: Replay
    passes: ServedPasses
    plain: ServedPasses
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

    requests = _chain(records)
    result = Served(Replay(label, tokens), ServedPasses(), without_drafts(records, concurrency))
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


def without_drafts(records: Sequence[Record], concurrency: int) -> ServedPasses:
    """Return the passes that the same server takes without drafts."""
    passes, queue = ServedPasses(), _Queue(_chain(records), concurrency)
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


def _chain(records: Sequence[Record]) -> list[_Request]:
    """Return all requests in order. A turn of a record waits for the turn before it, and a record's
    first turn for the record before, where that ends with the turn before of the same run."""
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


# The time of a pass, by the tokens that it reads.

SHOWN = 9  # tokens of the pass whose cost is told
MOST_COST = SHOWN - 0.01
UNBOUNDED = 1e9  # tokens that cost nothing
Floats = npt.NDArray[np.float64]
Cost = float | Mapping[int, float] | str | Path | None


class PassTimes:
    """The times of passes, in passes of one token.

    `cost`: what a pass of SHOWN tokens costs; a pass of T is then taken to last 1 + T / free, as
    engines.token_cost has it, and None is what engines suppose of a GPU. Or times by tokens, such
    as {1: 57, 9: 109}, or the path of a profile of `ngramkit calibrate`, by tokens and context:
    between them it is interpolated, beyond the last it goes on as at the end.

    Raises UsageError for a cost that makes no sense, InputError for a file that is no profile.
    """

    def __init__(self, cost: Cost = None) -> None:
        self._seconds: Floats | None = None  # [contexts, sizes]
        shown = self._read(cost) if isinstance(cost, str | Path | Mapping) else cost
        self.free = float(FREE)  # tokens that cost as much as reading the weights
        if shown is not None:
            require_between("pass_cost", shown, 1, MOST_COST)
            self.free = min((SHOWN - shown) / max(shown - 1, 1e-12), UNBOUNDED)
        self.cost = (1 + SHOWN / self.free) / (1 + 1 / self.free)

    def of(self, passes: ServedPasses) -> Floats:
        """Return each pass's time, float64[passes]."""
        tokens = np.array(passes.tokens, np.float64)
        if self._seconds is not None:
            return self._measured(tokens, np.array(passes.contexts))
        times: Floats = (1 + tokens / self.free) / (1 + 1 / self.free)
        return times

    def _read(self, given: Mapping[int, float] | str | Path) -> float:
        """Take the times of a curve or a profile, and return what a pass of SHOWN tokens costs."""
        curve = isinstance(given, Mapping)
        profile = _curve(given) if isinstance(given, Mapping) else _profile(Path(given))
        seconds = profile.table() if profile.passes else np.zeros((1, 1))
        if seconds.shape[1] < 2 or not (np.isfinite(seconds).all() and seconds.min() > 0):
            what = "the curve" if curve else f"the profile {given}"
            raise UsageError(
                f"{what} has no two times above 0", "like 1:57,9:109", option="pass_cost"
            )
        self._sizes, self._contexts = np.array(profile.sizes) + 1.0, np.array(profile.contexts)
        self._seconds = seconds
        return float(self._measured(np.array([float(SHOWN)]), np.zeros(1))[0])

    def _measured(self, tokens: Floats, contexts: Floats) -> Floats:
        assert self._seconds is not None
        sizes = self._sizes
        nearest = np.abs(contexts[:, None] - self._contexts).argmin(1)
        times = np.empty(len(tokens))
        for row in np.unique(nearest):
            own, seconds = nearest == row, self._seconds[row]
            slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
            beyond = slope * np.maximum(tokens[own] - sizes[-1], 0)
            times[own] = np.interp(tokens[own], sizes, seconds) + beyond
        one: Any = np.interp(1.0, sizes, self._seconds[0])
        relative: Floats = times / one
        return relative


def _curve(times: Mapping[int, float]) -> Profile:
    for tokens in times:
        require_between("pass_cost", tokens, 1, 1 << 20, "the tokens of a pass, like 1:57,9:109")
    return Profile("", "", "", [Pass(n - 1, 0, float(time)) for n, time in times.items()])


def _profile(path: Path) -> Profile:
    if not path.is_file():
        raise InputError(
            f"there is no profile {path}",
            f"give one of ngramkit calibrate, or what a pass of {SHOWN} tokens costs",
            option="pass_cost",
        )
    return Profile.load(path)
