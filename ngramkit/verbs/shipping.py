"""Artifacts from the Hub, and several made one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ngramkit import hub_pull, hub_search
from ngramkit.executors import executing
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.places import ARTIFACTS
from ngramkit.hub import Source
from ngramkit.hub_search import Found
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result, Rows
from ngramkit.storage.publishing import written
from ngramkit.verbs.looking import open_artifact
from ngramkit.verbs.texts import size_of


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


def search(
    tokenizer: str | None = None, kind: str | None = None, *, reporter: Reporter = SILENT
) -> Rows[Found]:
    """The artifacts on the Hub: those for a model's tokenizer, or of a kind; by default all.

    Raises as `ngramkit.hub_search.search`.
    """
    return Rows(hub_search.search(tokenizer, kind, reporter=reporter))


def merge(
    sources: Sequence[str | Path | Artifact],
    out: str | Path,
    *,
    memory: int | str | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Artifact:
    """One artifact of several: datastores side by side, frozen tables with counts added.

    `memory` (bytes, or "4G") is for frozen tables, see `ngramkit.builders.merge.merge`; raises as
    that. `executor` and `ray_address` as in `ngramkit.tokenize`.
    """
    from ngramkit.builders.merge import merge as merged

    parts = [s if isinstance(s, Artifact) else open_artifact(s, reporter=reporter) for s in sources]
    with executing(executor, ray_address, reporter=reporter) as where:
        build = partial(merged, parts, memory=size_of(memory), executor=where)
        return written(build, out, reporter=reporter, force=force)
