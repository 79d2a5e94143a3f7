"""Opening, inspecting and verifying an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import NgramkitError, require_between
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.terminal_text import REPLACEMENT, quoted
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.opening import verify_artifact
from ngramkit.formats.query import Occurrences, most_frequent, query_artifact, require_phrases
from ngramkit.formats.tokens import TokenStore
from ngramkit.remote.fetch import fetch, fetch_artifact
from ngramkit.remote.url_cache import using_cache
from ngramkit.remote.urls import UrlFolder, as_url

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer

SHOWN_TOKENS = 40  # shown tokens of a document
SHOWN_FOLLOWERS = 5  # shown continuations of a frequent phrase


def open_artifact(
    source: str | Path | Artifact,
    *,
    cache_dir: str | Path | None = None,
    cache_size: int | str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Artifact:
    """Open the artifact in a folder, at hf://USER/NAME[@REVISION] or at a storage URL.

    Files of URLs (s3://, gs://, hf://buckets/...) are cached in `cache_dir`, at most `cache_size`
    bytes (or "20G"). Arrays stay on disk. Raises ArtifactError for a missing or unknown artifact,
    and as `ngramkit.remote.fetch.fetch`.
    """
    with using_cache(cache_dir, cache_size):
        return fetch_artifact(source, reporter=reporter)


@dataclass(frozen=True)
class Continuation(Result):
    """Text that follows a phrase; `shown` is quoted, with \\xNN for incomplete characters."""

    text: str
    token_ids: list[int]
    count: int
    shown: str


@dataclass(frozen=True)
class Phrase(Result):
    """A phrase; `shown` as in Continuation."""

    phrase: str
    token_ids: list[int]
    matches: int
    continuations: Rows[Continuation]
    shown: str


@dataclass(frozen=True)
class Inspection(Result):
    """The content of an artifact: texts, or ids if `ids_only` has a reason."""

    artifact: Artifact
    most_frequent: Rows[Phrase]
    documents: list[str]
    query: Phrase | None = None
    ids_only: str | None = None


def inspect(
    source: str | Path | Artifact,
    query: str | None = None,
    *,
    model: str | Path | None = None,
    top: int = 10,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Inspection:
    """Return an artifact's most frequent phrases, or what follows the text `query`.

    `model`: whose tokenizer decodes (default: the artifact's own); `top`: number of phrases,
    continuations and documents. Raises as `open_artifact`, `load_tokenizer` and
    `require_phrases`.
    """
    from ngramkit.corpus.tokenizer import load_tokenizer_of  # not needed to open an artifact

    require_between("top", top, 1)
    check_types(str, query=query)
    artifact = open_artifact(source, reporter=reporter)
    if query is not None:
        phrases, own = require_phrases(artifact), load_tokenizer_of(artifact, model)
        answer = query_artifact(phrases, own.encode(query).tolist(), top)
        return Inspection(artifact, Rows([]), [], _phrase(own, answer))
    tokenizer, why = None, None
    try:
        tokenizer = load_tokenizer_of(artifact, model)
    except NgramkitError as error:
        if model is not None:
            raise
        why = str(error)
    frequent = [
        _phrase(tokenizer, answer) for answer in most_frequent(artifact, top, SHOWN_FOLLOWERS)
    ]
    store = islice(artifact.documents(), top) if isinstance(artifact, TokenStore) else ()
    documents = [_beginning(tokenizer, document[:SHOWN_TOKENS].tolist()) for document in store]
    return Inspection(artifact, Rows(frequent), documents, None, why)


def _phrase(tokenizer: TextTokenizer | None, answer: Occurrences) -> Phrase:
    continuations = [
        Continuation(text, tokens, count, shown)
        for tokens, count in answer.continuations
        for text, shown in [_texts(tokenizer, tokens, answer.phrase)]
    ]
    text, shown = _texts(tokenizer, answer.phrase)
    return Phrase(text, answer.phrase, answer.matches, Rows(continuations), shown)


def _texts(
    tokenizer: TextTokenizer | None, tokens: list[int], after: Sequence[int] = ()
) -> tuple[str, str]:
    """Return the text that `tokens` add to `after`, plain and quoted, or ids."""
    if tokenizer is None:
        ids = " ".join(map(str, tokens))
        return ids, ids
    before, whole = tokenizer.decode(after), tokenizer.decode([*after, *tokens])
    text = whole[len(before) :] if whole.startswith(before) else tokenizer.decode(tokens)
    raw = tokenizer.raw(tokens) if REPLACEMENT in before + whole else None
    return (text, repr(text)) if raw is None else (raw.decode("utf-8", "replace"), quoted(raw))


def _beginning(tokenizer: TextTokenizer | None, tokens: list[int]) -> str:
    """Return the text of `tokens`, up to the last whole character."""
    if tokenizer is None:
        return _texts(tokenizer, tokens)[0]
    return tokenizer.decode(tokens).rstrip(REPLACEMENT)


@dataclass(frozen=True)
class Verified(Result):
    path: Path
    checks: list[str]
    ok: bool = True


def verify(source: str | Path | Artifact, *, reporter: Reporter = NOTEBOOK_BARS) -> Verified:
    """Verify every checksum of an artifact and every invariant of its kind.

    At a URL, cached files are verified, and compared by size with those that the storage lists.
    Raises ArtifactError for the first violation.
    """
    path = source.path if isinstance(source, Artifact) else fetch(source, reporter=reporter).path
    url = None if isinstance(source, Artifact) else as_url(source)
    if url is not None and not url.lower().startswith("http"):  # web servers do not list files
        UrlFolder.at(url).require_listed(read_manifest(path).files)
    checks = []
    for check in verify_artifact(path):
        reporter.note(f"ok  {check}")
        checks.append(check)
    return Verified(path, checks)
