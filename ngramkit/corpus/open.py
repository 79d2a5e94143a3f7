"""`open_corpus`: from what a user writes to a corpus. Decides which source reads it.

Corpora have names (NAMED), or are datasets of the Hub, or files.
"""

from __future__ import annotations

import difflib
import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ngramkit.corpus.decontamination import is_evaluation, read_evaluation_texts
from ngramkit.corpus.deduplication import Deduplicated, deduplicate
from ngramkit.corpus.document import Corpus, Source
from ngramkit.corpus.files import (
    DEFAULT_SPLIT,
    LocalSource,
    is_read,
    local_source,
    remote_source,
    stdlib_split,
)
from ngramkit.corpus.hub import hub_source
from ngramkit.corpus.mixing import Mixture, Weighted, mix
from ngramkit.corpus.selection import Selection, read_exclusions
from ngramkit.errors import UsageError
from ngramkit.formats.manifest import NAME
from ngramkit.progress import SILENT, Reporter
from ngramkit.remote.hub import is_hub_name
from ngramkit.remote.urls import as_path, as_url, has_magic, is_url, plain_path


@dataclass(frozen=True)
class NamedCorpus:
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


HUB = "hf:"
# A corpus of a mixture, opened or by name, or the pair of it and its weight.
Part = Corpus | str | Path | tuple[Corpus | str | Path, float]
AnyCorpus = Corpus | Mixture | Deduplicated  # what builders read
ONE_CORPUS_ONLY = ("split", "column", "revision", "language")


def open_corpus(
    name: str | Path | Sequence[Part],
    *,
    split: str | None = None,
    column: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    join_turns: bool = False,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Path | str | Sequence[Path | str] | None = None,
    dedup: str | None = None,
    reporter: Reporter = SILENT,
) -> AnyCorpus:
    """Open a corpus by its name: a named corpus, `hf:ID[:CONFIG]`, or files.

    Files are a path, a folder, a glob, or a URL of these (s3://, gs://, hf://datasets/...,
    https://, file://, see corpus.files). A list is a mixture: `["a", ("b", 0.3)]` is all of a,
    then three documents in ten of b, see corpus.mixing.

    `split`, `column`, `revision` and `language` are options of a single corpus; `join_turns` makes
    a conversation one document. `sample` in (0, 1] keeps a document by a hash of (`seed`, index);
    `limit` counts kept documents; `licenses` keeps documents whose licences are all listed.
    `exclude` is a file, or several: of repository names and document digests, or, where its name
    ends in .jsonl, of an evaluation set, whose texts no document may hold (corpus.decontamination).
    `dedup` leaves out duplicates ("exact" or "minhash", see corpus.deduplication).

    Raises UsageError where an option does not fit the corpus or a weight is not in (0, 1],
    InputError where there is no such corpus, split or column, NetworkError where the Hub refuses.
    """
    excluding = [exclude] if isinstance(exclude, str | Path) else exclude or []
    files = [Path(file) for file in excluding]
    exclusions = [read_exclusions(file) for file in files if not is_evaluation(file)]
    evaluation = read_evaluation_texts([file for file in files if is_evaluation(file)])
    selection = Selection(
        sample=sample,
        seed=seed,
        limit=limit,
        licenses=frozenset(licence.strip().lower() for licence in licenses),
        excluded=frozenset().union(*exclusions),
    )
    options = OriginOptions(split, column, revision, language, join_turns, reporter)
    corpus: Corpus | Mixture
    if isinstance(name, str | Path):
        corpus = Corpus(_source(as_url(name) or str(name), options), selection)
    else:
        corpus = _open_mixture(name, options, selection)
    return deduplicate(corpus, dedup, evaluation)


def _open_mixture(parts: Sequence[Part], options: OriginOptions, selection: Selection) -> Mixture:
    for option in ONE_CORPUS_ONLY:
        if getattr(options, option) is not None:
            raise UsageError(
                f"{option} does not say of which corpus of a mixture",
                "a recipe has a [[corpus]] with options for each; in Python, open each first",
                option=option,
            )
    weighted = [_weighted(part) for part in parts]
    if any(isinstance(corpus, Corpus) for corpus, _ in weighted):
        _refuse_late(options, selection)
    unlimited = replace(selection, limit=None)
    corpora = [
        Weighted(
            part if isinstance(part, Corpus) else Corpus(_source(part, options), unlimited), weight
        )
        for part, weight in weighted
    ]
    return mix(corpora, selection.limit)


def _weighted(part: Part) -> Weighted:
    corpus, weight = part if isinstance(part, tuple) else (part, 1.0)
    if isinstance(corpus, Deduplicated):
        raise UsageError(
            f"{corpus.id} is without duplicates or evaluation sets already",
            "leave them out of the mixture: dedup, exclude",
            option=("dedup", "exclude"),
        )
    named = corpus if isinstance(corpus, Corpus) else as_url(corpus) or str(corpus)
    if not isinstance(weight, float | int):
        raise UsageError(
            f"the weight of {named} is no number: {weight!r}",
            "as in (corpus, 0.3)",
            option="corpus",
        )
    return Weighted(named, weight)


def _refuse_late(options: OriginOptions, selection: Selection) -> None:
    """Raise UsageError for options that an opened corpus cannot take any more."""
    late = {
        "join_turns": options.join_turns,
        "sample": selection.sample != 1.0,
        "seed": selection.seed != 0,
        "licenses": selection.licenses,
        "exclude": selection.excluded,
    }
    for option, is_set in late.items():
        if is_set:
            raise UsageError(f"{option} comes too late for an opened corpus", option=option)


@dataclass(frozen=True)
class OriginOptions:
    """Options of one corpus that decide its rows, not which of them are kept."""

    split: str | None = None
    column: str | None = None
    revision: str | None = None
    language: str | None = None
    join_turns: bool = False
    reporter: Reporter = SILENT

    def refuse(self, name: str, *options: str) -> None:
        """Raise UsageError where one of these options is given."""
        for option in options:
            if getattr(self, option) is not None:
                raise UsageError(
                    f"{option} means nothing for {name}", "leave it out", option=option
                )


def _source(name: str, options: OriginOptions) -> Source:
    if not name:
        raise UsageError("corpus is empty", "name one, or a file or folder", option="corpus")
    if name == STDLIB:
        options.refuse(name, "revision", "language", "column")
        return _stdlib(options.split or DEFAULT_SPLIT)
    if name in NAMED:
        return _hub_source(name, NAMED[name], options)
    if name.lower().startswith("file://"):
        name = str(as_path(name))
    if name.startswith(HUB) and not is_url(name):
        repository, _, config = name.removeprefix(HUB).partition(":")
        dataset = NamedCorpus(repository, "a dataset of the Hub", repository)
        return _hub_source(name, dataset, options, config or None)
    if not is_url(name):
        _require_path(name)
    options.refuse(name, "revision", "language", "split")
    open_files = remote_source if is_url(name) else local_source
    return open_files(name, column=options.column, join_turns=options.join_turns)


def _hub_source(
    name: str, corpus: NamedCorpus, options: OriginOptions, config: str | None = None
) -> Source:
    if corpus.languages is None:
        options.refuse(name, "language")
    return hub_source(
        corpus.hub or "",
        id=corpus.name,
        config=config,
        split=options.split or corpus.split,
        column=options.column or corpus.column,
        revision=options.revision,
        data_dir=corpus.languages
        and corpus.languages.format(language=options.language or corpus.language),
        join_turns=options.join_turns,
        reporter=options.reporter,
    )


def _stdlib(split: str) -> LocalSource:
    files = stdlib_split(split)
    names, paths = [name for name, _ in files], [path for _, path in files]
    return LocalSource(STDLIB, names, paths, facts={"split": split})


def _require_path(name: str) -> None:
    """Raise UsageError where `name` is neither a path nor a glob, so a misspelt corpus."""
    path = Path(name).expanduser()
    if path.exists() or glob.has_magic(name) or "/" in name or is_read(path):
        return
    near = difflib.get_close_matches(name, NAMED, n=1, cutoff=0.5)
    raise UsageError(
        f"no corpus is called {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
        f"names: {', '.join(NAMED)}; or hf:ID for a Hub dataset, or a file, folder or glob",
    )


def is_artifact(source: str | Path) -> bool:
    """Return whether `source` names an artifact rather than text; a URL's storage is asked."""
    url = as_url(source)
    if url is None:
        return is_hub_name(source) or (as_path(source) / NAME).is_file()
    if has_magic(url) or is_read(plain_path(url)):
        return False
    from ngramkit.remote.staging import find_remote
    from ngramkit.remote.urls import Place

    return find_remote(Place.at(url)) is not None
