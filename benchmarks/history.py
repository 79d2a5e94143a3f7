"""The costs of a history that grows: taking requests in, memory, opening it again, drafts from it.

Requests are pieces of the standard library, in any order; where more are wanted than there are,
they come again with one token in 16 replaced by another. Drafts are made after 8,000 tokens of
held-out files. NGRAMKIT_BENCH_TOKENS, as "1 4 16", sets how many million tokens are remembered.

Times of taking in and of drafts are the processor's; memory is what Linux calls RssAnon. The
reference of taking in and of opening is sorting all of it, which was done every 32,768 tokens; that
of drafts are those without past requests.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import Row, timed
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


class Taken(NamedTuple):
    """What it took to remember requests."""

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
        pool, tokenizer = _pool(Path(name))
        contexts = _contexts()
        take_in(PastRequests(tokenizer=tokenizer), pool, MILLION // 4)  # compiles
        draft_times(Blend(tokenizer=tokenizer), contexts[:2])
        for millions in os.environ.get("NGRAMKIT_BENCH_TOKENS", SIZES).split():
            size, what = int(millions) * MILLION, f"{millions} M tokens of past requests"
            past = PastRequests(tokenizer=tokenizer, capacity=2 * size)
            taken = take_in(past, pool, size)
            stream = np.concatenate([shard.tokens for part in past.shards for shard in part])
            sort = timed(lambda: sort_requests(stream, tokenizer.vocabulary))  # noqa: B023
            yield Row(
                f"{what}: taking in, a token",
                f"{taken.foreground:.2f} us (p99 of a request {taken.late:.1f} ms), with all "
                f"threads {taken.processor:.2f} us; {taken.memory:.0f} bytes at the peak",
                f"{sort / EVERY * 1e6:.1f} us, sorting all every {EVERY:,} tokens",
                sort / EVERY * 1e6 / taken.processor,
                "<= 1 us, 1 ms; <= 20 bytes",
            )
            ours, late = draft_times(Blend(tokenizer=tokenizer, past=past), contexts)
            plain, plain_late = draft_times(Blend(tokenizer=tokenizer), contexts)
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


def take_in(past: PastRequests, pool: TokenArray, size: int) -> Taken:
    """Remember requests of `size` tokens."""
    random = np.random.default_rng(0)
    requests = np.split(pool[: len(pool) // REQUEST * REQUEST], len(pool) // REQUEST)
    before = peak = own_memory(os.getpid())
    ended, took = threading.Event(), []

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


def draft_times(
    drafter: Blend, contexts: list[tuple[TokenArray, TokenArray]]
) -> tuple[float, float]:
    """Return microseconds of processor time of a draft, p50 and p99."""
    took = []
    for prompt, answer in contexts:
        drafter.start(prompt)
        for i in range(len(answer)):
            started = time.thread_time_ns()
            drafter.draft(BUDGET)
            took.append((time.thread_time_ns() - started) / 1e3)
            drafter.accept(answer[i : i + 1])
    middle, late = np.percentile(took, [50, 99])
    return float(middle), float(late)


def _pool(folder: Path) -> tuple[TokenArray, Any]:
    """Return the standard library's tokens, and their tokenizer's record."""
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    store = tokenize(open_corpus("python-stdlib"), "demo", folder / "tokens")
    tokens = np.concatenate([np.asarray(shard.tokens) for shard in store.shards])
    return tokens.astype(np.int32), store.tokenizer


def _contexts() -> list[tuple[TokenArray, TokenArray]]:
    """Return prompts of CONTEXT tokens, whole held-out files but for the last, and how that goes
    on."""
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer

    tokenizer = load_tokenizer("demo")
    documents = open_corpus("python-stdlib", split="held-out").documents()
    text = np.concatenate([tokenizer.encode(document.text) for document in documents])
    begins = np.linspace(0, len(text) - CONTEXT - ANSWER, ANSWERS).astype(int)
    ends = begins + CONTEXT
    pieces = zip(begins.tolist(), ends.tolist(), strict=True)
    return [(text[begin:end], text[end : end + ANSWER]) for begin, end in pieces]
