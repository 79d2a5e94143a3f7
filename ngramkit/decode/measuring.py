"""Passes timed: every draft size behind every length of context, in turns."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from ngramkit.decode.base import Verifier
from ngramkit.decode.device import device_facts
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.profile import Pass, Profile
from ngramkit.decode.runner import Runner
from ngramkit.decode.static_pass import SIZES as STATIC_SIZES
from ngramkit.drafters.base import DraftTree
from ngramkit.progress import SILENT, Reporter

SIZES = {
    "eager": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96),
    # Both ends of what costs the same, so that nothing is interpolated across a step.
    "static": tuple(sorted({*STATIC_SIZES, *(size + 1 for size in STATIC_SIZES[:-1])})),
}
CONTEXTS = (32, 128, 512, 2048, 8192)
LEAST_ROUNDS = 4


def measure(
    model: LanguageModel,
    *,
    engine: str = "auto",
    sizes: Sequence[int] | None = None,
    contexts: Sequence[int] = CONTEXTS,
    seconds: float = 10.0,
    reporter: Reporter = SILENT,
) -> Profile:
    """The best of some rounds for every size and context, in turns, for about `seconds`.

    A pass is timed until the chosen tokens are on the host. Contexts of which LEAST_ROUNDS rounds
    would not fit into `seconds` are left out, but never the shortest; `reporter` is told. 0: the
    least rounds of everything.
    """
    engine = Runner.of(model.model, engine=engine, budget=1).engine
    sizes = SIZES[engine] if sizes is None else sizes
    runner = Runner(model.model, engine, "tree", max(sizes))
    longest = model.context or max(contexts) + max(sizes) + 1
    fitting = [context for context in contexts if context + max(sizes) < longest] or [1]
    reporter.stage("passes", seconds, "seconds")
    started = time.perf_counter()
    with torch.inference_mode():
        verifiers = _begun(runner, fitting, sizes, seconds, reporter)
        times: dict[tuple[int, int], list[float]] = {
            (context, size): [] for context in verifiers for size in sizes
        }
        before = min(time.perf_counter() - started, seconds)
        reporter.advance(before)
        rounds = 0
        while rounds < LEAST_ROUNDS or before < seconds:
            for (context, size), found in times.items():
                found.append(timed(verifiers[context], size))
            now = time.perf_counter() - started
            reporter.advance(min(now, seconds) - min(before, seconds))
            rounds, before = rounds + 1, now
    facts = device_facts(model.model)
    passes = [
        Pass(size, context, min(found), float(np.median(found)) / min(found) - 1)
        for (context, size), found in times.items()
    ]
    return Profile(model.name, facts["device"], facts["dtype"], engine, passes)


def _begun(
    runner: Runner,
    contexts: Sequence[int],
    sizes: Sequence[int],
    seconds: float,
    reporter: Reporter,
) -> dict[int, Verifier]:
    """A verifier per context that there is time for, after a round that does not count.

    Memory and kernels are new to the first round; it also says what the others will take.
    """
    begun: dict[int, Verifier] = {}
    started, rounds = time.perf_counter(), 0.0
    for context in contexts:
        before = time.perf_counter()
        expected = LEAST_ROUNDS * rounds
        if begun and seconds and before - started + 2 * expected > seconds:
            reporter.note(f"contexts from {context:,} tokens on are left out: too little time")
            break
        verifier = filled(runner, context)
        before = time.perf_counter()
        for size in sizes:
            timed(verifier, size)
        rounds += time.perf_counter() - before
        begun[context] = verifier
    return begun


def filled(runner: Runner, context: int) -> Verifier:
    vocabulary = int(runner.model.config.get_text_config().vocab_size)
    verifier = runner.open(context + 1)
    verifier.prefill(np.arange(context, dtype=np.int32) % vocabulary)
    return verifier


def timed(verifier: Verifier, size: int) -> float:
    nodes = np.arange(size, dtype=np.int32)
    tree = DraftTree(nodes, (nodes - 1) // 2, np.zeros(size, np.float32), np.zeros(size, np.uint8))
    started = time.perf_counter()
    verifier.verify(0, tree).argmax(-1).tolist()
    return time.perf_counter() - started
