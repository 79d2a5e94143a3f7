"""corpus -> tokens -> artifact -> drafter -> decode"""

from __future__ import annotations

from typing import Annotated

import typer

from ngramkit_cli import (
    bench_cmd,
    calibrate_cmd,
    corpus_cmd,
    datastore_cmd,
    decode_cmd,
    drafters_cmd,
    exchange_cmd,
    frozen_cmd,
    history_cmd,
    hub_cmd,
    inspect_cmd,
    model_cmd,
    recipe_cmd,
    replay_cmd,
    self_corpus_cmd,
    streams,
    use_cmd,
    warm_cmd,
)
from ngramkit_cli.command import App

app = App(
    name="ngramkit",
    help="corpus -> tokens -> artifact -> drafter -> decode\n\n"
    "Builds, ships and runs the lookup artifacts of training-free speculative decoding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        streams.write(f"ngramkit {version('ngramkit')}")
        raise typer.Exit


# In the order of the flow, then what judges, ships and exchanges artifacts.

app.command()(corpus_cmd.corpora)
app.command()(corpus_cmd.tokenize)
app.command()(datastore_cmd.build_datastore)
app.command()(frozen_cmd.build_frozen)
app.command()(model_cmd.models)
app.command()(use_cmd.use)
app.command()(model_cmd.model_bigram)
app.command()(model_cmd.model_unigram)
app.command()(inspect_cmd.inspect)
app.command()(inspect_cmd.verify)
app.command()(drafters_cmd.drafters)
app.command()(replay_cmd.replay)
app.command()(calibrate_cmd.calibrate)
app.command()(decode_cmd.decode)
app.add_typer(history_cmd.app)
app.command()(bench_cmd.bench)
app.command()(self_corpus_cmd.self_corpus)
app.command()(recipe_cmd.build)
app.command()(hub_cmd.push)
app.command()(hub_cmd.pull)
app.command()(hub_cmd.search)
app.command()(exchange_cmd.export)
app.command("import")(exchange_cmd.import_)
app.command()(exchange_cmd.merge)
app.command()(warm_cmd.warm)


@app.callback()
def ngramkit(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=say_version, is_eager=True),
    ] = False,
) -> None:
    pass


def run() -> None:
    streams.prepare()
    app()
