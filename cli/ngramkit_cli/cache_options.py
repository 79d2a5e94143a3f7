"""Options of the cache: in full, or a SpeCache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit.errors import UsageError

if TYPE_CHECKING:
    from ngramkit.decode.specache.options import SpeCache

HELP = (
    "full; or specache: all keys and values in CPU memory, a 1- or 2-bit copy on the device, and "
    "what the next token needs fetched ahead (arXiv:2503.16163); low-bit: without fetching. "
    "The last two change what is written."
)


CacheName = Annotated[str, typer.Option(metavar="full|low-bit|specache", help=HELP)]


@dataclass(frozen=True)
class KvOptions:
    """Options of a SpeCache. A field is an option."""

    kv_bits: Annotated[
        str, typer.Option(metavar="1|2", help="Of a code; or one per layer: 2,2,1,1,...")
    ] = "2"
    kv_group: Annotated[
        int, typer.Option(help="Numbers that share a scale; must divide the head's channels.")
    ] = 64
    kv_top_k: Annotated[
        str, typer.Option(metavar="N", help="Pairs fetched per layer and head; or one per layer.")
    ] = "64"
    kv_residual: Annotated[int, typer.Option(help="Newest tokens that stay as they are.")] = 64
    speculative_token: Annotated[
        str,
        typer.Option(
            metavar="model|drafter", help="Whose guess at the next token says what to fetch."
        ),
    ] = "model"

    def named(self, cache: str) -> SpeCache | None:
        """Return the cache of a name, None for the full one. Raises UsageError for another name."""
        from ngramkit.decode.specache.options import cache_of

        return cache_of(cache, self.options())

    def options(self, *, measure: bool = False) -> SpeCache:
        """Return the SpeCache. Raises UsageError for numbers that make no sense."""
        from ngramkit.decode.specache.options import SpeCache

        return SpeCache(
            bits=_one_or_more("kv_bits", self.kv_bits),
            group=self.kv_group,
            top_k=_one_or_more("kv_top_k", self.kv_top_k),
            residual=self.kv_residual,
            speculative=self.speculative_token,
            measure=measure,
        )


def _one_or_more(name: str, text: str) -> int | tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise UsageError(f"{name} {text!r} is no number, and no list of them", option=name)
    numbers = tuple(int(part) for part in parts)
    return numbers[0] if len(numbers) == 1 else numbers
