"""`open_corpus`: from what a user writes to a Corpus. Decides which source reads it."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from ngramkit.corpus.document import Corpus, Source
from ngramkit.corpus.evaluation import is_evaluation, read_evaluation_texts
from ngramkit.corpus.files import is_read
from ngramkit.corpus.hub import hub_source
from ngramkit.corpus.local import LocalSource, local_source
from ngramkit.corpus.mixing import Mixture, Weighted, mixed
from ngramkit.corpus.named import NAMED, STDLIB, NamedCorpus
from ngramkit.corpus.remote import remote_source
from ngramkit.corpus.selection import Selection, read_exclusions
from ngramkit.corpus.sifting import Sifted, sifted
from ngramkit.corpus.stdlib import DEFAULT_SPLIT, stdlib_split
from ngramkit.errors import UsageError
from ngramkit.progress import SILENT, Reporter
from ngramkit.storage.urls import as_path, as_url, is_url

HUB = "hf:"
# Of a mixture: a corpus, opened or by name, or the pair of it and its weight.
Part = Corpus | str | Path | tuple[Corpus | str | Path, float]
AnyCorpus = Corpus | Mixture | Sifted  # what builders read
OF_ONE = ("split", "column", "revision", "language")


@overload
def open_corpus(name: str | Path, **options: Any) -> Corpus | Sifted: ...
@overload
def open_corpus(name: Sequence[Part], **options: Any) -> Mixture | Sifted: ...
def open_corpus(
    name: str | Path | Sequence[Part],
    *,
    dedup: str | None = None,
    exclude: Path | str | Sequence[Path | str] | None = None,
    **options: Any,
) -> AnyCorpus:
    """A named corpus, `hf:ID[:CONFIG]`, or files: a path, a folder, a glob, or a URL of these
    (s3://, gs://, hf://datasets/..., https://, file://, see corpus.remote). Of a list, a mixture:
    `["a", ("b", 0.3)]` is all of a, then three documents in ten of b, see corpus.mixing.

    Options: `split`, `column`, `revision` and `language` (of one corpus alone), `join_turns`;
    `sample` in (0, 1] keeps a document by a hash of (`seed`, index); `limit` counts kept documents;
    `licenses` keeps documents whose licences are all listed; `dedup` leaves out duplicates ("exact"
    or "minhash", see corpus.sifting); `exclude` is a file, or several: of repository names and
    document digests, or, where its name ends in .jsonl, of an evaluation set, whose texts no
    document may hold (corpus.evaluation); `reporter`. Raises UsageError where an option does not
    fit the corpus or a weight is no share, InputError where there is no such corpus, split or
    column, NetworkError where the Hub refuses.
    """
    given = [exclude] if isinstance(exclude, str | Path) else exclude or []
    files = [Path(file) for file in given]
    options["exclude"] = [file for file in files if not is_evaluation(file)]
    evaluation = read_evaluation_texts([file for file in files if is_evaluation(file)])
    if isinstance(name, str | Path):
        return sifted(_open_one(as_url(name) or str(name), **options), dedup, evaluation)
    return sifted(_open_several([_weighted(part) for part in name], **options), dedup, evaluation)


def _weighted(part: Part) -> Weighted:
    corpus, weight = part if isinstance(part, tuple) else (part, 1.0)
    if isinstance(corpus, Sifted):
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


def _open_several(parts: Sequence[Weighted], **options: Any) -> Mixture:
    for option in OF_ONE:
        if options.get(option) is not None:
            raise UsageError(
                f"{option} does not say of which corpus of a mixture",
                "a recipe has a [[corpus]] with options for each; in Python, open each first",
                option=option,
            )
    limit = options.pop("limit", None)
    opened = any(isinstance(corpus, Corpus) for corpus, _ in parts)
    for option, value in options.items():
        if opened and option != "reporter" and value not in (None, (), [], False, 1.0, 0):
            raise UsageError(f"{option} comes too late for an opened corpus", option=option)
    return mixed(
        [
            Weighted(each if isinstance(each, Corpus) else _open_one(each, **options), weight)
            for each, weight in parts
        ],
        limit,
    )


def _open_one(
    name: str,
    *,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Sequence[Path] = (),
    **options: Any,
) -> Corpus:
    if not name:  # a path of no parts is the working folder
        raise UsageError("corpus is empty", "name one, or a file or folder", option="corpus")
    selection = Selection(
        sample=sample,
        seed=seed,
        limit=limit,
        licenses=frozenset(licence.strip().lower() for licence in licenses),
        excluded=frozenset().union(*map(read_exclusions, exclude)),
    )
    return Corpus(_source(name, OriginOptions(**options)), selection)


@dataclass(frozen=True)
class OriginOptions:
    """What may be said of one corpus beside which of its documents are kept."""

    split: str | None = None
    column: str | None = None
    revision: str | None = None
    language: str | None = None
    join_turns: bool = False
    reporter: Reporter = SILENT

    def refuse(self, name: str, *options: str) -> None:
        """Raises UsageError where one of these is given."""
        for option in options:
            if getattr(self, option) is not None:
                raise UsageError(
                    f"{option} means nothing for {name}", "leave it out", option=option
                )


def _source(name: str, options: OriginOptions) -> Source:
    if name == STDLIB:
        options.refuse(name, "revision", "language", "column")
        return _stdlib(options.split or DEFAULT_SPLIT)
    if name in NAMED:
        return _named(name, NAMED[name], options)
    if name.lower().startswith("file://"):
        name = str(as_path(name))
    if name.startswith(HUB) and not is_url(name):
        return _on_the_hub(name, options)
    if not is_url(name):
        _require_path(name)
    options.refuse(name, "revision", "language", "split")
    files = remote_source if is_url(name) else local_source
    return files(name, column=options.column, join_turns=options.join_turns)


def _named(name: str, known: NamedCorpus, options: OriginOptions) -> Source:
    if known.languages is None:
        options.refuse(name, "language")
    return hub_source(
        known.hub or "",
        id=name,
        split=options.split or known.split,
        column=options.column or known.column,
        revision=options.revision,
        data_dir=known.languages
        and known.languages.format(language=options.language or known.language),
        join_turns=options.join_turns,
        reporter=options.reporter,
    )


def _on_the_hub(name: str, options: OriginOptions) -> Source:
    options.refuse(name, "language")
    repository, _, config = name.removeprefix(HUB).partition(":")
    return hub_source(
        repository,
        config=config or None,
        split=options.split or "train",
        column=options.column,
        revision=options.revision,
        join_turns=options.join_turns,
        reporter=options.reporter,
    )


def _stdlib(split: str) -> LocalSource:
    files = stdlib_split(split)
    names, paths = [name for name, _ in files], [path for _, path in files]
    return LocalSource(STDLIB, names, paths, facts={"split": split})


def _require_path(name: str) -> None:
    """Raises UsageError where `name` is neither a path nor a glob: a misspelt corpus, then."""
    path = Path(name).expanduser()
    if path.exists() or glob.has_magic(name) or "/" in name or is_read(path):
        return
    near = difflib.get_close_matches(name, NAMED, n=1, cutoff=0.5)
    raise UsageError(
        f"no corpus is called {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
        f"names: {', '.join(NAMED)}; or hf:ID for a Hub dataset, or a file, folder or glob",
    )
