"""A verifier with a SpeCache for the loop that decodes every request, and what to say of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ngramkit.decode.specache.cache import SpeCacheRun
from ngramkit.decode.specache.options import SpeCache, require_fit
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.drafters.base import Drafter


@dataclass(frozen=True)
class CacheFacts:
    """Facts of a SpeCache's use for one text: sizes, and what was fetched."""

    options: SpeCache
    bytes: dict[str, int]  # see SpeCacheRun.bytes
    mass_held: list[float] | None  # per layer, where hits were measured
    top_k_found: list[float] | None

    @classmethod
    def of(cls, run: SpeCacheRun) -> CacheFacts:
        hits = run.hits if run.options.measure else None
        return cls(
            run.options,
            run.bytes,
            None if hits is None else hits.mass_held(),
            None if hits is None else hits.top_k_found(),
        )

    def __str__(self) -> str:
        held = {name: f"{size / 1e6:.1f} MB" for name, size in self.bytes.items()}
        what = f"specache, {self.options.bits} bits" if self.options.fetches else "low bits alone"
        return (
            f"cache: {what}, not lossless; {held['low_bit']} low-bit, {held['residual']} residual, "
            f"{held['fetched']} fetched, {held['mixed']} work space, {held['store']} in CPU memory"
        )

    def to_dict(self) -> dict[str, Any]:
        options = self.options
        return {
            "cache": "specache" if options.fetches else "low-bit",
            "bits": options.bits,
            "group": options.group,
            "top_k": options.top_k,
            "residual": options.residual,
            "speculative_token": options.speculative,
            "cache_bytes": self.bytes,
            "mass_held": self.mass_held,
            "top_k_found": self.top_k_found,
        }


@contextmanager
def specache_verifier(
    model: Any, options: SpeCache, *, room: int, drafter: Drafter | None = None
) -> Iterator[SpeCacheVerifier]:
    """Open a verifier for one request; the model attends as before afterwards. Decode with it and
    its `drafter`

    What is written is not what the model writes with its full cache. `drafter` guesses the
    speculative token where the options say so. Raises UsageError and InputError where options and
    model do not fit each other.
    """
    guesses = None if drafter is None or options.speculative == "model" else Guesses(drafter)
    require_fit(options, model.config.get_text_config())
    verifier = SpeCacheVerifier(model, options, room=room, guesses=guesses)
    try:
        yield verifier
    finally:
        verifier.close()
