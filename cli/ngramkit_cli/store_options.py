"""The source of build-datastore and build-frozen: a token store, or a corpus."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ngramkit.errors import UsageError
from ngramkit_cli.corpus_options import CorpusOptions
from ngramkit_cli.demo_notice import warn_of_demo
from ngramkit_cli.options import the_model
from ngramkit_cli.output import Output

Tokens = Annotated[
    str | None,
    typer.Option(
        "--tokens", metavar="DIR|URL", help="A token store's folder or URL, in place of --corpus."
    ),
]
Eos = Annotated[
    bool, typer.Option("--eos/--no-eos", help="End every document with the tokenizer's EOS.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="Like 4G or 512M. Default: half of what is free."
    ),
]


def the_source(
    corpus: CorpusOptions, tokens: str | None, model: str | None, eos: bool, out: Output
) -> dict[str, Any]:
    """Return a builder's source: --tokens, or the corpus and how it is tokenised; say whose ids.

    Raises UsageError unless exactly one of them was given.
    """
    if tokens is not None:
        if corpus.corpus:
            raise UsageError("--corpus and --tokens exclude each other", "drop one of them")
        from ngramkit.formats.tokens import TokenStore
        from ngramkit.remote.fetch import fetch

        store = TokenStore.open(fetch(tokens, reporter=out.reporter).path)
        out.say(f"tokenizer: {store.tokenizer.id} (of {tokens})")
        return {"source": store}
    name = the_model(model, out)
    warn_of_demo(corpus.names, name, out)
    return {"source": corpus.text, "model": name, "eos": eos, **corpus.options}


def memory_bytes(memory: str | None) -> int | None:
    """Return bytes. Raises UsageError where it is no size."""
    from ngramkit.machine import parse_size

    return None if memory is None else parse_size(memory)
