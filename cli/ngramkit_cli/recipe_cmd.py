"""`ngramkit build`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit_cli.options import Debug, Json
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.recipe_files import Recipe


@dataclass
class Row:
    """What became of one recipe."""

    recipe: str
    status: str  # "built", "would build" or "up to date"
    why: str
    artifact: str
    bytes: int | None = None
    destination: str | None = None
    revision: str | None = None


def build(
    recipes: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE ...", help="A file, or a name in artifacts/."),
    ],
    push: Annotated[
        bool, typer.Option("--push", help="Verify it, then upload it to the recipe's destination.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Build nothing; exit 1 if anything would be built.")
    ] = False,
    out_dir: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the artifacts' folders are.")
    ] = Path("artifacts"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Threads. Default: every core; same bytes."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Build artifacts from recipes: what is missing or stale, and say why.

    Example: ngramkit build demo --check
    """
    with Output("build", json=json, debug=debug) as out:
        from ngramkit.recipe_files import read_recipe

        opened = [read_recipe(name) for name in recipes]
        rows: list[Row] = []
        try:
            for recipe in opened:
                rows.append(_one(recipe, out_dir, push, check, workers, out))
                out.say(f"{recipe.name}: {rows[-1].status} ({rows[-1].why})")
        finally:
            _summarise(rows)
        out.result(out_dir, results=[asdict(row) for row in rows])
        if any(row.status == "would build" for row in rows):
            raise typer.Exit(1)


def _one(
    recipe: Recipe, root: Path, push: bool, check: bool, workers: int | None, out: Output
) -> Row:
    from ngramkit import recipes

    inputs = recipes.resolve_inputs(recipe, out.reporter)
    verdict = recipes.judge(recipe, inputs, root, hub=push)
    row = Row(recipe.name, "up to date", verdict.why, str(root / recipe.name))
    if verdict.stale and check:
        row.status = "would build"
    elif verdict.stale:
        out.say(f"{recipe.name}: {verdict.why}")
        artifact = recipes.build(recipe, inputs, root, workers=workers, reporter=out.reporter)
        row.status, row.bytes = "built", artifact.manifest.bytes
    if push and not check and (root / recipe.name).exists():
        _push(recipe, row, out)
    return row


def _push(recipe: Recipe, row: Row, out: Output) -> None:
    from ngramkit.errors import InputError
    from ngramkit.formats.verify import verify_artifact
    from ngramkit.hub_push import push

    if recipe.destination is None:
        raise InputError(f"the recipe {recipe.name} has no destination", "add it, or drop --push")
    for _ in verify_artifact(row.artifact):
        """Raises at the first breach: nothing unproven is published."""
    done = push(Path(row.artifact), recipe.destination, reporter=out.reporter)
    row.destination, row.revision = done.repository, done.revision
    out.say(f"{recipe.name}: {done.files} files, {done.bytes:,} bytes sent to {done.url}")


def _summarise(rows: list[Row]) -> None:
    """A table on the page of a GitHub Actions run."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    lines = ["| recipe | status | why | bytes | on the Hub |", "|---|---|---|---|---|"]
    for row in rows:
        size = "" if row.bytes is None else f"{row.bytes:,}"
        where = f"{row.destination}@{row.revision}" if row.revision else ""
        lines.append(f"| {row.recipe} | {row.status} | {row.why} | {size} | {where} |")
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")
