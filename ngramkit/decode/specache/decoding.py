"""A request decoded with a SpeCache, by the same loop as any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ngramkit.decode.base import Sink
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.result import Decoded
from ngramkit.decode.specache.cache import SpeCacheRun
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.none import NoDraft
from ngramkit.errors import UsageError


@dataclass(frozen=True)
class CacheFacts:
    """What a SpeCache held and fetched while it wrote one text."""

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


def require_no_drafts(options: SpeCache, drafter: object) -> None:
    """Raises UsageError where a drafter is given that nothing would be asked of."""
    if drafter is not None and options.speculative != "drafter":
        raise UsageError(
            "drafts are not verified with a SpeCache; a drafter may only guess the next token",
            "leave out the drafter, or add speculative_token=drafter",
            option=("drafter", "speculative_token"),
        )


def decode_with(
    model: Any,
    options: SpeCache,
    request: Request,
    drafter: Drafter | None = None,
    sink: Sink | None = None,
) -> tuple[Decoded, CacheFacts]:
    """What a transformers model writes with a SpeCache: not what it writes with its full cache.

    `drafter` guesses the speculative token where the options say so. Raises UsageError and
    InputError where options and model do not fit each other.
    """
    require_no_drafts(options, drafter)
    guesses = None if drafter is None else Guesses(drafter)
    room = len(request.prompt) + request.longest
    verifier = SpeCacheVerifier(model, options, room=room, guesses=guesses)
    try:
        run = decode(verifier, guesses or NoDraft(), replace(request, budget=1, auto=None), sink)
    finally:
        verifier.close()
    return replace(run, lossless=False), CacheFacts.of(verifier.run)
