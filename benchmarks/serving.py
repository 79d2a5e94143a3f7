"""Drafts for 1 to 256 requests at once: memory and start of a request, time of a step.

Each request is a recorded turn. Every step appends two tokens of its answer and asks for a tree.
The reference is a Blend for each request, one after another; both remember samples of the datastore
from earlier rounds, as a server does from earlier requests. Memory and start are for a vocabulary
of 152,000 ids; trees come from the datastore of benchmarks._data.

`propose()` is vLLM's adapter. It drafts chains for rows that each write a recorded answer, accept
the correct part of the draft, and are followed by the next request. The Blends draft trees of as
many nodes after the same tokens, alternating with it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row
from benchmarks._data import contexts, datastore

VOCABULARY, PROMPT = 152_000, 500
REQUESTS = (1, 16, 64, 256)
ALLOWED = {(64, 16): 6.0, (64, 64): 15.0}  # requests, nodes -> milliseconds on two cores
STEPS, WRITTEN, ROUNDS, WARM = 12, 2, 3, 2
ROWS, CALLS, BEGUN = 64, 300, 20  # of propose()


def rows() -> Iterator[Row]:
    yield from _one_request()
    with tempfile.TemporaryDirectory() as name:
        store = datastore(Path(name))
        turns = [pair for pair in contexts() if len(pair[1]) > STEPS * WRITTEN]
        for requests in REQUESTS:
            for nodes in (16, 64):
                yield _step(store, turns, requests, nodes)
        yield _propose(store, contexts())


def _one_request() -> Iterator[Row]:
    from ngramkit.drafters.blend import Blend
    from ngramkit.engines.blend_source import BlendSource
    from ngramkit.formats.tokenizer_record import TokenizerRecord

    record = TokenizerRecord("made up", VOCABULARY, "made-up")
    prompt = np.random.default_rng(0).zipf(1.3, PROMPT).clip(0, VOCABULARY - 1).astype(np.int32)
    source = BlendSource(Blend(tokenizer=record))
    workspace = source.workspace()
    held = 0
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(20):
        started = time.perf_counter()
        request = workspace.request(prompt)
        ours.append(time.perf_counter() - started)
        held = request.bytes
        started = time.perf_counter()
        alone = Blend(tokenizer=record)
        alone.start(prompt)
        theirs.append(time.perf_counter() - started)
    whole, allowed = _bytes(alone.workspace.sources.parts), 1e6 + 16 * PROMPT
    yield Row(
        f"memory of a request of {PROMPT} tokens, {VOCABULARY:,} ids",
        f"{held / 1e6:.2f} MB",
        f"a Blend of its own {whole / 1e6:.2f} MB, without a datastore's memo",
        whole / held,
        f"<= {allowed / 1e6:.2f} MB",
    )
    yield Row(
        f"start of a request of {PROMPT} tokens, {VOCABULARY:,} ids",
        f"{1e3 * min(ours):.2f} ms",
        f"a Blend of its own {1e3 * min(theirs):.1f} ms",
        min(theirs) / min(ours),
        f"<= {0.3 + 2e-3 * PROMPT:.1f} ms",
    )


def _bytes(parts: Any) -> int:
    return sum(p.nbytes if isinstance(p, np.ndarray) else _bytes(p) for p in parts)


def _step(datastore: Any, turns: Sequence[Any], requests: int, nodes: int) -> Row:
    """Time the median step, the least of ROUNDS, without the first steps, which begin the requests.

    Also what the requests hold at their end, without what they share."""
    from ngramkit.drafters.blend import Blend
    from ngramkit.engines.batch import BatchDrafter
    from ngramkit.engines.blend_source import BlendSource
    from ngramkit.engines.config import DraftConfig

    # More requests than turns: the same ones again, each behind a token of its own.
    chosen = [(turns[i % len(turns)], i // len(turns)) for i in range(requests)]
    prompts = [np.append(np.full(own, 1, np.int32), prompt) for (prompt, _), own in chosen]
    answers = [answer for (_, answer), _ in chosen]
    drafter = BatchDrafter(BlendSource(Blend([datastore])), DraftConfig(sessions=requests))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        drafter.sessions.clear()
        ours.append([_batch(drafter, prompts, answers, step, nodes) for step in range(STEPS)])
        alone = [Blend([datastore]) for _ in prompts]
        for each, prompt in zip(alone, prompts, strict=True):
            each.start(prompt)
        theirs.append([_alone(alone, answers, step, nodes) for step in range(STEPS)])
    mine, other = (1e3 * float(np.median(np.min(t, axis=0)[WARM:])) for t in (ours, theirs))
    held = sum(session.request.bytes for session in drafter.sessions.latest)
    # Every Blend starts with the samples of the datastore.
    own: list[Any] = [each.workspace.sources.parts for each in alone]
    whole = sum(_bytes(each._replace(corpus=())) for each in own)
    allowed = ALLOWED.get((requests, nodes))
    return Row(
        f"a step of {requests} requests x {nodes} nodes",
        f"{mine:.2f} ms ({min(os.cpu_count() or 1, 4)} threads), {held / 1e6:.1f} MB",
        f"{other:.2f} ms, {whole / 1e6:.1f} MB, a Blend each, one after another",
        other / mine,
        f"<= {allowed:g} ms" if allowed else "no slower" if requests > 1 else "about 1",
    )


def _batch(drafter: Any, prompts: Any, answers: Any, step: int, nodes: int) -> float:
    pairs = zip(prompts, answers, strict=True)
    contexts = [np.concatenate([prompt, answer[: step * WRITTEN]]) for prompt, answer in pairs]
    started = time.perf_counter()
    drafter.draft_batch(contexts, [nodes] * len(contexts))
    return time.perf_counter() - started


def _alone(alone: Any, answers: Any, step: int, nodes: int) -> float:
    started = time.perf_counter()
    for drafter, answer in zip(alone, answers, strict=True):
        if step:
            drafter.accept(answer[(step - 1) * WRITTEN : step * WRITTEN])
        drafter.draft(nodes)
    return time.perf_counter() - started


def _propose(datastore: Any, turns: Sequence[Any]) -> Row:
    """Time CALLS of propose(), without those that begin the first requests."""
    from benchmarks.servers.vllm_draft_time import CHAIN, V1, Answers, options
    from ngramkit.drafters.blend import Blend

    drafts = {"datastores": [str(datastore.path)]}
    adapter: Any = V1(options(datastore.tokenizer.vocabulary, drafts), _wall_and_processor)
    adapter.begin(ROWS)
    alone, answers = [Blend([datastore]) for _ in range(ROWS)], Answers(turns, ROWS)
    chains: list[list[int]] = [[]] * ROWS  # drafted last
    ours, theirs = [], []
    for _ in range(CALLS):
        written, begun = answers.step(chains)
        for row, prompt in begun.items():
            alone[row].start(prompt)
        seconds, chains = adapter.draft(written, begun)
        ours.append(seconds)
        started = time.perf_counter()
        for drafter, new in zip(alone, written, strict=True):
            drafter.accept(new)
            drafter.draft(CHAIN)
        theirs.append(time.perf_counter() - started)
    wall, processor = 1e3 * np.array(ours[BEGUN:]).T
    median, late = np.quantile(wall, (0.5, 0.99))
    other = 1e3 * float(np.median(theirs[BEGUN:]))
    return Row(
        f"propose() for {ROWS} rows, chains of {CHAIN}",
        f"{median:.2f} ms, p99 {late:.2f}; {processor.mean():.2f} of processor time",
        f"{other:.2f} ms, a Blend each, trees of {CHAIN} nodes, one after another",
        other / median,
        "<= 2 ms, p99 < 5",
    )


def _wall_and_processor() -> Any:
    return np.array([time.perf_counter(), time.process_time()])
