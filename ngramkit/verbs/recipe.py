"""A recipe to its artifact, and on to the Hub: what is missing or stale, and why."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit import recipes
from ngramkit.errors import InputError
from ngramkit.executors import executing, validate
from ngramkit.fetching import fetch, is_artifact
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.outputs import RECIPE
from ngramkit.formats.places import ARTIFACTS
from ngramkit.formats.verify import verify_artifact
from ngramkit.formats.writer import recipe_text
from ngramkit.hub_push import push as upload
from ngramkit.progress import SILENT, Reporter
from ngramkit.recipe_files import Recipe, read_recipe
from ngramkit.results import Result
from ngramkit.storage.place import Place
from ngramkit.storage.publishing import written
from ngramkit.storage.texts import fetch_texts, put_text
from ngramkit.storage.urls import as_path, as_url


@dataclass(frozen=True)
class RecipeResult(Result):
    """What became of one recipe."""

    recipe: str
    status: str  # "built", "would build" or "up to date"
    why: str
    artifact: str
    bytes: int | None = None
    destination: str | None = None
    revision: str | None = None  # the commit of what was pushed


def build_recipe(
    recipe: str | Path | Recipe,
    out: str | Path = ARTIFACTS,
    *,
    push: bool = False,
    check: bool = False,
    workers: int | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    reporter: Reporter = SILENT,
) -> RecipeResult:
    """Builds `out`/NAME where it is missing or not what the recipe says; `out` may be a URL.

    `recipe` is a file, or the name of one in artifacts/. `check` builds nothing. `push` verifies
    the artifact and uploads it to the recipe's destination. `workers` bounds the threads, not the
    bytes; `executor` and `ray_address` as in `ngramkit.tokenize`. Raises as `ngramkit.recipes` and
    `push`, InputError where the destination is missing.
    """
    validate(executor, ray_address)
    wanted = recipe if isinstance(recipe, Recipe) else read_recipe(str(recipe))
    if push and wanted.destination is None:
        raise InputError(
            f"the recipe {wanted.name} has no destination", "add it, or drop push", option="push"
        )
    url = as_url(out)
    root = as_path(out) if url is None else ARTIFACTS
    place = str(root / wanted.name) if url is None else f"{url.rstrip('/')}/{wanted.name}"
    resolved = recipes.resolve(wanted, reporter)
    verdict = _judged(resolved, root, url and place, push)
    status, size = "up to date", None
    if verdict.stale and check:
        status = "would build"
    elif verdict.stale:
        reporter.note(f"{wanted.name}: {verdict.why}")
        with executing(executor, ray_address, workers, reporter) as where:

            def build(path: Path, reporter: Reporter, force: bool) -> Artifact:
                running: dict[str, Any] = {"workers": workers, "executor": where}
                return recipes.build(resolved, root, path=path, **running, reporter=reporter)

            artifact = written(build, place, reporter=reporter, force=True)
            if url is not None:  # where only the record was another, nothing was built
                text = recipe_text(artifact.manifest.build, resolved.inputs)
                put_text(Place.at(place), RECIPE, text)
        status, size = "built", artifact.manifest.bytes
    destination = revision = None
    if push and not check and wanted.destination is not None and is_artifact(place):
        path = fetch(place, reporter=reporter).path
        for _ in verify_artifact(path):
            """Raises at the first breach: nothing unproven is published."""
        done = upload(path, wanted.destination, reporter=reporter)
        destination, revision = done.repository, done.revision
        reporter.note(f"{wanted.name}: {done.files} files, {done.bytes:,} bytes sent to {done.url}")
    return RecipeResult(wanted.name, status, verdict.why, place, size, destination, revision)


def _judged(resolved: recipes.Resolved, root: Path, url: str | None, hub: bool) -> recipes.Verdict:
    """Of `root`/NAME, or of what the manifest and the recipe's record at `url` say."""
    if url is None:
        return recipes.judge(resolved, root, hub=hub)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / resolved.recipe.name
        fetch_texts(Place.at(url, "out"), path)
        verdict = recipes.judge(resolved, Path(folder), hub=hub)
        return replace(verdict, why=verdict.why.replace(str(path), url))
