"""Options of a SpeCache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ngramkit.basics.arguments import check_fields, check_type
from ngramkit.basics.errors import UsageError, hint_for_unknown, require_between

BITS = (1, 2)
CACHES = ("full", "low-bit", "specache")
PER_BYTE = 8  # a group's codes fill whole bytes


@dataclass(frozen=True)
class SpeCache:
    """An offloaded KV cache with speculative prefetching (arXiv:2503.16163, section 3).

    bits: 1 or 2 per code, one number or one per layer. group: how many numbers share a scale and a
    zero (along tokens for keys, along channels for values, as in KIVI, arXiv:2402.02750). top_k:
    pairs fetched per layer and KV head before each step, one number or one per layer; 0 reads only
    the low-bit copy. residual: how many of the newest tokens are never quantised; up to a group
    more wait until they fill one.

    speculative: source of the speculative token, "model" (the paper's second row of each pass) or
    "drafter" (its best guess, or the model's). measure: compare fetched pairs with full attention,
    which costs time.

    Raises UsageError for invalid values.
    """

    bits: int | Sequence[int] = 2
    group: int = 64
    top_k: int | Sequence[int] = 64
    residual: int = 64
    speculative: str = "model"
    measure: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("bits", "top_k"):
            given = getattr(self, name)
            plain = tuple(check_type(name, each, [int]) for each in _as_sequence(given))
            object.__setattr__(self, name, plain if isinstance(given, Iterable) else plain[0])
        for bits in _as_sequence(self.bits):
            if bits not in BITS:
                raise UsageError(f"bits must be 1 or 2, got {bits!r}", option="bits")
        require_between("residual", self.residual, 0)
        require_between("group", self.group, PER_BYTE)
        if self.group % PER_BYTE:
            raise UsageError(
                f"group must be a multiple of {PER_BYTE}, got {self.group}", option="group"
            )
        pairs = _as_sequence(self.top_k)
        if not pairs or min(pairs) < 0:
            raise UsageError(f"top_k must be 0 or more, got {self.top_k!r}", option="top_k")
        if self.speculative not in ("model", "drafter"):
            raise UsageError(
                f"speculative must be model or drafter, got {self.speculative!r}",
                option="speculative",
            )

    def of_layers(self, layers: int) -> list[tuple[int, int]]:
        """Return (bits, top_k) of each layer; raise UsageError for a list of another length."""
        columns = []
        for name, given in (("bits", self.bits), ("top_k", self.top_k)):
            values = list(given) if isinstance(given, list | tuple) else [given] * layers
            if len(values) != layers:
                raise UsageError(
                    f"{name} must be one number, or one for each of {layers} layers, got "
                    f"{len(values)}",
                    "Check the number of layers.",
                    option="bits" if name == "bits" else (),
                )
            columns.append(values)
        return list(zip(*columns, strict=True))

    def quantised(self, length: int) -> int:
        """Return how many of `length` tokens are in low bits: whole groups, oldest first."""
        return max(length - self.residual, 0) // self.group * self.group

    def without_fetching(self) -> SpeCache:
        """Return the options for only the low-bit copy."""
        return replace(self, top_k=0, measure=False, speculative="model")

    @property
    def fetches(self) -> bool:
        return max(_as_sequence(self.top_k)) > 0


def cache_of(name: str, options: SpeCache) -> SpeCache | None:
    """Return None for "full", `options` for "specache", these without fetching for "low-bit".

    Raises UsageError for another name.
    """
    if name not in CACHES:
        raise UsageError(
            f"unknown cache {name!r}", hint_for_unknown(str(name), CACHES), option="cache"
        )
    if name == "full":
        return None
    return options if name == "specache" else options.without_fetching()


def _as_sequence(value: int | Sequence[int]) -> Sequence[int]:
    return [*value] if isinstance(value, Iterable) and not isinstance(value, str) else [value]
