"""What build-datastore and build-frozen read (a token store, or a corpus that becomes one), and
where they write by default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit.errors import UsageError
from ngramkit_cli.corpus_options import CorpusOptions
from ngramkit_cli.demo_notice import warn_of_demo
from ngramkit_cli.options import the_model
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.formats.tokens import TokenStore

Tokens = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="DIR", help="A token store, in place of --corpus."),
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


def open_store(
    corpus: CorpusOptions, tokens: Path | None, model: str | None, eos: bool, out: Output
) -> TokenStore:
    """Opens --tokens, or tokenises --corpus; says which tokenizer it is.

    Raises UsageError unless exactly one of them was given.
    """
    if tokens is not None:
        from ngramkit.formats.tokens import TokenStore

        if corpus.corpus is not None:
            raise UsageError("--corpus and --tokens exclude each other", "drop one of them")
        store = TokenStore.open(tokens)
        out.say(f"tokenizer: {store.tokenizer.id} (of {tokens})")
        return store
    from ngramkit.builders.tokens import build_tokens

    name = the_model(model, out)
    warn_of_demo([corpus.corpus or ""], name, out)
    return build_tokens(corpus.open(out), name, eos=eos, reporter=out.reporter)


def default_out(store: TokenStore, kind: str) -> Path:
    """artifacts/CORPUS-MODEL-KIND."""
    from ngramkit.formats.places import default_place

    corpus = store.manifest.corpus.get("id", store.path.name)
    return default_place(corpus, store.tokenizer.id, kind)


def memory_bytes(memory: str | None) -> int | None:
    """Raises UsageError where it is no size."""
    from ngramkit.machine import parse_size

    return None if memory is None else parse_size(memory)
