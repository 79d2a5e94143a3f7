"""`ngramkit build-frozen`."""

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

LeaderLen = Annotated[int, typer.Option(metavar="1..4", help="Tokens in a leader.")]
Leaders = Annotated[int, typer.Option(help="Keep this many leaders, the most frequent ones.")]
FollowerLen = Annotated[int, typer.Option(metavar="1..8", help="Tokens in a follower.")]
Followers = Annotated[int, typer.Option(help="Keep this many followers of each leader.")]


@takes_urls
def build_frozen(
    *,
    corpus: CorpusOptions,
    tokens: Tokens = None,
    model: Model = None,
    out_dir: Out = None,
    leader_len: LeaderLen = 1,
    leaders: Leaders = 1048576,
    follower_len: FollowerLen = 3,
    followers: Followers = 128,
    memory: Memory = None,
    where: ExecutorOptions,
    eos: Eos = True,
    force: Force = False,
    out: Output,
) -> None:
    """Build a frozen table (Cacheback): frequent n-grams, each with what follows it most often.

    Example: ngramkit build-frozen --corpus python-stdlib
    """
    limit = None if memory is None else parse_size(memory)
    source = the_source(corpus, tokens, model, eos, out)
    table = ngramkit.build_frozen(
        **source,
        out=out_dir,
        leader_len=leader_len,
        leaders=leaders,
        follower_len=follower_len,
        followers=followers,
        memory=limit,
        **where.options,
        reporter=out.reporter,
        force=force,
    )
    counts = table.manifest.counts
    rate = counts["tokens"] / out.seconds
    out.say(
        f"{table.where}: {many(counts['leaders'], 'leader')}, "
        f"{many(counts['followers'], 'follower')} of {many(counts['tokens'], 'token')}, "
        f"{table.manifest.bytes:,} bytes, {rate:,.0f} tokens/s"
    )
    out.result(
        table.where,
        documents=counts["documents"],
        tokens=counts["tokens"],
        bytes=table.manifest.bytes,
        tokens_per_second=round(rate),
        peak_rss_bytes=peak_rss(),
        leaders=counts["leaders"],
        followers=counts["followers"],
    )
