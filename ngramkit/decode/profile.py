"""What a pass costs on this machine, by the size of the draft and of the context; on disk.

A profile is a JSON file in the user's cache folder, named after the model and the first 8 hex
digits of a sha256 over what decides the times: the model's config, the device, the dtype, the
number of threads and the engine. Knows nothing of drafters.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ngramkit.caches import cache_folder
from ngramkit.decode.base import Verifier
from ngramkit.decode.device import device_facts
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.static_pass import SIZES as STATIC_SIZES
from ngramkit.decode.verifiers import engine_of, open_verifier
from ngramkit.drafters.base import DraftTree
from ngramkit.errors import InputError
from ngramkit.formats.json_text import read_json
from ngramkit.formats.locks import locked
from ngramkit.formats.writer import write_text
from ngramkit.progress import SILENT, Reporter

SIZES = {
    "eager": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96),
    # Both ends of what costs the same, so that nothing is interpolated across a step.
    "static": tuple(sorted({*STATIC_SIZES, *(size + 1 for size in STATIC_SIZES[:-1])})),
}
CONTEXTS = (32, 128, 512, 2048, 8192)
LEAST_ROUNDS = 4
NOISY = 0.25  # the spread from which on figures are not to be trusted


@dataclass(frozen=True)
class Pass:
    """`tree_size` draft nodes verified behind `context_length` tokens."""

    tree_size: int
    context_length: int
    seconds: float
    spread: float = 0.0  # how much longer the median of the rounds took than the best, as a share


@dataclass(frozen=True)
class Profile:
    model: str
    device: str
    dtype: str
    engine: str
    passes: list[Pass]

    @property
    def sizes(self) -> list[int]:
        return sorted({each.tree_size for each in self.passes})

    @property
    def contexts(self) -> list[int]:
        return sorted({each.context_length for each in self.passes})

    @property
    def noise(self) -> float:
        """The median pass's spread. Above NOISY the machine had other things to do."""
        return float(np.median([each.spread for each in self.passes]))

    def measured(self) -> npt.NDArray[np.float64]:
        """Seconds as they were measured, float64[contexts, sizes]."""
        found = {(each.context_length, each.tree_size): each.seconds for each in self.passes}
        return np.array(
            [[found[context, size] for size in self.sizes] for context in self.contexts]
        )

    def table(self) -> npt.NDArray[np.float64]:
        """Seconds to decide by, float64[contexts, sizes].

        Larger trees and longer contexts never cost less: where they were measured so, the other
        pass was disturbed.
        """
        turned = self.measured()[::-1, ::-1]
        least = np.minimum.accumulate(np.minimum.accumulate(turned, axis=1), axis=0)
        return least[::-1, ::-1]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(path.name + ".lock")):  # two may calibrate at a time
            write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Profile:
        """Raises InputError where that is no profile."""
        try:
            body = read_json(path, error=InputError, hint="run ngramkit calibrate")
            passes = [Pass(**each) for each in body.pop("passes")]
            profile = Profile(passes=passes, **body)
            profile.table()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no profile: {error}", "run ngramkit calibrate") from error
        return profile


def profile_path(model: LanguageModel, engine: str = "auto") -> Path:
    """Where the model's profile for this engine is, or would be."""
    config = model.model.config.to_dict()
    decides = {
        "config": {
            k: v for k, v in config.items() if k not in ("_name_or_path", "transformers_version")
        },
        "engine": engine_of(model.model, engine),
        "attention": model.model.config._attn_implementation,
        **device_facts(model),
    }
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9.]+", "-", model.name).strip("-")
    return cache_folder("profiles") / f"{name}-{digest[:8]}.json"


def find_profile(model: LanguageModel, engine: str = "auto") -> Profile | None:
    path = profile_path(model, engine)
    return Profile.load(path) if path.exists() else None


def profile_of(model: Any, engine: str = "auto") -> Profile | None:
    """A transformers model's, whatever name it was calibrated under."""
    unnamed = profile_path(LanguageModel("", model, None), engine)  # type: ignore[arg-type]
    found = sorted(unnamed.parent.glob(f"*{unnamed.name}"))
    return Profile.load(found[0]) if found else None


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
    engine = engine_of(model.model, engine)
    sizes = SIZES[engine] if sizes is None else sizes
    longest = model.context or max(contexts) + max(sizes) + 1
    fitting = [context for context in contexts if context + max(sizes) < longest] or [1]
    reporter.stage("passes", seconds, "seconds")
    started = time.perf_counter()
    with torch.inference_mode():
        verifiers = _begun(model, engine, fitting, sizes, seconds, reporter)
        times: dict[tuple[int, int], list[float]] = {
            (context, size): [] for context in verifiers for size in sizes
        }
        before = min(time.perf_counter() - started, seconds)
        reporter.advance(before)
        rounds = 0
        while rounds < LEAST_ROUNDS or before < seconds:
            for (context, size), found in times.items():
                found.append(_timed(verifiers[context], size))
            now = time.perf_counter() - started
            reporter.advance(min(now, seconds) - min(before, seconds))
            rounds, before = rounds + 1, now
    facts = device_facts(model)
    passes = [
        Pass(size, context, min(found), float(np.median(found)) / min(found) - 1)
        for (context, size), found in times.items()
    ]
    return Profile(model.name, facts["device"], facts["dtype"], engine, passes)


def _begun(
    model: LanguageModel,
    engine: str,
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
        verifier = _filled(model, engine, context, max(sizes))
        before = time.perf_counter()
        for size in sizes:
            _timed(verifier, size)
        rounds += time.perf_counter() - before
        begun[context] = verifier
    return begun


def _filled(model: LanguageModel, engine: str, context: int, most: int) -> Verifier:
    verifier = open_verifier(model.model, "tree", engine, room=context + most + 1)
    verifier.prefill(np.arange(context, dtype=np.int32) % _vocabulary(model))
    return verifier


def _vocabulary(model: LanguageModel) -> int:
    return int(model.model.config.get_text_config().vocab_size)


def _timed(verifier: Verifier, size: int) -> float:
    nodes = np.arange(size, dtype=np.int32)
    tree = DraftTree(nodes, (nodes - 1) // 2, np.zeros(size, np.float32), np.zeros(size, np.uint8))
    started = time.perf_counter()
    verifier.verify(0, tree).argmax(-1).tolist()
    return time.perf_counter() - started
