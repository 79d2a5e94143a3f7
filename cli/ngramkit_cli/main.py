"""The command line: corpus -> tokens -> artifact -> drafter -> decode.

A command is imported only when it runs.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from ngramkit.basics.errors import NgramkitError
from ngramkit_cli import streams
from ngramkit_cli.command import App, Group
from ngramkit_cli.errors import EXIT_FAILED

# Panel of the help -> command -> (module and attribute, summary), in the order of use
PANELS = {
    "From text to artifacts": {
        "corpora": ("corpus_cmd.corpora", "List the corpora that have names"),
        "tokenize": ("build_cmd.tokenize", "Tokenise a corpus"),
        "build-datastore": ("build_cmd.build_datastore", "Build a datastore (REST)"),
        "build-frozen": ("build_cmd.build_frozen", "Build a frozen table (Cacheback)"),
        "model-bigram": ("model_cmd.model_bigram", "Build a model's bigram table (N-Grammys)"),
        "model-unigram": ("model_cmd.model_unigram", "Build a model's unigram table (N-Grammys)"),
        "self-corpus": ("questions_cmd.self_corpus", "Write a model's own answers as a corpus"),
        "build": ("build_cmd.build", "Build missing and stale artifacts from recipes"),
    },
    "Artifacts": {
        "list": ("artifact_cmd.list_", "List the artifacts on this machine"),
        "inspect": ("artifact_cmd.inspect", "Show the content of an artifact"),
        "verify": ("artifact_cmd.verify", "Verify an artifact's integrity"),
        "merge": ("artifact_cmd.merge", "Merge several artifacts into one"),
        "prune": ("artifact_cmd.prune", "Make a datastore or frozen table smaller"),
        "rm": ("artifact_cmd.rm", "Delete artifacts"),
    },
    "Decoding": {
        "models": ("model_cmd.models", "List the models that have short names"),
        "use": ("model_cmd.use", "Set the default model"),
        "drafters": ("drafters_cmd.drafters", "List the drafters"),
        "decode": ("decode_cmd.decode", "Decode with drafts"),
        "calibrate": ("model_cmd.calibrate", "Measure passes by draft size and context length"),
        "history": ("history_cmd.app", "Past requests"),
    },
    "Measuring": {
        "replay": ("replay_cmd.replay", "Replay recorded answers"),
        "bench": ("questions_cmd.bench", "Measure drafters on a model"),
        "record": (
            "questions_cmd.record",
            "Record a model's answers and its top-k at verified nodes",
        ),
    },
    "Serving": {
        "forecast": ("forecast_cmd.forecast", "Forecast what drafts would save a server"),
        "pass-cost": (
            "forecast_cmd.pass_cost",
            "Turn runs of an engine's benchmark into the profile that forecast --pass-cost reads",
        ),
        "check-engine": ("engine_cmd.check_engine", "Check the configuration of a serving engine"),
        "warm": ("engine_cmd.warm", "Compile the kernels now"),
    },
    "Sharing": {
        "push": ("hub_cmd.push", "Upload an artifact to the Hub"),
        "pull": ("hub_cmd.pull", "Download an artifact from the Hub"),
        "search": ("hub_cmd.search", "List the artifacts on the Hub"),
        "export": (
            "exchange_cmd.export",
            "Write an artifact in the format of another engine or data tool",
        ),
        "import": ("exchange_cmd.import_", "Create an artifact from another engine's file"),
    },
}
COMMANDS = {name: row for panel in PANELS.values() for name, row in panel.items()}


class LazyCommands(Mapping[str, Any]):
    """The commands by name, created at their first use."""

    def __getitem__(self, name: str) -> Any:
        return _parser_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@functools.cache
def _parser_command(name: str) -> Any:
    """Return the parser's command or group."""
    module, _, attribute = COMMANDS[name][0].partition(".")
    command = getattr(importlib.import_module(f"ngramkit_cli.{module}"), attribute)
    if isinstance(command, App):
        return typer.main.get_group(command)
    alone = App(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(name)(command)
    return typer.main.get_command(alone)


class Commands(Group):
    """The group of all commands; listing them imports none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def summaries(self) -> list[tuple[str, str]]:
        return [(name, words) for name, (_, words) in COMMANDS.items()]

    def panels(self) -> dict[str, list[tuple[str, str]]]:
        widest = max(map(len, COMMANDS))  # the panels' columns are aligned
        return {
            title: [(name.ljust(widest), words) for name, (_, words) in panel.items()]
            for title, panel in PANELS.items()
        }


app = App(
    name="ngramkit",
    cls=Commands,
    help="corpus -> tokens -> artifact -> drafter -> decode\n\n"
    "Builds, ships and runs the lookup artifacts of training-free speculative decoding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    if wanted:
        from ngramkit import __version__

        streams.write(f"ngramkit {__version__}")
        raise typer.Exit


@app.callback()
def ngramkit(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=print_version, is_eager=True
    ),
) -> None:
    pass


def run() -> None:
    # Python processes of libraries (multiprocessing's tracker) must not import modules from the
    # working folder, which may be untrusted.
    os.environ["PYTHONSAFEPATH"] = "1"
    streams.make_streams_safe()
    try:
        app()
    except (NgramkitError, OSError) as error:  # cannot write help or the version
        streams.forget_stdout()
        if not isinstance(error, BrokenPipeError):
            print("error:", error, file=sys.stderr)
        sys.exit(EXIT_FAILED)
