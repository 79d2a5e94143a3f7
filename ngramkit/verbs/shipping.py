"""Artifacts to and from the Hub, and to and from other programs' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit import hub_pull, hub_push, hub_search
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.errors import UsageError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.places import ARTIFACTS
from ngramkit.hub import Source
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.verbs.looking import open_artifact
from ngramkit.verbs.results import Result, Rows

if TYPE_CHECKING:
    from ngramkit.formats.history import History

TARGETS = {
    "llama.cpp": ".bin",
    "rest-idx": ".idx",
    "parquet": ".parquet",
    "jsonl": ".jsonl",
    "transformers": "-transformers",
}
ORIGINS = {"llama.cpp": "frozen", "rest-idx": "datastore"}


@dataclass(frozen=True)
class Pushed(Result):
    repository: str
    revision: str  # the commit
    url: str
    files: int  # sent or changed
    bytes: int  # of those
    skipped: int  # files that were there already
    pull_request: str | None = None


def push(
    path: str | Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    reporter: Reporter = SILENT,
) -> Pushed:
    """Uploads an artifact to the Hub, with a card; only what is not there yet.

    `private` counts where the repository is new; `revision` is a branch, made where it is new;
    `tag` names the commit; `create_pr` asks for a pull request. Raises as `ngramkit.hub_push.push`.
    """
    done = hub_push.push(
        Path(path),
        repository,
        private=private,
        revision=revision,
        tag=tag,
        create_pr=create_pr,
        reporter=reporter,
    )
    return Pushed(**vars(done))


@dataclass(frozen=True)
class Pulled(Result):
    """A copy of an artifact on the Hub; `revision` is its commit."""

    path: Path
    repository: str
    revision: str | None
    kind: str
    bytes: int
    counts: Mapping[str, int]

    def open(self) -> Artifact:
        return open_artifact(self.path)


def pull(
    source: str,
    out: str | Path | None = None,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Pulled:
    """Downloads USER/NAME[@REVISION] to `out` (default: artifacts/NAME), proven before it is there.

    Raises as `ngramkit.hub_pull.pull`.
    """
    name = Source.parse(source).repository
    target = Path(out) if out is not None else ARTIFACTS / name.partition("/")[2]
    done = hub_pull.pull(source, target, reporter=reporter, force=force)
    manifest = read_manifest(done.path)
    return Pulled(
        done.path, name, done.commit, manifest.kind, manifest.bytes, dict(manifest.counts)
    )


@dataclass(frozen=True)
class OnTheHub(Result):
    """An artifact on the Hub, as its card describes it; `problem` says why a card has no say."""

    id: str
    kind: str
    tokenizer: str
    fingerprint: str
    vocabulary: int
    bytes: int
    revision: str
    downloads: int
    problem: str


def search(
    tokenizer: str | None = None, kind: str | None = None, *, reporter: Reporter = SILENT
) -> Rows[OnTheHub]:
    """The artifacts on the Hub: those for a model's tokenizer, or of a kind; by default all.

    Raises as `ngramkit.hub_search.search`.
    """
    found = hub_search.search(tokenizer, kind, reporter=reporter)
    return Rows([OnTheHub(**vars(entry)) for entry in found])


@dataclass(frozen=True)
class Exported(Result):
    path: Path
    source: Path
    to: str
    counts: Mapping[str, int]  # what was written, by its unit: bytes, rows, ...


def export(
    source: str | Path | Artifact,
    to: str,
    out: str | Path | None = None,
    *,
    model: str | None = None,
    dynamic: bool = False,
    u32: bool = False,
    memory: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Exported:
    """Writes an artifact as another engine or a data tool reads it; `to` is one of TARGETS.

    `out` is by default beside the artifact. `model` says where to find the artifact's tokenizer,
    for formats with text (default: the one that it names). `dynamic` and `memory` (bytes) are for
    llama.cpp, `u32` for rest-idx, see those modules of ngramkit.exchange. Raises UsageError for an
    unknown format, and for an artifact or option that it does not take.
    """
    if to not in TARGETS:
        raise UsageError(f"there is no format {to!r}", f"one of {', '.join(TARGETS)}", option="to")
    _refuse("to", to, dynamic=dynamic and to != "llama.cpp", u32=u32 and to != "rest-idx")
    artifact = source if isinstance(source, Artifact) else open_artifact(source, reporter=reporter)
    path = Path(out) if out else artifact.path.with_name(artifact.path.name + TARGETS[to])
    options: dict[str, Any] = {"force": force, "reporter": reporter}
    if to == "llama.cpp":
        from ngramkit.exchange.llama_cpp import export_cache

        done = export_cache(artifact, path, dynamic=dynamic, memory=memory, force=force)
        counts = dict(vars(done))
    elif to == "rest-idx":
        from ngramkit.exchange.rest_idx import export_rest_idx

        counts = {"bytes": export_rest_idx(_datastore(artifact), path, u32=u32, **options)}
    elif to == "transformers":
        from ngramkit.exchange.transformers import export_folder

        counts = {"bytes": export_folder(artifact, path, force=force)}
    else:
        counts = _with_text(artifact, to, path, model, options)
    return Exported(path, artifact.path, to, counts)


def _with_text(
    artifact: Artifact, to: str, path: Path, model: str | None, options: dict[str, Any]
) -> dict[str, int]:
    tokenizer = load_tokenizer(model or artifact.tokenizer.id)
    if to == "parquet":
        from ngramkit.exchange.parquet import export_parquet

        rows, size = export_parquet(artifact, tokenizer, path, **options)
        return {"rows": rows, "bytes": size}
    from ngramkit.exchange.jsonl import export_jsonl

    documents, size = export_jsonl(_datastore(artifact), tokenizer, path, **options)
    return {"documents": documents, "bytes": size}


def _datastore(artifact: Artifact) -> Any:
    from ngramkit.formats.datastore import Datastore

    if not isinstance(artifact, Datastore):
        raise UsageError(
            f"{artifact.path} is a {artifact.kind}, which holds no documents", "export a datastore"
        )
    return artifact


def _refuse(parameter: str, value: str, **given: bool) -> None:
    for name, meaningless in given.items():
        if meaningless:
            raise UsageError(
                f"{name} means nothing with {parameter}={value}",
                "leave it out",
                option=(name, parameter),
            )


def import_(
    file: str | Path,
    origin: str,
    out: str | Path | None = None,
    *,
    model: str | None = None,
    order: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Artifact:
    """An artifact of another engine's file: a frozen table or a datastore; `origin` is its format.

    `model` is whose tokenizer the file's ids are of; `order` takes the n-grams of llama.cpp with so
    many context tokens. `out` is by default under artifacts/, by the file's name. Raises UsageError
    for an unknown format, InputError where the file is not what it should be.
    """
    if origin not in ORIGINS:
        raise UsageError(
            f"there is no format {origin!r}", f"one of {', '.join(ORIGINS)}", option="origin"
        )
    _refuse("origin", origin, order=order is not None and origin != "llama.cpp")
    tokenizer, file = load_tokenizer(chosen_model(model).name), Path(file)
    path = Path(out) if out is not None else ARTIFACTS / f"{file.stem}-{ORIGINS[origin]}"
    if origin == "llama.cpp":
        from ngramkit.exchange.llama_cpp import import_cache

        return import_cache(file, tokenizer, path, order=order, force=force)
    from ngramkit.exchange.rest_idx import import_rest_idx

    return import_rest_idx(file, tokenizer, path, reporter=reporter, force=force)


def merge(
    sources: Sequence[str | Path | Artifact],
    out: str | Path,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Artifact:
    """One artifact of several: datastores side by side, frozen tables with counts added.

    Raises as `ngramkit.builders.merge.merge`.
    """
    from ngramkit.builders.merge import merge as merged

    parts = [s if isinstance(s, Artifact) else open_artifact(s, reporter=reporter) for s in sources]
    return merged(parts, Path(out), reporter=reporter, force=force)


def merge_histories(paths: Sequence[str | Path], out: str | Path) -> History:
    """A new history of all requests of several, the newest of each last."""
    from ngramkit.formats.history import History
    from ngramkit.formats.history import merge as merged

    return merged([History.open(path) for path in paths], Path(out))


def trim_history(path: str | Path, tokens: int) -> int:
    """Forgets the oldest requests, so that at most `tokens` stay; returns how many requests went.

    Processes that use the history notice.
    """
    from ngramkit.formats.history import History

    return History.open(path).trim(tokens)
