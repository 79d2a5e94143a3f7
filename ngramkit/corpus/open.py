"""`open_corpus`, for names, files, the Hub, mixtures and texts in memory."""

from __future__ import annotations

import difflib
import glob
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.arguments import check_fields
from ngramkit.basics.errors import (
    InputError,
    UsageError,
    given_paths,
    hint_for_unknown,
    require_between,
    require_texts,
)
from ngramkit.basics.machine import expand_home, parse_size
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.terminal_text import counted
from ngramkit.corpus.agent_sessions.read import PRIVACY_WARNING
from ngramkit.corpus.agent_sessions.source import SessionSource, sessions_of
from ngramkit.corpus.decontamination import EvaluationTexts, is_evaluation, read_evaluation_texts
from ngramkit.corpus.deduplication import Deduplicated, deduplicate, require_method
from ngramkit.corpus.document import Corpus, DocumentSource
from ngramkit.corpus.files import PLAIN, FileSource, has_readable_suffix, holds_mark, reader_suffix
from ngramkit.corpus.hub import hub_source
from ngramkit.corpus.local_files import LocalSource, local_source
from ngramkit.corpus.mixing import Mixture, Weighted
from ngramkit.corpus.remote_files import remote_source
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.corpus.selection import Selection, read_exclusions, require_weight
from ngramkit.corpus.stdlib import DEFAULT_SPLIT, stdlib_split
from ngramkit.corpus.texts import ANY_SIZE, TEXTS_NAME as TEXTS, Spool, Texts, read_texts
from ngramkit.corpus.unpacking import MAX_DOCUMENT
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.remote.fetch import is_hub_name
from ngramkit.remote.urls import as_path, as_url, has_magic, is_url, plain_path


@dataclass(frozen=True)
class NamedCorpus(Result):
    """A corpus with a short name; `hub` is its dataset id, if any."""

    name: str
    summary: str
    hub: str | None = None
    column: str | None = None
    split: str = "train"
    languages: str | None = None  # template of a language's data_dir, with {language}
    language: str | None = None  # the default
    gated: bool = False
    turns: bool = False


STDLIB = "python-stdlib"

NAMED = {
    corpus.name: corpus
    for corpus in (
        NamedCorpus(
            STDLIB,
            "the running interpreter's standard library; splits train (nine tenths of the files, "
            "the default), held-out, all",
        ),
        NamedCorpus(
            "openwebtext",
            "web pages that Reddit linked to, 8 million documents",
            hub="Skylion007/openwebtext",
            column="text",
        ),
        NamedCorpus(
            "the-stack",
            "permissively licensed source files; language chooses (default python)",
            hub="bigcode/the-stack-dedup",
            column="content",
            languages="data/{language}",
            language="python",
            gated=True,
        ),
        NamedCorpus(
            "ultrachat",
            "1.5 million generated conversations; each turn is a document unless join_turns",
            hub="stingning/ultrachat",
            column="data",
            turns=True,
        ),
        NamedCorpus(
            "ultrachat-200k",
            "UltraChat, filtered to 200,000 conversations; splits train_sft, test_sft, ...",
            hub="HuggingFaceH4/ultrachat_200k",
            column="messages",
            split="train_sft",
            turns=True,
        ),
    )
}


def corpora() -> Rows[NamedCorpus]:
    """Return the corpora with short names. See `open_corpus` for other corpora."""
    return Rows(NAMED.values())


HUB = "hf:"
# A corpus of a mixture: open or by name, optionally with its weight.
Part = Corpus | str | Path | tuple[Corpus | str | Path, float]
AnyCorpus = Corpus | Mixture | Deduplicated  # what builders read
# Input of `open_corpus`: a corpus by name or file, several, or texts in memory.
Openable = str | Path | Sequence[Part] | Texts
INSPECTED_ENTRIES = 100  # entries of a list, to decide whether it holds texts or names
MISSPELT_NAME_RATIO = 0.8  # similarity from which a word counts as a misspelt corpus name


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The options of `open_corpus`."""

    split: str | None = None
    column: str | None = None
    revision: str | None = None
    language: str | None = None
    join_turns: bool = False
    name: str | None = None
    sample: float = 1.0
    seed: int = 0
    limit: int | None = None
    licenses: Sequence[str] = ()
    exclude: Path | str | Sequence[Path | str] | None = None
    dedup: str | None = None
    max_document: int | str | None = None
    skip_bad: bool = False
    private: bool = False
    reading: ReaderOptions = field(init=False, default=ReaderOptions(), repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        require_texts("licenses", self.licenses)
        most = self.max_document
        most = parse_size(most) if isinstance(most, str) else MAX_DOCUMENT if most is None else most
        require_between("max_document", most, 1, 1 << 40)
        reading = ReaderOptions(self.column, self.join_turns, self.skip_bad, most)
        object.__setattr__(self, "reading", reading)

    def given(self, *names: str) -> list[str]:
        """Return the options that are not the default, of `names` or of all."""
        defaults = {each.name: each.default for each in fields(self) if each.init}
        return [
            name for name in names or defaults if getattr(self, name) not in (defaults[name], [])
        ]

    def refuse(self, corpus: str, *names: str, hint: str = "Leave it out.") -> None:
        refuse_options(self.given(*names), f" for {corpus}", hint)


def refuse_options(given: Iterable[str], why: str, hint: str, *others: str) -> None:
    for name in given:
        raise UsageError(f"cannot use {name}{why}", hint, option=(name, *others))


def refuse_text_options(given: Iterable[str]) -> None:
    """Raise UsageError for an option that only texts have, if tokens are the source."""
    refuse_options(given, " with tokens: it is for text", "Leave out one of them.", "tokens")


def refuse_late_options(given: Iterable[str]) -> None:
    """Raise UsageError for an option of a corpus that is open."""
    refuse_options(given, ": the corpus is open already", "Give it to open_corpus.")


def open_corpus(
    corpus: Openable,
    *,
    split: str | None = None,
    column: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    join_turns: bool = False,
    name: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Path | str | Sequence[Path | str] | None = None,
    dedup: str | None = None,
    max_document: int | str | None = None,
    skip_bad: bool = False,
    private: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
) -> AnyCorpus:
    """Open a corpus: a named one, `hf:ID[:CONFIG]`, files, a mixture, or texts in memory.

    Files are a path, a folder, a glob, or a URL of these (s3://, gs://, hf://datasets/...,
    https://, file://). A list of corpora is a mixture: `["a", ("b", 0.3)]` is all of a, then 30 %
    of b. Texts are an iterable of strings or dicts, a Series or DataFrame (pandas, polars), an
    Arrow table, or a dataset of `datasets`. A list of strings is a mixture if one names a corpus or
    a file; `iter(strings)` is always texts.

    Args:
        split, revision, language: Only for a single corpus.
        column: Column of the text (a.b is b inside a); by default text, content, a conversation, or
            the only column of text.
        join_turns: Make each conversation one document.
        name: Name of texts in memory.
        sample: Share of documents to keep, in (0, 1], by a hash of (`seed`, index).
        limit: Most documents to keep.
        licenses: Keep documents whose licences are all listed.
        exclude: Files of repository names and document digests, or evaluation sets (.jsonl) whose
            texts no document may contain.
        dedup: Drop duplicates: "exact" or "minhash".
        max_document: Most bytes of a document ("64M", the default); a longer one is an error.
        skip_bad: Skip and count records that do not parse or have no text, instead of raising.
        private: Mark what is built from the text as private; see `push`.

    Raises UsageError if an option does not fit the corpus, InputError for an unknown corpus, split
    or column, NetworkError if the Hub refuses.
    """
    options = CorpusOptions(
        split=split, column=column, revision=revision, language=language, join_turns=join_turns,
        name=name, sample=sample, seed=seed, limit=limit, licenses=licenses, exclude=exclude,
        dedup=dedup, max_document=max_document, skip_bad=skip_bad, private=private,
    )  # fmt: skip
    return open_with(corpus, options, reporter)


def open_with(corpus: Openable, options: CorpusOptions, reporter: Reporter) -> AnyCorpus:
    exclude, dedup = options.exclude, options.dedup
    require_method(dedup)
    files = [] if exclude is None else given_paths("exclude", exclude)
    exclusions = [read_exclusions(file) for file in files if not is_evaluation(file)]
    evaluated = [file for file in files if is_evaluation(file)]
    evaluation = read_evaluation_texts(evaluated, reporter) if evaluated else None
    selection = Selection(
        sample=options.sample,
        seed=options.seed,
        limit=options.limit,
        licenses=frozenset(licence.strip().lower() for licence in options.licenses),
        excluded=frozenset().union(*exclusions),
    )
    opened: Corpus | Mixture
    if isinstance(corpus, str | Path):
        opened = _open_named(as_url(corpus) or str(corpus), selection, options, reporter)
    elif isinstance(corpus, list | tuple) and _is_mixture(corpus):
        opened = _open_mixture(corpus, selection, options, reporter)
    else:
        opened = _open_texts(corpus, selection, evaluation, options, reporter)
    if dedup is None and evaluation is None:
        return opened
    return deduplicate(opened, dedup, evaluation)


def _open_texts(
    texts: Any,
    selection: Selection,
    evaluation: EvaluationTexts | None,
    options: CorpusOptions,
    reporter: Reporter,
) -> Corpus:
    """Spool texts, up to the limit of documents, and open them."""
    name = TEXTS if options.name is None else options.name
    if name in NAMED or not name.strip() or name.startswith(HUB):
        raise UsageError(
            f"name must not be empty or another corpus's, got {name!r}",
            "Choose another name.",
            option="name",
        )
    options.refuse(name, "split", "revision", "language")
    # They are in memory already, so a bound on a document is pointless.
    rows = read_texts(texts, name, replace(options.reading, max_document=ANY_SIZE))
    with tempfile.TemporaryFile() as file:
        spool = Spool(name, rows, file)
        whole = Corpus(spool, selection, max_document=ANY_SIZE)
        read: AnyCorpus = whole
        if selection.limit is not None and (options.dedup is not None or evaluation is not None):
            read = deduplicate(whole, options.dedup, evaluation)  # the limit counts what is kept
        reporter.stage(f"reading {name}", selection.limit, "documents")
        for _ in read.documents():
            reporter.advance(1)
        source = spool.finish(skip_bad=options.skip_bad)
    if not source.parts:
        hint = "Give a new generator if this one was read before."
        raise InputError(f"cannot read {name}: it has no text", hint, option="corpus")
    return Corpus(source, selection, options.reading.max_document, options.private)


def _is_mixture(parts: Sequence[Any]) -> bool:
    return not parts or any(
        isinstance(part, Corpus | Mixture | Deduplicated | Path | tuple)
        or (isinstance(part, str) and _looks_like_a_name(part))
        for part in parts[:INSPECTED_ENTRIES]
    )


def _looks_like_a_name(text: str) -> bool:
    # pathlib would take "" for the working folder.
    if os.path.exists(os.path.expanduser(text)):  # noqa: PTH110, PTH111
        return True
    if re.search(r"\s", text):
        return False
    near = difflib.get_close_matches(text, NAMED, n=1, cutoff=MISSPELT_NAME_RATIO)
    pattern = "/" in text and glob.has_magic(text)
    elsewhere = text.startswith(HUB) or is_url(text)
    return bool(near) or elsewhere or has_readable_suffix(Path(text)) or pattern


def _open_mixture(
    parts: Sequence[Part], selection: Selection, options: CorpusOptions, reporter: Reporter
) -> Mixture:
    hint = "Use a recipe with a [[corpus]] for each; in Python, open each first."
    options.refuse("a mixture", "split", "column", "revision", "language", "name", hint=hint)
    if not parts:
        raise UsageError(
            "corpus must name at least one corpus, got none", "Name one.", option="corpus"
        )
    weighted = [_parse_weight(part) for part in parts]
    if any(isinstance(corpus, Corpus) for corpus, _ in weighted):
        late = options.given("join_turns", "skip_bad", "sample", "seed", "licenses")
        if options.reading.max_document != MAX_DOCUMENT:
            late.append("max_document")
        if selection.excluded:
            late.append("exclude")
        refuse_late_options(late)
    corpora = []
    for part, weight in weighted:
        corpus = part
        if not isinstance(corpus, Corpus):
            corpus = _open_named(corpus, replace(selection, limit=None), options, reporter)
        private = corpus.private or options.private
        selected = replace(corpus.selection, weight=weight)
        corpora.append(replace(corpus, selection=selected, private=private))
    return Mixture(tuple(corpora), selection.limit)


def _parse_weight(part: Any) -> Weighted:
    corpus, weight = part if isinstance(part, tuple) and len(part) == 2 else (part, 1.0)
    if isinstance(corpus, Deduplicated):
        raise UsageError(
            f"cannot mix {corpus.id}: it was opened with dedup or exclude",
            "Give dedup and exclude for the whole mixture instead.",
            option=("dedup", "exclude"),
        )
    if not isinstance(corpus, Corpus | str | Path):
        raise UsageError(
            f"a corpus of a mixture must be a name, a path or an open corpus, got "
            f"{type(corpus).__name__}",
            "Give names, paths or results of open_corpus.",
            option="corpus",
        )
    named = corpus if isinstance(corpus, Corpus) else as_url(corpus) or str(corpus)
    require_weight(named.id if isinstance(named, Corpus) else named, weight)
    return Weighted(named, weight)


def _open_named(
    name: str, selection: Selection, options: CorpusOptions, reporter: Reporter
) -> Corpus:
    if not name:
        raise UsageError(
            "corpus must not be empty", "Name a corpus, a file or a folder.", option="corpus"
        )
    options.refuse(name, "name")
    source: DocumentSource
    private = options.private
    if name == STDLIB:
        options.refuse(name, "revision", "language", "column")
        split = options.split or DEFAULT_SPLIT
        names, paths = zip(*stdlib_split(split), strict=True)
        source = LocalSource(STDLIB, names, paths, facts={"split": split})
    elif name in NAMED:
        source = _hub_source(name, NAMED[name], options, reporter)
    elif name.startswith(HUB) and not is_url(name):
        repository, _, config = name.removeprefix(HUB).partition(":")
        dataset = NamedCorpus(repository, "a dataset of the Hub", repository)
        source = _hub_source(name, dataset, options, reporter, config or None)
    else:
        if name.lower().startswith("file://"):
            name = str(as_path(name))
        if not is_url(name):
            _require_path(name)
        options.refuse(name, "revision", "language", "split")
        opened = remote_source if is_url(name) else local_source
        files: FileSource = opened(name, options.reading, reporter)
        source = files
        if any(reader_suffix(files.path(part)) not in PLAIN for part in range(files.parts)):
            source, is_marked = _find_sessions_and_privacy(name, files, options, reporter)
            private = private or is_marked
    return Corpus(source, selection, options.reading.max_document, private)


def _find_sessions_and_privacy(
    name: str, files: FileSource, options: CorpusOptions, reporter: Reporter
) -> tuple[DocumentSource, bool]:
    """Return the source of the files, and whether it is private.

    Sessions outside the Hub's datasets are, also as plain rows, and exports of private artifacts.
    """
    source: DocumentSource = files
    sessions = None if files.published and options.column is not None else sessions_of(files)
    if sessions is not None and options.column is None:
        source = SessionSource(files.id, sessions)
        if others := files.parts - sessions.parts:
            reporter.note(f"skipped in {name}: {counted(others, 'file')} (without a session)")
    if files.published:
        return source, False
    marked = source is files and holds_mark(files)
    if sessions is not None or marked:
        why = PRIVACY_WARNING if sessions else f"{name} has texts of a private artifact"
        reporter.note(f"{why}: what is built from {name} is marked private")
    return source, sessions is not None or marked


def _hub_source(
    name: str,
    corpus: NamedCorpus,
    options: CorpusOptions,
    reporter: Reporter,
    config: str | None = None,
) -> DocumentSource:
    if corpus.languages is None:
        options.refuse(name, "language")
    language = options.language or corpus.language
    return hub_source(
        corpus.hub or "",
        replace(options.reading, column=options.column or corpus.column),
        id=corpus.name,
        config=config,
        split=options.split or corpus.split,
        revision=options.revision,
        data_dir=corpus.languages and corpus.languages.format(language=language),
        reporter=reporter,
    )


def _require_path(name: str) -> None:
    path = expand_home(name)
    if path.exists() or glob.has_magic(name) or "/" in name or has_readable_suffix(path):
        return
    raise UsageError(
        f"unknown corpus {name!r}",
        f"{hint_for_unknown(name, NAMED)} Or name a file, a folder, a glob or hf:ID."
        + (" Give iter(texts) if these are texts, not names." if " " in name else ""),
    )


def is_artifact(source: str | Path) -> bool:
    """Return whether `source` names an artifact; may access a URL's storage."""
    url = as_url(source)
    if url is None:
        return is_hub_name(source) or (as_path(source) / MANIFEST_FILE).is_file()
    if has_magic(url) or has_readable_suffix(plain_path(url)):
        return False
    from ngramkit.remote.url_cache import find_remote_manifest
    from ngramkit.remote.urls import UrlFolder

    return find_remote_manifest(UrlFolder.at(url)) is not None
