"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import parse_size
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.python_drafters import FORM


def model_option(help: str, metavar: str = "ID[@REVISION]|PATH") -> Any:
    """Return the option --model; the shell completes models' names."""
    return typer.Option(None, metavar=metavar, help=help, autocompletion=completion.models)


def artifact_argument(metavar: str, help: str, *kinds: str) -> Any:
    """Return an argument that is an artifact of `kinds`, of any kind without them."""
    complete = completion.artifacts(*kinds)
    return typer.Argument(metavar=metavar, help=help, autocompletion=complete)


FORCE = typer.Option(False, "--force", help="Replace what --out holds.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")
WHICH_MODEL = "Default: NGRAMKIT_MODEL, else the one of `ngramkit use`, else demo."


@dataclass(frozen=True)
class NamedModel:
    """The model as an argument, or as --model like everywhere else."""

    model_name: str | None = typer.Argument(
        None,
        metavar="MODEL",
        help="A causal language model: a name from `ngramkit models`, a Hub id (ID@REVISION), "
        f"a folder or a GGUF file. {WHICH_MODEL}",
        autocompletion=completion.models,
    )
    model: str | None = model_option("The same.")

    def chosen(self, out: Output) -> str:
        """Return and report the model's name. Raises UsageError for two names."""
        if self.model_name is not None and self.model not in (None, self.model_name):
            raise UsageError(
                f"MODEL must be the same as --model, got {self.model_name} and {self.model}",
                "Give one of them.",
            )
        return the_model(self.model if self.model_name is None else self.model_name, out)


LIMIT = typer.Option(None, min=1, help="Only the first N questions or conversations.")
MODEL = model_option(
    "The model (here: its tokenizer): a short name, a Hub id, a folder or a GGUF file "
    f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}"
)
OUT = typer.Option(
    None,
    "--out",
    metavar="DIR|URL",
    help="The artifact's folder; a URL is s3://, gs:// or hf://buckets/ID/... Default: under "
    "artifacts/.",
)


def the_model(given: str | None, out: Output) -> str:
    """Return and report the model's name."""
    from ngramkit.basics.models import DEFAULT_MODEL, chosen_model, describe_model

    chosen = chosen_model(given)
    known = "" if chosen.name == DEFAULT_MODEL else describe_model(chosen.name)
    out.say(f"model: {chosen.name}{known and f' = {known}'}{chosen.why and f' ({chosen.why})'}")
    return chosen.name


# Parsers of options' values. They raise BadParameter.


def whole_numbers(text: str) -> list[int]:
    """Parse a list like 8,16."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise typer.BadParameter(f"it must be a list of numbers like 8,16, got {text!r}")
    return [int(part) for part in parts]


def size_in_bytes(text: str) -> int:
    """Parse a size like 4G."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise typer.BadParameter(f"{error}. {error.hint}") from error


def fields_by_name(text: str) -> dict[str, str]:
    """Parse a list like prompt=question,output=answer."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise typer.BadParameter(f"it must be a list like FIELD=VALUE,..., got {text!r}")
    found = {name.strip(): value.strip() for name, _, value in pairs}
    if len(found) < len(pairs):
        raise typer.BadParameter(f"it must name each field once, got {text!r}")
    return found


MEMORY = typer.Option(
    None,
    metavar="SIZE",
    parser=size_in_bytes,
    help="Like 4G or 512M. Default: half of the free memory.",
)


# Sources of drafts.

SOURCE_METAVAR = "PATH|URL|hf://USER/NAME@REV"


def _drafter_option(more: str) -> Any:
    return typer.Option(
        None,
        metavar=f"NAME[:OPTION=VALUE,...]|{FORM}",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8, or the class of an installed "
        f"package{more}.",
        autocompletion=completion.drafters,
    )


DRAFTER_OR_CLASS = _drafter_option(". Default: blend")
DRAFTER_NAMES = _drafter_option("; may be repeated")
BASELINE = typer.Option(
    None,
    metavar="NAME",
    help="Compare every other drafter with this one of them, in place of all pairs.",
    autocompletion=completion.drafters,
)


def source_option(kind: str, help: str) -> Any:
    complete = completion.artifacts(kind)
    return typer.Option(None, metavar=SOURCE_METAVAR, help=help, autocompletion=complete)


@dataclass(frozen=True)
class SourceOptions:
    """The artifacts to draft from; without any, those that fit under artifacts/."""

    PANEL: ClassVar[str] = "Sources of drafts"

    datastore: list[str] | None = source_option(
        "datastore", "May be repeated. Default: all that fit, without copies and parts of others."
    )
    frozen_table: str | None = source_option("frozen-table", "Default: the largest that fits.")
    bigram: str | None = source_option(
        "model-bigram", "A model's bigram table. Default: its own, if built."
    )
    unigram: str | None = source_option(
        "model-unigram", "A model's unigram table. Default: its own, if built."
    )
    history: Path | None = typer.Option(
        None,
        metavar="DIR",
        help="Past requests, for the drafters that learn from them; decode creates it. "
        "Default: nothing outlives the command.",
    )
    history_tokens: int = typer.Option(
        HISTORY_TOKENS, min=1, help="Draft from its newest N tokens."
    )
    no_store: bool = typer.Option(False, "--no-store", help="Add nothing to the history.")

    def keywords(self) -> dict[str, Any]:
        return {
            "datastores": self.datastore or (),
            "frozen_table": self.frozen_table,
            "bigram": self.bigram,
            "unigram": self.unigram,
            "history": self.history,
            "history_tokens": self.history_tokens,
            "store": not self.no_store,
        }


# Logs of requests.

LOGS = typer.Argument(
    metavar="FILE|DIR...",
    help="Logs of servers, trajectories of agents, rollouts; see docs/logs.md. - is stdin.",
)
REMEMBER_PROMPTS = typer.Option(False, "--prompts", help="Remember prompts too, not only outputs.")


@dataclass(frozen=True)
class LogOptions:
    PANEL: ClassVar[str] = "Log"

    format: str | None = typer.Option(
        None,
        metavar="NAME",
        help="The files' format, such as vllm, openai or verl. Default: recognised by content.",
        autocompletion=completion.log_formats,
    )
    columns: Any = typer.Option(
        None,
        metavar="FIELD=COLUMN,...",
        parser=fields_by_name,
        help="Columns of JSON lines: prompt=question,output=answer, and name, kind, reference, "
        "time, run, turn. a.b is the field b of a.",
    )
    where: Any = typer.Option(
        None,
        metavar="FIELD=VALUE,...",
        parser=fields_by_name,
        help="Read only matching requests: model=NAME, or kind, run or name.",
    )


# Questions.

TEMPLATES = "own, vicuna, llama-2, mistral, chatml, none (texts as they stand)"
QUESTIONS = (
    "MT-Bench's, Spec-Bench's, HumanEval's or GSM8K's jsonl (.gz), jsonl with prompts, or a .txt "
    "with one prompt per line; spec-bench or speed-bench:CONFIG@REVISION downloads them. "
    "Default for the model demo: its embedded prompts."
)
ANSWERED_QUESTIONS = typer.Option(
    None,
    metavar="FILE|SET",
    help="FastChat's or Spec-Bench's questions, or spec-bench or speed-bench:CONFIG.",
)
TEMPLATE_RULE = "the model's own, else the one known for its name"
TEMPLATE_OF_QUESTIONS = typer.Option(
    "auto",
    metavar="NAME",
    help=f"How conversations become prompts: {TEMPLATES}, or auto: {TEMPLATE_RULE}.",
    autocompletion=completion.templates,
)


@dataclass(frozen=True)
class QuestionOptions:
    PANEL: ClassVar[str] = "Questions"

    questions: Path | None = typer.Option(None, metavar="FILE|SET", help=QUESTIONS)
    template: str = TEMPLATE_OF_QUESTIONS
    limit: int | None = LIMIT


# The executor of a build: this machine, or the nodes of a Ray cluster.

EXECUTORS = "local|ray"


@dataclass(frozen=True)
class ExecutorOptions:
    PANEL: ClassVar[str] = "Cluster"

    executor: str = typer.Option(
        "local",
        metavar=EXECUTORS,
        help="Run on this machine or on a Ray cluster. The bytes stay the same.",
        autocompletion=lambda: EXECUTORS.split("|"),
    )
    ray_address: str | None = typer.Option(
        None,
        metavar="auto|HOST:PORT",
        help="The Ray cluster. Default: RAY_ADDRESS, else auto (this machine's).",
    )


# The staging cache, for commands that read or write artifacts by URL.
#
# @takes_urls
# def verify(path: ArtifactPath) -> None: ...

TAKING_URLS: set[Callable[..., None]] = set()


@dataclass(frozen=True)
class StagingOptions:
    PANEL: ClassVar[str] = "Cache of downloads"

    cache_dir: str | None = typer.Option(
        None,
        metavar="DIR",
        help="The cache of files of URLs. Default: NGRAMKIT_CACHE_DIR, else the user's cache "
        "folder.",
    )
    cache_size: Any = typer.Option(
        None,
        metavar="SIZE",
        parser=size_in_bytes,
        help="The maximum size of that cache, like 20G; least recently used files are deleted "
        "first. Default: NGRAMKIT_CACHE_SIZE, else half of the free space there.",
    )


def takes_urls(command: Callable[..., None]) -> Callable[..., None]:
    """Add --cache-dir and --cache-size to a command."""
    TAKING_URLS.add(command)
    return command
