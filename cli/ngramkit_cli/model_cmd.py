"""The commands about a model: `models`, `use`, `calibrate`, `model-bigram` and `model-unigram`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import ngramkit
from ngramkit.basics.terminal_text import device_text, size_text
from ngramkit_cli import completion
from ngramkit_cli.decode_options import LoadOptions
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import FORCE, OUT, NamedModel, takes_urls
from ngramkit_cli.tables import table_of_figures, wrap_text

if TYPE_CHECKING:
    from ngramkit.budget.profile import Profile
    from ngramkit.formats.model_bigram import ModelBigram
    from ngramkit.formats.model_unigram import ModelUnigram

TOP_K = typer.Option(100, metavar="N", help="Keep the N likeliest tokens.")


def models(*, out: Output) -> None:
    """List the models that have short names.

    Example: ngramkit models
    """
    known = ngramkit.models()
    mark = {each.name: f"  <- {each.chosen}" for each in known if each.chosen}
    short = [each for each in known if each.described]
    out.show(
        *table_of_figures([(each.name, each.described + mark.get(each.name, "")) for each in short])
    )
    out.show(
        "",
        *wrap_text(
            "Any other model: its Hub id (owner/name), a folder, a GGUF file, or one of the Hub "
            "(hf:owner/name:file.gguf)",
            0,
        ),
    )
    chosen = next(each for each in known if each.chosen)
    if not chosen.described:
        out.show(f"{chosen.name}{mark[chosen.name]}")
    out.show(*wrap_text("Choose one for every command: ngramkit use MODEL", 0, 2))
    ids = {each.name: each.hub_id for each in short}
    out.result(models=ids, chosen=chosen.name, why=chosen.chosen)


@takes_urls
def model_bigram(
    *,
    model: NamedModel,
    out_dir: str | None = OUT,
    k: int = TOP_K,
    width: int = typer.Option(4, metavar="N", help="Tokens in a draft, the first included."),
    prefix: str = typer.Option(
        "none", metavar="none|bos", help="Prefix that the model reads before each token."
    ),
    extend: str = typer.Option(
        "bigram",
        metavar="bigram|model",
        help="Continue drafts by the likeliest next token of the table, or by the model's own "
        "greedy decoding (K times the work).",
    ),
    load: LoadOptions,
    force: bool = FORCE,
    out: Output,
) -> None:
    """Build a model's bigram table (N-Grammys): its most likely tokens after every token.

    Example: ngramkit model-bigram demo
    """
    built = ngramkit.model_bigram(
        model.chosen(out),
        out_dir,
        k=k,
        width=width,
        prefix=prefix,
        extend=extend,
        **vars(load),
        reporter=out.reporter,
        force=force,
    )
    table = built.table
    contents = (
        f"{table.tokenizer.vocabulary:,} tokens, {table.k:,} drafts of {table.width} after each"
    )
    _print_table(table, contents, table.width, built.seconds, out)


@takes_urls
def model_unigram(
    *,
    model: NamedModel,
    out_dir: str | None = OUT,
    k: int = TOP_K,
    rule: str = typer.Option(
        "distance",
        metavar="distance|inner-product",
        help="A token is likely if its output embedding is near the mean of all, or if it points "
        "away from it.",
    ),
    load: LoadOptions,
    force: bool = FORCE,
    out: Output,
) -> None:
    """Build a model's unigram table (N-Grammys): tokens that its embeddings make likely anywhere.

    Example: ngramkit model-unigram demo
    """
    built = ngramkit.model_unigram(
        model.chosen(out), out_dir, k=k, rule=rule, **vars(load), reporter=out.reporter, force=force
    )
    table = built.table
    contents = f"the {table.k:,} likeliest of {table.tokenizer.vocabulary:,} tokens by {rule}"
    _print_table(table, contents, 1, built.seconds, out)


def _print_table(
    table: ModelBigram | ModelUnigram, contents: str, width: int, seconds: float | None, out: Output
) -> None:
    took = "" if seconds is None else f"; {seconds:.2f} s after loading"
    out.show(f"{table.where}: {contents}, {size_text(table.manifest.bytes)}{took}")
    out.result(table.where, vocabulary=table.tokenizer.vocabulary, k=table.k, width=width)


def use(
    *,
    model: str | None = typer.Argument(
        None,
        metavar="MODEL",
        help="A short name, a Hub id, a folder or a GGUF file; demo is the embedded one. "
        "Default: show which.",
        autocompletion=completion.models,
    ),
    unset: bool = typer.Option(False, "--unset", help="Reset it to the embedded model."),
    out: Output,
) -> None:
    """Set the default model: of every command without --model.

    Example: ngramkit use vicuna-7b
    """
    from ngramkit.basics.models import MODEL_VARIABLE, settings_path

    now = ngramkit.use(model, unset=unset)
    out.show(f"{now.name}{now.why and f' ({now.why})'}")
    if now.why == MODEL_VARIABLE and (model is not None or unset):
        out.say(f"note: {MODEL_VARIABLE} is set, and takes precedence")
    out.result(model=now.name, why=now.why, settings=str(settings_path()))


def calibrate(
    *,
    model: NamedModel,
    loading: LoadOptions,
    seconds: float = typer.Option(20.0, "--seconds", "--time", help="Approximate duration."),
    out: Output,
) -> None:
    """Measure passes by draft size and context length; decode then starts from these times.

    Example: ngramkit calibrate demo
    """
    calibration = ngramkit.calibrate(
        model.chosen(out), **vars(loading), seconds=seconds, reporter=out.reporter
    )
    out.show(*table_lines(calibration.profile))
    out.show(f"profile: {calibration.path}", f"heat map: {calibration.picture}")
    out.result(calibration.path, **calibration.to_dict())


def table_lines(profile: Profile) -> list[str]:
    """Return milliseconds by draft nodes (rows) and context length, with the slow-down."""
    where = f"{device_text(profile.device)}, {profile.dtype}"
    table = profile.measured()
    rows = [
        [str(size), *(f"{1e3 * row[i]:.2f} ({row[i] / row[0]:4.2f})" for row in table)]
        for i, size in enumerate(profile.sizes)
    ]
    head = ["nodes", *(f"{context:,}" for context in profile.contexts)]
    return [
        f"milliseconds per pass (slow-down) on {where}",
        *table_of_figures(rows, head, justify="right"),
    ]
