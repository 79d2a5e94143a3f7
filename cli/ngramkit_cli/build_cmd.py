"""`ngramkit tokenize`, `build-datastore`, `build-frozen`, and `build` for recipes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.kinds import ARTIFACTS
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit_cli import completion
from ngramkit_cli.corpus_cmd import CorpusOptions
from ngramkit_cli.output import Output, peak_rss
from ngramkit_cli.shared_options import FORCE, MEMORY, OUT, ExecutorOptions, takes_urls

if TYPE_CHECKING:
    from ngramkit.formats.artifact import Artifact
    from ngramkit.recipes import RecipeResult

TOKENS = typer.Option(
    None,
    metavar="DIR|URL",
    help="A token store's folder or URL, in place of --corpus.",
    autocompletion=completion.artifacts("tokens"),
)


@dataclass(frozen=True)
class TokenizeOptions:
    out: str | None = OUT
    shard_tokens: int = typer.Option(
        1 << 24, min=1, help="A shard ends with the document that reaches this size."
    )
    workers: int | None = typer.Option(None, min=1, help="Encoding threads. Default: all cores.")
    force: bool = FORCE


@takes_urls
def tokenize(
    *, corpus: CorpusOptions, options: TokenizeOptions, where: ExecutorOptions, out: Output
) -> None:
    """Tokenise a corpus, as the input of every builder.

    Example: ngramkit tokenize --corpus python-stdlib
    """
    source, text = corpus.source_and_options(out)
    store = ngramkit.tokenize(source, **text, **vars(options), **vars(where), reporter=out.reporter)
    _print_result(store, _documents_and_tokens(store), out, shards=len(store.manifest.files))


@dataclass(frozen=True)
class DatastoreOptions:
    out: str | None = OUT
    shard_tokens: int | None = typer.Option(
        None, min=2, help="Tokens per shard. Default: what --memory allows, up to 2**27."
    )
    memory: Any = MEMORY
    workers: int | None = typer.Option(
        None, min=1, help="Shards sorted at a time. Default: all cores."
    )
    force: bool = FORCE


@takes_urls
def build_datastore(
    *,
    corpus: CorpusOptions,
    tokens: str | None = TOKENS,
    options: DatastoreOptions,
    where: ExecutorOptions,
    out: Output,
) -> None:
    """Build a datastore (REST): suffix arrays that find any phrase of a corpus.

    Example: ngramkit build-datastore --corpus python-stdlib
    """
    source, text = corpus.source_and_options(out, tokens)
    built = ngramkit.build_datastore(
        source, **text, **vars(options), **vars(where), reporter=out.reporter
    )
    shards = len(built.manifest.files)
    _print_result(
        built, f"{_documents_and_tokens(built)} in {counted(shards, 'shard')}", out, shards=shards
    )


@dataclass(frozen=True)
class FrozenOptions:
    out: str | None = OUT
    leader_len: int = typer.Option(1, metavar="1..4", help="Tokens in a leader.")
    leaders: int = typer.Option(1048576, help="Keep this many of the most frequent leaders.")
    follower_len: int = typer.Option(3, metavar="1..8", help="Tokens in a follower.")
    followers: int = typer.Option(128, help="Keep this many followers of each leader.")
    memory: Any = MEMORY
    workers: int | None = typer.Option(
        None, min=1, help="Counting threads. Default: all cores. The bytes stay the same."
    )
    force: bool = FORCE


@takes_urls
def build_frozen(
    *,
    corpus: CorpusOptions,
    tokens: str | None = TOKENS,
    options: FrozenOptions,
    where: ExecutorOptions,
    out: Output,
) -> None:
    """Build a frozen table (Cacheback): frequent n-grams with their most frequent followers.

    Example: ngramkit build-frozen --corpus python-stdlib
    """
    source, text = corpus.source_and_options(out, tokens)
    table = ngramkit.build_frozen(
        source, **text, **vars(options), **vars(where), reporter=out.reporter
    )
    counts = table.manifest.counts
    kept = {name: counts[name] for name in ("leaders", "followers")}
    contents = ", ".join(counted(count, name.removesuffix("s")) for name, count in kept.items())
    _print_result(table, f"{contents} of {counted(counts['tokens'], 'token')}", out, **kept)


def _documents_and_tokens(artifact: Artifact) -> str:
    counts = artifact.manifest.counts
    return f"{counted(counts['documents'], 'document')}, {counted(counts['tokens'], 'token')}"


def _print_result(artifact: Artifact, contents: str, out: Output, **counts: int) -> None:
    """Print the result; `counts` are extra JSON fields."""
    manifest = artifact.manifest
    in_one_run = out.reporter.worked and not out.reporter.continues
    rate = round(manifest.counts["tokens"] / out.seconds) if in_one_run else None
    speed = "" if rate is None else f", {rate:,} tokens/s"
    out.show(f"{artifact.where}: {contents}, {size_text(manifest.bytes)}{speed}")
    out.result(
        artifact.where,
        documents=manifest.counts["documents"],
        bad_records=manifest.corpus.get("bad_records", 0),
        tokens=manifest.counts["tokens"],
        bytes=manifest.bytes,
        tokens_per_second=rate,
        peak_rss_bytes=peak_rss(),
        **counts,
    )


@dataclass(frozen=True)
class RecipeOptions:
    push: bool = typer.Option(
        False, "--push", help="Verify the artifact, then upload it to the recipe's destination."
    )
    allow_private: bool = typer.Option(
        False, "--allow-private", help="With --push: upload private artifacts too."
    )
    check: bool = typer.Option(
        False, "--check", help="Build nothing; exit with 1 if anything would be built."
    )
    out: str = typer.Option(str(ARTIFACTS), metavar="DIR|URL", help="The folder of the artifacts.")
    workers: int | None = typer.Option(
        None, min=1, help="Threads. Default: all cores. The bytes stay the same."
    )


@takes_urls
def build(
    *,
    recipes: list[str] = typer.Argument(
        metavar="RECIPE ...", help="A file, or a name in artifacts/."
    ),
    options: RecipeOptions,
    where: ExecutorOptions,
    out: Output,
) -> None:
    """Build missing and stale artifacts from recipes.

    Example: ngramkit build demo --check
    """
    from ngramkit.recipe_files import read_recipe

    opened = [read_recipe(name) for name in recipes]  # read all before building any
    rows: list[RecipeResult] = []
    try:
        for recipe in opened:
            try:
                result = ngramkit.build(
                    recipe, **vars(options), **vars(where), reporter=out.reporter
                )
            except Exception as error:
                error.add_note(f"The recipe is {recipe.name}.")
                raise
            rows.append(result)
            out.show(f"{recipe.name}: {result.status} ({result.why})")
    finally:
        _append_summary(rows)
    out.result(options.out, results=[row.to_dict() for row in rows])
    if any(row.status == "would build" for row in rows):
        raise typer.Exit(1)


def _append_summary(rows: list[RecipeResult]) -> None:
    """Append a table to the summary of a GitHub Actions run."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not rows:
        return
    lines = ["| recipe | status | why | bytes | on the Hub |", "|---|---|---|---|---|"]
    for row in rows:
        size = "" if row.bytes is None else f"{row.bytes:,}"
        where = f"{row.destination}@{row.revision}" if row.revision else ""
        lines.append(f"| {row.recipe} | {row.status} | {row.why} | {size} | {where} |")
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")
