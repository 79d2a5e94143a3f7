"""Options that name a drafter's artifacts, and what is taken where none is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli.history_options import HistoryUse

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.formats.manifest import TokenizerRecord
    from ngramkit_cli.output import Output

Datastores = Annotated[
    list[Path] | None,
    typer.Option(
        "--datastore",
        metavar="PATH|hf://USER/NAME@REV",
        help="A datastore; may be repeated. Default: the newest that fits under artifacts/.",
    ),
]
FrozenTablePath = Annotated[
    Path | None,
    typer.Option(
        "--frozen-table",
        metavar="PATH|hf://USER/NAME@REV",
        help="A frozen table. Default: the newest that fits under artifacts/.",
    ),
]
BigramPath = Annotated[
    Path | None,
    typer.Option(
        "--bigram",
        metavar="PATH|hf://USER/NAME@REV",
        help="A model's bigram table. Default: the newest that fits under artifacts/.",
    ),
]
UnigramPath = Annotated[
    Path | None,
    typer.Option(
        "--unigram",
        metavar="PATH|hf://USER/NAME@REV",
        help="A model's unigram table. Default: the newest that fits under artifacts/.",
    ),
]
KINDS = {
    "datastores": "datastore",
    "frozen_table": "frozen-table",
    "bigram": "model-bigram",
    "unigram": "model-unigram",
}


@dataclass
class DrafterChoice:
    """A drafter's name and the paths of its artifacts, as options or defaults gave them."""

    name: str
    tokenizer: TokenizerRecord
    artifacts: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    history: HistoryUse | None = None  # None: it does not learn from finished requests

    def load(self, *, forgetful: bool = False) -> Drafter:
        from ngramkit.drafters import load_drafter

        past = self.history and self.history.past(self.tokenizer, forgetful=forgetful)
        sources = {**self.artifacts, "past": past, "tokenizer": self.tokenizer}
        return load_drafter(self.name, **sources, **self.parameters)

    def load_to_try(self) -> Drafter:
        """One whose requests are not remembered: they are not the user's."""
        return self.load(forgetful=True)

    @property
    def learns(self) -> bool:
        return self.history is not None

    @property
    def paths(self) -> list[Path]:
        found: list[Path] = []
        for value in self.artifacts.values():
            found += value if isinstance(value, list) else [value]
        if self.history is not None and self.history.path is not None:
            found.append(self.history.path)
        return found


def choose_drafter(
    name: str | None,
    tokenizer: TokenizerRecord,
    out: Output,
    *,
    datastores: list[Path] | None,
    frozen_table: Path | None,
    bigram: Path | None = None,
    unigram: Path | None = None,
    history: HistoryUse = HistoryUse(),  # noqa: B008 (frozen)
) -> DrafterChoice:
    """The drafter with artifacts for `tokenizer`: named, else the newest, else built now.

    Without a name: blend. A drafter of several sources takes those that are named, or all that are
    found; past requests only where they are named. Says what it takes. Raises ArtifactError where
    an artifact is of another tokenizer.
    """
    from ngramkit.drafters import drafter_entry

    named = {
        "datastores": datastores,
        "frozen_table": frozen_table,
        "bigram": bigram,
        "unigram": unigram,
    }
    chosen = name or "blend"
    entry = drafter_entry(chosen)
    choice = DrafterChoice(chosen, tokenizer)
    given = {each: named[each] for each in entry.artifacts if named.get(each)}
    several = len(entry.artifacts) > 1
    for artifact, value in given.items():
        choice.artifacts[artifact] = _fetched(value, out)
    if not given:
        find = _all_found if several else _each_found_or_built
        choice.artifacts = find(entry.artifacts, tokenizer, out)
    if "past" in entry.sources and (history.path or not several):
        history.prepare(tokenizer)
        choice.history = history
        if chosen == "ssd":
            choice.parameters["least_score"] = history.least_score
    for path in choice.paths:
        _require(path, tokenizer)
    using = ", ".join(map(str, choice.paths))
    out.say(f"drafter: {chosen}{' (default)' if name is None else ''}{using and ' over '}{using}")
    return choice


def _fetched(given: Any, out: Output) -> Any:
    """Paths as they are; hf://USER/NAME@REVISION as the folder in the Hub's cache."""
    if isinstance(given, list):
        return [out.fetch(source) for source in given]
    return out.fetch(given) if isinstance(given, Path) else given


def _each_found_or_built(
    artifacts: Sequence[str], tokenizer: TokenizerRecord, out: Output
) -> dict[str, Any]:
    paths = {each: _found_or_built(KINDS[each], tokenizer, out) for each in artifacts}
    return {each: _as_given(each, path) for each, path in paths.items()}


def _all_found(artifacts: Sequence[str], tokenizer: TokenizerRecord, out: Output) -> dict[str, Any]:
    """The newest of every kind under artifacts/; where no corpus's is there, a datastore made now.

    What a corpus says is half of a draft; a model's table is read off when it is asked for by name.
    """
    from ngramkit.formats.places import newest

    paths = {each: newest(KINDS[each], tokenizer) for each in artifacts}
    found = {each: _as_given(each, path) for each, path in paths.items() if path is not None}
    if not found.keys() & {"datastores", "frozen_table"}:
        found |= _each_found_or_built(["datastores"], tokenizer, out)
    return found


def _as_given(artifact: str, path: Path) -> Any:
    return [path] if artifact == "datastores" else path


def _require(path: Path, tokenizer: TokenizerRecord) -> None:
    from ngramkit.formats.manifest import read_manifest

    read_manifest(path).tokenizer.require(tokenizer, str(path))


def _found_or_built(kind: str, tokenizer: TokenizerRecord, out: Output) -> Path:
    from ngramkit.formats.places import newest

    path = newest(kind, tokenizer)
    if path is not None:
        return path
    missing = f"no {kind} for {tokenizer.id} under artifacts/"
    if kind.startswith("model-"):
        return _read_off(kind, tokenizer.id, missing, out)
    out.say(f"{missing}: building one from python-stdlib")
    return _built(kind, tokenizer.id, out)


def _read_off(kind: str, model: str, missing: str, out: Output) -> Path:
    """A table of the model itself, where that takes no download."""
    from ngramkit.errors import ArtifactError
    from ngramkit.models import resolve_model
    from ngramkit_cli import model_cmd

    if not Path(resolve_model(model)).is_dir():
        raise ArtifactError(missing, f"run: ngramkit {kind} {model}")
    out.say(f"{missing}: reading one off the model")
    return model_cmd.read_off(kind, model, out)


def _built(kind: str, model: str, out: Output) -> Path:
    from ngramkit.builders.tokens import build_tokens
    from ngramkit.corpus.opening import open_corpus

    store = build_tokens(open_corpus("python-stdlib"), model, reporter=out.reporter)
    # The token store's name ends in digits of its plan, so this one is never taken by another.
    path = store.path.with_name(store.path.name.replace("-tokens-", f"-{kind}-"))
    if kind == "datastore":
        from ngramkit.builders.datastore import build_datastore

        return build_datastore(store, path, reporter=out.reporter).path
    from ngramkit.builders.frozen import build_frozen

    return build_frozen(store, path, reporter=out.reporter).path
