"""A recipe to its artifact, and on to the Hub: what is missing or stale, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ngramkit import recipes
from ngramkit.errors import InputError
from ngramkit.executors import executing, validate
from ngramkit.formats.places import ARTIFACTS
from ngramkit.formats.verify import verify_artifact
from ngramkit.hub_push import push as upload
from ngramkit.progress import SILENT, Reporter
from ngramkit.recipe_files import Recipe, read_recipe
from ngramkit.results import Result


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
    """Builds `out`/NAME where it is missing or not what the recipe says.

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
    path = Path(out) / wanted.name
    resolved = recipes.resolve(wanted, reporter)
    verdict = recipes.judge(resolved, Path(out), hub=push)
    status, size = "up to date", None
    if verdict.stale and check:
        status = "would build"
    elif verdict.stale:
        reporter.note(f"{wanted.name}: {verdict.why}")
        with executing(executor, ray_address, workers, reporter) as where:
            artifact = recipes.build(
                resolved, Path(out), workers=workers, executor=where, reporter=reporter
            )
        status, size = "built", artifact.manifest.bytes
    destination = revision = None
    if push and not check and path.exists() and wanted.destination is not None:
        for _ in verify_artifact(path):
            """Raises at the first breach: nothing unproven is published."""
        done = upload(path, wanted.destination, reporter=reporter)
        destination, revision = done.repository, done.revision
        reporter.note(f"{wanted.name}: {done.files} files, {done.bytes:,} bytes sent to {done.url}")
    return RecipeResult(wanted.name, status, verdict.why, str(path), size, destination, revision)
