"""`open_corpus`: from what a user writes to a Corpus. Decides which source reads it."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Sequence
from pathlib import Path

from ngramkit.corpus.document import Corpus
from ngramkit.corpus.hub import hub_source
from ngramkit.corpus.local import SUFFIXES, LocalSource, kind_of, local_source
from ngramkit.corpus.named import NAMED, STDLIB
from ngramkit.corpus.selection import Selection, read_exclusions
from ngramkit.corpus.stdlib import DEFAULT_SPLIT, stdlib_split
from ngramkit.errors import UsageError
from ngramkit.progress import SILENT, Reporter

HUB = "hf:"


def open_corpus(
    name: str,
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
    exclude: Path | None = None,
    reporter: Reporter = SILENT,
) -> Corpus:
    """A named corpus, `hf:ID[:CONFIG]`, or local files: a path, a folder or a glob.

    `sample` in (0, 1] keeps a document by a hash of (seed, index); `limit` counts kept documents;
    `licenses` keeps documents whose licences are all listed; `exclude` is a file of repository
    names and document digests. Raises UsageError where an option does not fit the corpus,
    InputError where there is no such corpus, split or column, NetworkError where the Hub refuses.
    """
    selection = Selection(
        sample=sample,
        seed=seed,
        limit=limit,
        licenses=frozenset(licence.strip().lower() for licence in licenses),
        excluded=read_exclusions(exclude) if exclude else frozenset(),
    )
    hub_only = {"revision": revision, "language": language}
    if name == STDLIB:
        _refuse(name, **hub_only, column=column)
        return Corpus(_stdlib(split or DEFAULT_SPLIT), selection)
    if name in NAMED:
        known = NAMED[name]
        if known.languages is None:
            _refuse(name, language=language)
        folder = known.languages and known.languages.format(language=language or known.language)
        source = hub_source(
            known.hub or "",
            id=name,
            split=split or known.split,
            column=column or known.column,
            revision=revision,
            data_dir=folder,
            join_turns=join_turns,
            reporter=reporter,
        )
        return Corpus(source, selection)
    if name.startswith(HUB):
        _refuse(name, language=language)
        repository, _, config = name.removeprefix(HUB).partition(":")
        source = hub_source(
            repository,
            config=config or None,
            split=split or "train",
            column=column,
            revision=revision,
            join_turns=join_turns,
            reporter=reporter,
        )
        return Corpus(source, selection)
    _require_path(name)
    _refuse(name, **hub_only, split=split)
    files = local_source(
        name,
        column=column,
        join_turns=join_turns,
    )
    return Corpus(files, selection)


def _stdlib(split: str) -> LocalSource:
    files = stdlib_split(split)
    names, paths = [name for name, _ in files], [path for _, path in files]
    return LocalSource(STDLIB, names, paths, facts={"split": split})


def _refuse(name: str, **options: object) -> None:
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} means nothing for {name}", "leave it out", option=option)


def _require_path(name: str) -> None:
    """Raises UsageError where `name` is neither a path nor a glob: a misspelt corpus, then."""
    path = Path(name).expanduser()
    if path.exists() or glob.has_magic(name) or "/" in name or kind_of(path) in SUFFIXES:
        return
    near = difflib.get_close_matches(name, NAMED, n=1, cutoff=0.5)
    raise UsageError(
        f"no corpus is called {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
        f"names: {', '.join(NAMED)}; or hf:ID for a Hub dataset, or a file, folder or glob",
    )
