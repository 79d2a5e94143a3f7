"""An artifact as llama.cpp's n-gram cache: which n-grams go in, and what loading them will cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ngramkit.errors import UsageError
from ngramkit.exchange.llama_cpp import PAIR, RECORD, Written, write_cache
from ngramkit.exchange.lookup_rule import Selection
from ngramkit.exchange.ngrams import Ngrams, longest_order, ngrams_of
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.progress import SILENT, Reporter

STATIC_ORDERS = (2,)
DYNAMIC_ORDERS = (1, 2, 3, 4)
LOADED = 864e6 / 57  # bytes a second: what llama.cpp took to load a cache of 864 MB


def export_cache(
    artifact: Artifact,
    path: Path,
    *,
    dynamic: bool = False,
    min_count: int = 1,
    max_ngrams: int | None = None,
    memory: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Written:
    """Writes the static cache of a datastore or frozen table, or the dynamic one, of a model bigram
    too.

    A dynamic cache holds the orders that the artifact knows, up to 4. `min_count`, `max_ngrams`:
    see `lookup_rule.Selection`; the latter counts twice. `memory`: bytes for counting. Raises
    UsageError where the artifact knows nothing that llama.cpp would draft from, or `path` exists.
    """
    if isinstance(artifact, ModelBigram) and not dynamic:
        raise UsageError(
            f"{artifact.path} is a {artifact.kind}: llama.cpp's static cache drafts only what has "
            "half of the mass after two tokens, and a model that was shown one is hardly ever so "
            "sure where text goes on",
            "export a datastore or a frozen-table",
        )
    known = [n for n in DYNAMIC_ORDERS if n <= longest_order(artifact)]
    orders = known if dynamic else STATIC_ORDERS
    selection = Selection(dynamic=dynamic, min_count=min_count, max_ngrams=max_ngrams)

    def pieces() -> Iterable[Ngrams]:
        return chain(*(ngrams_of(artifact, n, memory) for n in orders))

    if isinstance(artifact, Datastore):
        _announce(artifact.manifest.counts["tokens"], selection, orders, reporter)
    if max_ngrams is not None:
        selection.look(pieces())
    wanted = _some(selection.of(pieces()), artifact, min_count)
    done = write_cache(path, wanted, force=force, inputs=[artifact.path])
    if done.bytes >= LOADED:
        reporter.note(f"llama.cpp reads these {done.bytes / 1e6:,.0f} MB {_load(done.bytes)}")
    return replace(done, left_out=selection.left_out)


def _announce(tokens: int, selection: Selection, orders: Sequence[int], reporter: Reporter) -> None:
    """What is counted, and how large it may become, where that is much."""
    most = sum(PAIR * tokens + RECORD * selection.most(tokens, order) for order in orders)
    reporter.note(
        f"counting n-grams of {', '.join(map(str, orders))} tokens in {tokens:,}: at most "
        f"{most / 1e6:,.0f} MB, which llama.cpp would read {_load(most)}"
    )


def _load(size: int) -> str:
    return f"in about {max(size / LOADED, 1):,.0f} s at each start (57 s for 864 MB were measured)"


def _some(pieces: Iterable[Ngrams], artifact: Artifact, least: int) -> Iterator[Ngrams]:
    """The same pieces; raises UsageError where there is nothing in them."""
    empty = True
    for piece in pieces:
        empty = empty and not len(piece.rows)
        yield piece
    if empty:
        raise UsageError(
            f"{artifact.path} holds no n-gram that llama.cpp would draft from"
            + (f" and that was seen {least:,} times" if least > 1 else ""),
            "lower min_count" if least > 1 else "export a datastore of more text",
            option="min_count",
        )
