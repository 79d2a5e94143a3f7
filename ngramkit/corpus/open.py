"""`open_corpus`: from what a user writes to a corpus. Decides which source reads it.

Corpora have names (NAMED), or are datasets of the Hub, or files, or texts that a program holds.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.arguments import check_fields
from ngramkit.basics.errors import (
    InputError,
    UsageError,
    given_paths,
    meant,
    require_between,
    require_texts,
)
from ngramkit.basics.machine import parse_size
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.corpus.decontamination import (
    EvaluationTexts,
    is_evaluation,
    read_evaluation_texts,
)
from ngramkit.corpus.deduplication import Deduplicated, deduplicate
from ngramkit.corpus.document import Corpus, DocumentSource
from ngramkit.corpus.files import (
    DEFAULT_SPLIT,
    LocalSource,
    is_read,
    local_source,
    remote_source,
    stdlib_split,
)
from ngramkit.corpus.hub import hub_source
from ngramkit.corpus.mixing import Mixture, Weighted
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.corpus.selection import Selection, read_exclusions, require_weight
from ngramkit.corpus.texts import ANY_SIZE, NAME as TEXTS, Spool, Spooling, Texts, read_texts
from ngramkit.corpus.unpacking import MAX_DOCUMENT
from ngramkit.formats.manifest import NAME
from ngramkit.remote.fetch import is_hub_name
from ngramkit.remote.urls import as_path, as_url, has_magic, is_url, plain_path


@dataclass(frozen=True)
class NamedCorpus(Result):
    """A corpus with a name; `hub` is a dataset's id on the Hub, None for the embedded one."""

    name: str
    summary: str
    hub: str | None = None
    column: str | None = None
    split: str = "train"
    languages: str | None = None  # the data_dir of a language, with {language} in it
    language: str | None = None  # the default one
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
    """Return the corpora that have names; `open_corpus` opens any Hub dataset, file or text."""
    return Rows(NAMED.values())


HUB = "hf:"
# A corpus of a mixture, opened or by name, or the pair of it and its weight.
Part = Corpus | str | Path | tuple[Corpus | str | Path, float]
AnyCorpus = Corpus | Mixture | Deduplicated  # what builders read
# What is opened: a corpus by name or file, several of them, or texts that a program holds.
Openable = str | Path | Sequence[Part] | Texts
ONE_CORPUS_ONLY = ("split", "column", "revision", "language", "name")
LOOKED_AT = 100  # entries of a list, which tell whether it is of texts or of names
LIKE_A_NAME = 0.8  # how near a word is to a corpus's name, to be taken for one that is misspelt


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The options of `open_corpus`, with its defaults."""

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

    def __post_init__(self) -> None:
        check_fields(self)
        require_texts("licenses", self.licenses)

    def given(self) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]


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
    reporter: Reporter = SILENT,
) -> AnyCorpus:
    """Open a corpus: a named one, `hf:ID[:CONFIG]`, files, a mixture, or texts that you hold.

    Files are a path, a folder, a glob, or a URL of these (s3://, gs://, hf://datasets/...,
    https://, file://, see corpus.files). A list of corpora is a mixture: `["a", ("b", 0.3)]` is all
    of a, then three documents in ten of b, see corpus.mixing.

    Texts that you hold are any iterable of strings or of dicts, also a generator, a pandas or
    polars Series or DataFrame, an Arrow table, a datasets.Dataset or IterableDataset; `name` is
    what the artifact calls them, see corpus.texts. Strings of which one names a corpus or a file
    are a mixture; `iter(strings)` is always texts.

    `split`, `column`, `revision`, `language` and `name` are options of a single corpus; `column`
    holds the text (a.b is the field b of objects in a), by default text, content, a conversation,
    or the only column that holds text. `join_turns` makes a conversation one document. `sample` in
    (0, 1] keeps a document by a hash of (`seed`, index); `limit` counts kept documents; `licenses`
    keeps documents whose licences are all listed.
    `exclude` is a file, or several: of repository names and document digests, or, where its name
    ends in .jsonl, of an evaluation set, whose texts no document may hold (corpus.decontamination).
    `dedup` leaves out duplicates ("exact" or "minhash", see corpus.deduplication). A document of
    more than `max_document` bytes ("64M", the default) is an error. With `skip_bad`, records that
    do not parse or have no text are skipped and counted; else the first one is an error.

    Raises UsageError where an option does not fit the corpus or a weight is not in (0, 1],
    InputError where there is no such corpus, split or column, NetworkError where the Hub refuses.
    """
    options = CorpusOptions(
        split=split, column=column, revision=revision, language=language, join_turns=join_turns,
        name=name, sample=sample, seed=seed, limit=limit, licenses=licenses, exclude=exclude,
        dedup=dedup, max_document=max_document, skip_bad=skip_bad,
    )  # fmt: skip
    return open_with(corpus, options, reporter)


def open_with(corpus: Openable, options: CorpusOptions, reporter: Reporter) -> AnyCorpus:
    """Open a corpus as `open_corpus` does."""
    exclude, dedup, max_document = options.exclude, options.dedup, options.max_document
    files = [] if exclude is None else given_paths("exclude", exclude)
    exclusions = [read_exclusions(file) for file in files if not is_evaluation(file)]
    evaluation = read_evaluation_texts([file for file in files if is_evaluation(file)], reporter)
    selection = Selection(
        sample=options.sample,
        seed=options.seed,
        limit=options.limit,
        licenses=frozenset(licence.strip().lower() for licence in options.licenses),
        excluded=frozenset().union(*exclusions),
    )
    most = parse_size(max_document) if isinstance(max_document, str) else max_document
    most = MAX_DOCUMENT if most is None else most
    require_between("max_document", most, 1, 1 << 40)
    reading = ReaderOptions(options.column, options.join_turns, options.skip_bad, most)
    origin = Origin(
        options.split, options.revision, options.language, options.name, reading, reporter
    )
    if isinstance(corpus, str | Path):
        named = Corpus(_source(as_url(corpus) or str(corpus), origin), selection, most)
        return deduplicate(named, dedup, evaluation)
    if isinstance(corpus, list | tuple) and _is_mixture(corpus):
        return deduplicate(_open_mixture(corpus, origin, selection), dedup, evaluation)
    return _open_texts(corpus, origin, selection, dedup, evaluation)


def _open_texts(
    texts: Any,
    origin: Origin,
    selection: Selection,
    dedup: str | None,
    evaluation: EvaluationTexts | None,
) -> AnyCorpus:
    """Read texts that the caller holds, until there are as many documents as the limit says."""
    name = TEXTS if origin.name is None else origin.name
    if name in NAMED or not name.strip() or name.startswith(HUB):
        raise UsageError(f"{name!r} is no name for texts", "choose another", option="name")
    origin.refuse(name, "split", "revision", "language")
    # They are in memory already: no bound on a document is of use.
    rows = read_texts(texts, name, replace(origin.reading, max_document=ANY_SIZE))
    with tempfile.TemporaryFile() as file:
        spool = Spool(file)
        whole = Corpus(Spooling(name, rows, spool), selection, max_document=ANY_SIZE)
        # A limit counts what is left without duplicates.
        read = whole if selection.limit is None else deduplicate(whole, dedup, evaluation)
        origin.reporter.stage(f"reading {name}", selection.limit, "documents")
        for _ in read.documents():
            origin.reporter.advance(1)
        source = spool.source(name, skip_bad=origin.reading.skip_bad)
    if not source.parts:
        hint = "a generator that was read before gives nothing again: make a new one"
        raise InputError(f"{name} gives no text: it is empty", hint, option="corpus")
    opened = Corpus(source, selection, origin.reading.max_document)
    return deduplicate(opened, dedup, evaluation)


def _is_mixture(parts: Sequence[Any]) -> bool:
    """Return whether a list is of corpora rather than of texts or records."""
    return not parts or any(
        isinstance(part, Corpus | Mixture | Deduplicated | Path | tuple)
        or (isinstance(part, str) and _looks_like_a_name(part))
        for part in parts[:LOOKED_AT]
    )


def _looks_like_a_name(text: str) -> bool:
    """Return whether a text names a corpus, a file or a URL, or was meant to."""
    if os.path.exists(os.path.expanduser(text)):  # noqa: PTH110, PTH111 (of any text, also \0)
        return True
    if re.search(r"\s", text):
        return False
    near = difflib.get_close_matches(text, NAMED, n=1, cutoff=LIKE_A_NAME)
    pattern = "/" in text and glob.has_magic(text)
    return bool(near) or text.startswith(HUB) or is_url(text) or is_read(Path(text)) or pattern


def _open_mixture(parts: Sequence[Part], origin: Origin, selection: Selection) -> Mixture:
    for option in ONE_CORPUS_ONLY:
        if origin.given(option) is not None:
            raise UsageError(
                f"{option} does not say of which corpus of a mixture",
                "a recipe has a [[corpus]] with options for each; in Python, open each first",
                option=option,
            )
    if not parts:
        raise UsageError("no corpus was named", "give at least one", option="corpus")
    weighted = [_weighted(part) for part in parts]
    if any(isinstance(corpus, Corpus) for corpus, _ in weighted):
        _refuse_late(origin, selection)
    corpora = []
    for part, weight in weighted:
        corpus = part
        if not isinstance(corpus, Corpus):
            everything = replace(selection, limit=None)
            corpus = Corpus(_source(corpus, origin), everything, origin.reading.max_document)
        corpora.append(replace(corpus, selection=replace(corpus.selection, weight=weight)))
    return Mixture(tuple(corpora), selection.limit)


def _weighted(part: Any) -> Weighted:
    corpus, weight = part if isinstance(part, tuple) and len(part) == 2 else (part, 1.0)
    if isinstance(corpus, Deduplicated):
        raise UsageError(
            f"{corpus.id} is without duplicates or evaluation sets already",
            "leave them out of the mixture: dedup, exclude",
            option=("dedup", "exclude"),
        )
    if not isinstance(corpus, Corpus | str | Path):
        raise UsageError(
            f"a {type(corpus).__name__} is no corpus of a mixture",
            "give names, paths and what open_corpus gives for one corpus",
            option="corpus",
        )
    named = corpus if isinstance(corpus, Corpus) else as_url(corpus) or str(corpus)
    require_weight(named.id if isinstance(named, Corpus) else named, weight)
    return Weighted(named, weight)


def _refuse_late(origin: Origin, selection: Selection) -> None:
    """Raise UsageError for options that an opened corpus cannot take any more."""
    late = {
        "join_turns": origin.reading.join_turns,
        "skip_bad": origin.reading.skip_bad,
        "max_document": origin.reading.max_document != MAX_DOCUMENT,
        "sample": selection.sample != 1.0,
        "seed": selection.seed != 0,
        "licenses": selection.licenses,
        "exclude": selection.excluded,
    }
    for option, is_set in late.items():
        if is_set:
            raise UsageError(f"{option} comes too late for an opened corpus", option=option)


@dataclass(frozen=True)
class Origin:
    """Options of one corpus that decide its rows, not which of them are kept."""

    split: str | None
    revision: str | None
    language: str | None
    name: str | None
    reading: ReaderOptions
    reporter: Reporter

    def given(self, option: str) -> Any:
        """Return what was given for an option of a single corpus; None where nothing was."""
        return self.reading.column if option == "column" else getattr(self, option)

    def refuse(self, name: str, *options: str) -> None:
        """Raise UsageError where one of these options is given."""
        for option in options:
            if self.given(option) is not None:
                raise UsageError(
                    f"{option} means nothing for {name}", "leave it out", option=option
                )


def _source(name: str, origin: Origin) -> DocumentSource:
    if not name:
        raise UsageError("corpus is empty", "name one, or a file or folder", option="corpus")
    origin.refuse(name, "name")
    if name == STDLIB:
        origin.refuse(name, "revision", "language", "column")
        split = origin.split or DEFAULT_SPLIT
        names, paths = zip(*stdlib_split(split), strict=True)
        return LocalSource(STDLIB, names, paths, facts={"split": split})
    if name in NAMED:
        return _hub_source(name, NAMED[name], origin)
    if name.lower().startswith("file://"):
        name = str(as_path(name))
    if name.startswith(HUB) and not is_url(name):
        repository, _, config = name.removeprefix(HUB).partition(":")
        dataset = NamedCorpus(repository, "a dataset of the Hub", repository)
        return _hub_source(name, dataset, origin, config or None)
    if not is_url(name):
        _require_path(name)
    origin.refuse(name, "revision", "language", "split")
    return (remote_source if is_url(name) else local_source)(name, origin.reading, origin.reporter)


def _hub_source(
    name: str, corpus: NamedCorpus, origin: Origin, config: str | None = None
) -> DocumentSource:
    if corpus.languages is None:
        origin.refuse(name, "language")
    language = origin.language or corpus.language
    return hub_source(
        corpus.hub or "",
        replace(origin.reading, column=origin.reading.column or corpus.column),
        id=corpus.name,
        config=config,
        split=origin.split or corpus.split,
        revision=origin.revision,
        data_dir=corpus.languages and corpus.languages.format(language=language),
        reporter=origin.reporter,
    )


def _require_path(name: str) -> None:
    """Raise UsageError where `name` is neither a path nor a glob, so a misspelt corpus."""
    path = Path(name).expanduser()
    if path.exists() or glob.has_magic(name) or "/" in name or is_read(path):
        return
    raise UsageError(
        f"no corpus is called {name!r}",
        f"{meant(name, NAMED)}; or hf:ID for a Hub dataset, or a file, folder or glob"
        + ("; iter(texts) if these are texts, not names" if " " in name else ""),
    )


def is_artifact(source: str | Path) -> bool:
    """Return whether `source` names an artifact rather than text; a URL's storage is asked."""
    url = as_url(source)
    if url is None:
        return is_hub_name(source) or (as_path(source) / NAME).is_file()
    if has_magic(url) or is_read(plain_path(url)):
        return False
    from ngramkit.remote.file_cache import find_remote
    from ngramkit.remote.urls import UrlFolder

    return find_remote(UrlFolder.at(url)) is not None
