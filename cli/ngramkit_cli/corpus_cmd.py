"""`ngramkit corpora` and `ngramkit tokenize`."""

from __future__ import annotations

from typing import Annotated

import typer

import ngramkit
from ngramkit.text import many
from ngramkit_cli.demo_notice import warn_of_demo
from ngramkit_cli.errors import Flag, with_flags
from ngramkit_cli.options import (
    CorpusOptions,
    ExecutorOptions,
    Force,
    Model,
    Out,
    takes_urls,
    the_model,
)
from ngramkit_cli.output import Output, peak_rss
from ngramkit_cli.screen import wrapped

Eos = Annotated[
    bool, typer.Option("--eos/--no-eos", help="End every document with the tokenizer's EOS.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Encoding threads. Default: every core.")]


# Options that the summaries of corpora name, of the commands that read one.
CORPUS_FLAGS = {"language": Flag("--language"), "join_turns": Flag("--join-turns", switch=True)}


def corpora(*, out: Output) -> None:
    """List the corpora that have names.

    Example: ngramkit corpora
    """
    from dataclasses import asdict

    from ngramkit.corpus.open import NAMED

    for corpus in NAMED.values():
        where = corpus.hub or "embedded"
        gated = ", gated: hf auth login" if corpus.gated else ""
        summary = with_flags(corpus.summary, CORPUS_FLAGS, CORPUS_FLAGS)
        out.show(f"{corpus.name}  ({where}{gated})", *wrapped(summary, 4))
    out.show("hf:ID[:CONFIG]", "    any other dataset on the Hub")
    urls = "s3://, gs://, hf://datasets/..., hf://buckets/..., https://"
    files = "files: .txt .md .py .jsonl .json .parquet .arrow, also .gz .zst"
    out.show("PATH, 'GLOB', URL", *wrapped(f"{files}; {urls}", 4))
    out.result(corpora=[asdict(corpus) for corpus in NAMED.values()])


@takes_urls
def tokenize(
    *,
    corpus: CorpusOptions,
    model: Model = None,
    out_dir: Out = None,
    eos: Eos = True,
    workers: Workers = None,
    where: ExecutorOptions,
    force: Force = False,
    out: Output,
) -> None:
    """Tokenise a corpus once: the input of every builder.

    Example: ngramkit tokenize --corpus python-stdlib
    """
    name = the_model(model, out)
    warn_of_demo(corpus.names, name, out)
    store = ngramkit.tokenize(
        corpus.text,
        name,
        out_dir,
        **corpus.options,
        eos=eos,
        workers=workers,
        **where.options,
        reporter=out.reporter,
        force=force,
    )
    counts, size = store.manifest.counts, store.manifest.bytes
    rate = counts["tokens"] / out.seconds
    out.say(
        f"{store.where}: {many(counts['documents'], 'document')}, "
        f"{many(counts['tokens'], 'token')}, "
        f"{size:,} bytes, {rate:,.0f} tokens/s"
    )
    out.result(
        store.where,
        **counts,
        bytes=size,
        tokens_per_second=round(rate),
        peak_rss_bytes=peak_rss(),
        shards=len(store.manifest.files),
    )
