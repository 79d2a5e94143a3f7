"""`ngramkit build`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ngramkit
from ngramkit_cli.options import ExecutorOptions, takes_urls
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.recipes import RecipeResult


@takes_urls
def build(
    *,
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
        str, typer.Option("--out", metavar="DIR|URL", help="Where the artifacts' folders are.")
    ] = "artifacts",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Threads. Default: every core; same bytes."),
    ] = None,
    where: ExecutorOptions,
    out: Output,
) -> None:
    """Build artifacts from recipes: what is missing or stale, and say why.

    Example: ngramkit build demo --check
    """
    from ngramkit.recipes import read_recipe

    opened = [read_recipe(name) for name in recipes]  # all, before the first is built
    options: dict[str, Any] = {
        "push": push,
        "check": check,
        "workers": workers,
        **where.options,
    }
    rows: list[RecipeResult] = []
    try:
        for recipe in opened:
            rows.append(ngramkit.build(recipe, out_dir, **options, reporter=out.reporter))
            out.say(f"{recipe.name}: {rows[-1].status} ({rows[-1].why})")
    finally:
        _summarise(rows)
    out.result(out_dir, results=[row.to_dict() for row in rows])
    if any(row.status == "would build" for row in rows):
        raise typer.Exit(1)


def _summarise(rows: list[RecipeResult]) -> None:
    """Append a table to the page of a GitHub Actions run."""
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
