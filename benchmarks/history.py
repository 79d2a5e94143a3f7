"""The costs of a history that grows: adding requests, memory, opening it again, drafts from it.

Requests are pieces of the standard library in any order. If more are needed, they are repeated with
one token in 16 replaced. Drafts are made after 8,000 tokens of held-out files.
NGRAMKIT_BENCH_TOKENS, such as "1 4 16", sets how many million tokens are remembered.

Times of adding and drafting are processor time; memory is RssAnon. The reference for adding and
opening is to sort everything, as was done every 32,768 tokens; for drafts it is drafting without
past requests.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import Row, timed
from benchmarks._data import Pair, draft_times, held_out_texts, stdlib_tokens
from benchmarks.growth import NOISE, own_memory

if TYPE_CHECKING:
    from ngramkit.drafters.base import TokenArray
    from ngramkit.drafters.blend import Blend
    from ngramkit.drafters.past_requests import PastRequests

SIZES = "1 4 16"  # million tokens
MILLION = 1_000_000
REQUEST = 400  # tokens
EVERY = 1 << 15  # tokens after which everything was sorted
CONTEXT, ANSWER, ANSWERS, BUDGET = 8_000, 100, 30, 64
ROUNDS = 3


class Taken(NamedTuple):
    """The cost of remembering requests."""

    foreground: float  # microseconds a token
    processor: float  # likewise, of all threads
    late: float  # milliseconds of a request, p99
    memory: float  # bytes a token, at the peak


def rows() -> Iterator[Row]:
    from ngramkit.drafters.blend import Blend
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.history import History
    from ngramkit.formats.request_log import PastRequest
    from ngramkit.kernels.suffix.sort import sort_requests

    with tempfile.TemporaryDirectory() as name:
        store = stdlib_tokens(Path(name))
        pool, tokenizer = np.concatenate([shard.tokens for shard in store.shards]), store.tokenizer
        pool = pool.astype(np.int32)
        contexts = _contexts()
        few = PastRequests(tokenizer=tokenizer, rebuild_tokens=64, newest_tokens=64)
        take_in(few, pool, 1 << 13)  # compiles
        least_times({"few": Blend(tokenizer=tokenizer, past=few)}, contexts[:2])
        for millions in os.environ.get("NGRAMKIT_BENCH_TOKENS", SIZES).split():
            size, what = int(millions) * MILLION, f"{millions} M tokens of past requests"
            past = PastRequests(tokenizer=tokenizer, capacity=2 * size)
            taken = take_in(past, pool, size)
            stream = np.concatenate([shard.tokens for part in past.shards for shard in part])
            sort = timed(lambda: sort_requests(stream, tokenizer.vocabulary))  # noqa: B023
            yield _row(f"{what}: taking in, a token", taken, sort)
            kept = History.at(Path(name) / f"{millions}-kept", tokenizer)
            taken = take_in(PastRequests(kept, capacity=2 * size), pool, size)
            yield _row(f"{what} in a folder: taking in, a token", taken, sort)
            drafters = {
                "ours": Blend(tokenizer=tokenizer, past=past),
                "plain": Blend(tokenizer=tokenizer),
            }
            times = least_times(drafters, contexts)
            ours, late = np.percentile(times["ours"], [50, 99])
            plain, plain_late = np.percentile(times["plain"], [50, 99])
            yield Row(
                f"{what}: a draft of {BUDGET} nodes after {CONTEXT:,} tokens",
                f"{ours:.0f} us, p99 {late:.0f} us",
                f"{plain:.0f} us, p99 {plain_late:.0f} us, without",
                plain / ours,
                ">= 0.67, p99 <= 400 us, at 4 M",
            )
            history = History.at(Path(name) / millions, tokenizer)
            ends = np.flatnonzero(stream == tokenizer.vocabulary)
            history.log.create(PastRequest(r[:-1], 0) for r in np.split(stream, ends[:-1] + 1))
            history.extend_index(2 * size)
            opened = min(timed(lambda: PastRequests(history)) for _ in range(3))  # noqa: B023
            yield Row(
                f"{what}: opening",
                f"{opened:.2f} s, with its index",
                f"{sort:.2f} s, sorting",
                sort / opened,
                "<= 0.3 s at 4 M",
            )


def _row(what: str, taken: Taken, sort: float) -> Row:
    return Row(
        what,
        f"{taken.foreground:.2f} us (p99 of a request {taken.late:.1f} ms), with all "
        f"threads {taken.processor:.2f} us; {taken.memory:.0f} bytes at the peak",
        f"{sort / EVERY * 1e6:.1f} us, sorting all every {EVERY:,} tokens",
        sort / EVERY * 1e6 / taken.processor,
        "<= 1 us, 1 ms; <= 20 bytes",
    )


def take_in(past: PastRequests, pool: TokenArray, size: int) -> Taken:
    """Remember requests of `size` tokens."""
    random = np.random.default_rng(0)
    requests = np.split(pool[: len(pool) // REQUEST * REQUEST], len(pool) // REQUEST)
    ctypes.CDLL(None).malloc_trim(0)  # what is free, but kept, would hide what is taken
    before = peak = own_memory(os.getpid())
    ended = threading.Event()
    took: list[float] = []

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.005):
            peak = max(peak, own_memory(os.getpid()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.process_time()
    while past.tokens < size:
        for i, at in enumerate(random.permutation(len(requests))):
            request = requests[at]
            if took and len(took) >= len(requests):
                request = request.copy()
                places = random.integers(0, REQUEST, REQUEST // NOISE)
                request[places] = pool[random.integers(0, len(pool), len(places))]
            started = time.thread_time()
            past.remember(request, 0)
            took.append(time.thread_time() - started)
            if i % 256 == 0:
                past.wait()
                if past.tokens >= size:
                    break
    past.wait()
    processor = time.process_time() - begun
    ended.set()
    watcher.join()
    tokens = len(took) * (REQUEST + 1)
    return Taken(
        sum(took) / tokens * 1e6,
        processor / tokens * 1e6,
        float(np.percentile(took, 99)) * 1e3,
        (peak - before) / tokens,
    )


def least_times(drafters: Mapping[str, Blend], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return microseconds of processor time of every draft by each; the least of ROUNDS, in
    turns."""
    rounds = [
        {n: draft_times(d, pairs, BUDGET, clock=time.thread_time_ns) for n, d in drafters.items()}
        for _ in range(ROUNDS)
    ]
    return {name: np.min([times[name] for times in rounds], axis=0) for name in drafters}


def _contexts() -> list[Pair]:
    """Return prompts of CONTEXT tokens, whole held-out files but for the last, and how that goes
    on."""
    text = np.concatenate(held_out_texts())
    begins = np.linspace(0, len(text) - CONTEXT - ANSWER, ANSWERS).astype(int).tolist()
    ends = [begin + CONTEXT for begin in begins]
    return [(text[b:e], text[e : e + ANSWER]) for b, e in zip(begins, ends, strict=True)]
