"""`ngramkit build-datastore`."""

from __future__ import annotations

from typing import Annotated

import typer

import ngramkit
from ngramkit.machine import parse_size
from ngramkit.text import many
from ngramkit_cli.options import (
    CorpusOptions,
    Eos,
    ExecutorOptions,
    Force,
    Memory,
    Model,
    Out,
    Tokens,
    takes_urls,
    the_source,
)
from ngramkit_cli.output import Output, peak_rss

ShardTokens = Annotated[
    int | None,
    typer.Option(min=2, help="Fill shards up to this. Default: what --memory allows, up to 2**27."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Shards sorted at a time. Default: every core.")
]


@takes_urls
def build_datastore(
    *,
    corpus: CorpusOptions,
    tokens: Tokens = None,
    model: Model = None,
    out_dir: Out = None,
    shard_tokens: ShardTokens = None,
    memory: Memory = None,
    workers: Workers = None,
    where: ExecutorOptions,
    eos: Eos = True,
    force: Force = False,
    out: Output,
) -> None:
    """Build a datastore (REST): suffix arrays that find any phrase of a corpus at once.

    Example: ngramkit build-datastore --corpus python-stdlib
    """
    limit = None if memory is None else parse_size(memory)
    source = the_source(corpus, tokens, model, eos, out)
    built = ngramkit.build_datastore(
        **source,
        out=out_dir,
        shard_tokens=shard_tokens,
        memory=limit,
        workers=workers,
        **where.options,
        reporter=out.reporter,
        force=force,
    )
    counts, shards = built.manifest.counts, len(built.manifest.files)
    rate = counts["tokens"] / out.seconds
    out.say(
        f"{built.where}: {many(counts['documents'], 'document')}, "
        f"{many(counts['tokens'], 'token')} in {many(shards, 'shard')}, "
        f"{built.manifest.bytes:,} bytes, {rate:,.0f} tokens/s"
    )
    out.result(
        built.where,
        **counts,
        bytes=built.manifest.bytes,
        tokens_per_second=round(rate),
        peak_rss_bytes=peak_rss(),
        shards=shards,
    )
