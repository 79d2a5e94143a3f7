"""`ngramkit models`, `ngramkit model-bigram` and `ngramkit model-unigram`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import ngramkit
from ngramkit_cli.decode_options import LoadOptions
from ngramkit_cli.options import Force, ModelName, NamedModel, Out, takes_urls, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.screen import figures

if TYPE_CHECKING:
    from ngramkit.builders.model_passes import Work
    from ngramkit.formats.model_bigram import ModelBigram
    from ngramkit.formats.model_unigram import ModelUnigram

K = Annotated[int, typer.Option("--k", metavar="N", help="Keep the N likeliest tokens.")]
Width = Annotated[int, typer.Option(metavar="N", help="Tokens in a draft, the first included.")]
Prefix = Annotated[
    str, typer.Option(metavar="none|bos", help="What the model reads before each token.")
]
Extend = Annotated[
    str,
    typer.Option(
        metavar="bigram|model",
        help="How drafts go on: by the likeliest next token of the table, or by the model's own "
        "greedy decoding (K times the work).",
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        metavar="distance|inner-product",
        help="What makes a token likely: an output embedding near the mean of all, or one that "
        "points away from it.",
    ),
]


def models(*, out: Output) -> None:
    """List the models that have short names.

    Example: ngramkit models
    """
    from ngramkit.models import DEFAULT, HUB_IDS, chosen_model, described

    chosen = chosen_model()
    marks = {chosen.name: f"  <- {chosen.why}"}
    known = (DEFAULT, *HUB_IDS)
    out.show(*figures([(name, described(name) + marks.get(name, "")) for name in known]))
    out.show(
        "",
        "Any other model: its Hub id (owner/name), a folder,",
        "a GGUF file, or one of the Hub (hf:owner/name:file.gguf)",
    )
    if chosen.name not in (DEFAULT, *HUB_IDS):
        out.show(f"{chosen.name}   <- {chosen.why}")
    out.show("Choose one for every command: ngramkit use MODEL")
    out.result(models={DEFAULT: None, **HUB_IDS}, chosen=chosen.name, why=chosen.why)


@takes_urls
def model_bigram(
    *,
    model: ModelName = None,
    named: NamedModel = None,
    out_dir: Out = None,
    k: K = 100,
    width: Width = 4,
    prefix: Prefix = "none",
    extend: Extend = "bigram",
    load: LoadOptions,
    force: Force = False,
    out: Output,
) -> None:
    """Build a model's bigram table (N-Grammys): what it holds likely after every single token.

    Example: ngramkit model-bigram demo
    """
    built = ngramkit.model_bigram(
        the_model(model, out, named),
        out_dir,
        k=k,
        width=width,
        prefix=prefix,
        extend=extend,
        **load.words(),
        reporter=out.reporter,
        force=force,
    )
    table = built.table
    contents = (
        f"{table.tokenizer.vocabulary:,} tokens, {table.k:,} drafts of {table.width} after each"
    )
    _done(table, contents, table.width, built.work, out)


@takes_urls
def model_unigram(
    *,
    model: ModelName = None,
    named: NamedModel = None,
    out_dir: Out = None,
    k: K = 100,
    rule: Rule = "distance",
    load: LoadOptions,
    force: Force = False,
    out: Output,
) -> None:
    """Build a model's unigram table (N-Grammys): tokens that its embeddings make likely anywhere.

    Example: ngramkit model-unigram demo
    """
    built = ngramkit.model_unigram(
        the_model(model, out, named),
        out_dir,
        k=k,
        rule=rule,
        **load.words(),
        reporter=out.reporter,
        force=force,
    )
    table = built.table
    contents = f"the {table.k:,} likeliest of {table.tokenizer.vocabulary:,} tokens by {rule}"
    _done(table, contents, 1, built.work, out)


def _done(
    table: ModelBigram | ModelUnigram, contents: str, width: int, work: Work | None, out: Output
) -> None:
    """Say what was built, and how fast where there was any work to do."""
    speed, rate = "", None
    if work is not None:
        rate = round(work.flops_per_second)
        speed = (
            f"; {work.seconds:.2f} s after loading, {rate / 1e9:,.0f} GFLOP/s, "
            f"{work.flops_per_second / work.peak:.0%} of one large matrix product's"
        )
    out.say(f"{table.where}: {contents}, {table.manifest.bytes:,} bytes{speed}")
    out.result(
        table.where,
        vocabulary=table.tokenizer.vocabulary,
        k=table.k,
        width=width,
        flops_per_second=rate,
    )
