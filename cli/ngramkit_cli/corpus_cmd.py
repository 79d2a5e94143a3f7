"""`ngramkit corpora`: the corpora that have names."""

from __future__ import annotations

import ngramkit
from ngramkit_cli.errors import Flag, with_flags
from ngramkit_cli.output import Output
from ngramkit_cli.screen import wrapped

# Options that the summaries of corpora name, of the commands that read one.
CORPUS_FLAGS = {"language": Flag("--language"), "join_turns": Flag("--join-turns", switch=True)}


def corpora(*, out: Output) -> None:
    """List the corpora that have names.

    Example: ngramkit corpora
    """
    named = ngramkit.corpora()
    for corpus in named:
        where = corpus.hub or "embedded"
        gated = ", gated: hf auth login" if corpus.gated else ""
        summary = with_flags(corpus.summary, CORPUS_FLAGS, CORPUS_FLAGS)
        out.show(f"{corpus.name}  ({where}{gated})", *wrapped(summary, 4))
    out.show("hf:ID[:CONFIG]", "    any other dataset on the Hub")
    urls = "s3://, gs://, hf://datasets/..., hf://buckets/..., https://"
    files = "files: .txt .md .py .jsonl .json .csv .tsv .parquet .arrow, also .gz .zst"
    out.show("PATH, 'GLOB', URL", *wrapped(f"{files}; {urls}", 4))
    out.result(corpora=named.to_dict())
