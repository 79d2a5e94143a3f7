"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import parse_size
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.python_drafters import FORM


def model_option(help: str, metavar: str = "ID[@REVISION]|PATH") -> Any:
    """Return the option --model; the shell completes models' names."""
    return typer.Option("--model", metavar=metavar, help=help, autocompletion=completion.models)


def artifact_argument(metavar: str, help: str, *kinds: str) -> Any:
    """Return an argument that is an artifact of `kinds`, of any kind without them."""
    complete = completion.artifacts(*kinds)
    return typer.Argument(metavar=metavar, help=help, autocompletion=complete)


Force = Annotated[bool, typer.Option("--force", help="Replace what --out holds.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
WHICH_MODEL = "Default: NGRAMKIT_MODEL, else the one of `ngramkit use`, else demo."


@dataclass(frozen=True)
class NamedModel:
    """The model as an argument, or as --model like everywhere else."""

    model_name: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A causal language model: a name from `ngramkit models`, a Hub id (ID@REVISION), "
            f"a folder or a GGUF file. {WHICH_MODEL}",
            autocompletion=completion.models,
        ),
    ] = None
    model: Annotated[str | None, model_option("The same.")] = None

    def chosen(self, out: Output) -> str:
        """Return and report the model's name. Raises UsageError for two names."""
        if self.model_name is not None and self.model not in (None, self.model_name):
            raise UsageError(
                f"MODEL must be the same as --model, got {self.model_name} and {self.model}",
                "Give one of them.",
            )
        return the_model(self.model if self.model_name is None else self.model_name, out)


Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="Only the first N questions or conversations.")
]
Model = Annotated[
    str | None,
    model_option(
        "The model (here: its tokenizer): a short name, a Hub id, a folder or a GGUF file "
        f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}"
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR|URL",
        help="The artifact's folder; a URL is s3://, gs:// or hf://buckets/ID/... Default: under "
        "artifacts/.",
    ),
]


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


Memory = Annotated[
    Any,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=size_in_bytes,
        help="Like 4G or 512M. Default: half of the free memory.",
    ),
]


# Sources of drafts.

SOURCE_METAVAR = "PATH|URL|hf://USER/NAME@REV"


def _drafter_option(more: str) -> Any:
    return typer.Option(
        "--drafter",
        metavar=f"NAME[:OPTION=VALUE,...]|{FORM}",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8, or the class of an installed "
        f"package{more}.",
        autocompletion=completion.drafters,
    )


DrafterOrClass = Annotated[str | None, _drafter_option(". Default: blend")]
DrafterNames = Annotated[list[str] | None, _drafter_option("; may be repeated")]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="Compare every other drafter with this one of them, in place of all pairs.",
        autocompletion=completion.drafters,
    ),
]


def _source_option(kind: str, help: str) -> Any:
    complete = completion.artifacts(kind)
    return typer.Option(metavar=SOURCE_METAVAR, help=help, autocompletion=complete)


@dataclass(frozen=True)
class SourceOptions:
    """The artifacts to draft from; without any, those that fit under artifacts/."""

    PANEL: ClassVar[str] = "Sources of drafts"

    datastore: Annotated[
        list[str] | None,
        _source_option(
            "datastore",
            "May be repeated. Default: all that fit, without copies and parts of others.",
        ),
    ] = None
    frozen_table: Annotated[
        str | None, _source_option("frozen-table", "Default: the largest that fits.")
    ] = None
    bigram: Annotated[
        str | None,
        _source_option("model-bigram", "A model's bigram table. Default: its own, if built."),
    ] = None
    unigram: Annotated[
        str | None,
        _source_option("model-unigram", "A model's unigram table. Default: its own, if built."),
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Past requests, for the drafters that learn from them; decode creates it. "
            "Default: nothing outlives the command.",
        ),
    ] = None
    history_tokens: Annotated[int, typer.Option(min=1, help="Draft from its newest N tokens.")] = (
        HISTORY_TOKENS
    )
    no_store: Annotated[bool, typer.Option("--no-store", help="Add nothing to the history.")] = (
        False
    )

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

Logs = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE|DIR...",
        help="Logs of servers, trajectories of agents, rollouts; see docs/logs.md. - is stdin.",
    ),
]
RememberPrompts = Annotated[
    bool, typer.Option("--prompts", help="Remember prompts too, not only outputs.")
]


@dataclass(frozen=True)
class LogOptions:
    PANEL: ClassVar[str] = "Log"

    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The files' format, such as vllm, openai or verl. Default: recognised by content.",
            autocompletion=completion.log_formats,
        ),
    ] = None
    columns: Annotated[
        Any,
        typer.Option(
            metavar="FIELD=COLUMN,...",
            parser=fields_by_name,
            help="Columns of JSON lines: prompt=question,output=answer, and name, kind, reference, "
            "time, run, turn. a.b is the field b of a.",
        ),
    ] = None
    where: Annotated[
        Any,
        typer.Option(
            metavar="FIELD=VALUE,...",
            parser=fields_by_name,
            help="Read only matching requests: model=NAME, or kind, run or name.",
        ),
    ] = None


# Questions.

TEMPLATES = "own, vicuna, llama-2, mistral, chatml, none (texts as they stand)"
QUESTIONS = (
    "MT-Bench's, Spec-Bench's, HumanEval's or GSM8K's jsonl (.gz), jsonl with prompts, or a .txt "
    "with one prompt per line; spec-bench or speed-bench:CONFIG@REVISION downloads them. "
    "Default for the model demo: its embedded prompts."
)
Questions = Annotated[Path | None, typer.Option("--questions", metavar="FILE|SET", help=QUESTIONS)]
QuestionsOrPrompts = Annotated[
    Path | None,
    typer.Option(
        "--questions", "--prompts", metavar="FILE|SET", help=f"Questions to ask: {QUESTIONS}"
    ),
]
AnsweredQuestions = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        metavar="FILE|SET",
        help="FastChat's or Spec-Bench's questions, or spec-bench or speed-bench:CONFIG.",
    ),
]
TEMPLATE_RULE = "the model's own, else the one known for its name"
TemplateOfQuestions = Annotated[
    str,
    typer.Option(
        "--template",
        metavar="NAME",
        help=f"How conversations become prompts: {TEMPLATES}, or auto: {TEMPLATE_RULE}.",
        autocompletion=completion.templates,
    ),
]


@dataclass(frozen=True)
class QuestionOptions:
    PANEL: ClassVar[str] = "Questions"

    questions: Questions = None
    template: TemplateOfQuestions = "auto"
    limit: Limit = None


# The executor of a build: this machine, or the nodes of a Ray cluster.

EXECUTORS = "local|ray"


@dataclass(frozen=True)
class ExecutorOptions:
    PANEL: ClassVar[str] = "Cluster"

    executor: Annotated[
        str,
        typer.Option(
            metavar=EXECUTORS,
            help="Run on this machine or on a Ray cluster. The bytes stay the same.",
            autocompletion=lambda: EXECUTORS.split("|"),
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="The Ray cluster. Default: RAY_ADDRESS, else auto (this machine's).",
        ),
    ] = None


# The staging cache, for commands that read or write artifacts by URL.
#
# @takes_urls
# def verify(path: ArtifactPath) -> None: ...

TAKING_URLS: set[Callable[..., None]] = set()


@dataclass(frozen=True)
class StagingOptions:
    PANEL: ClassVar[str] = "Cache of downloads"

    cache_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The cache of files of URLs. Default: NGRAMKIT_CACHE_DIR, else the user's cache "
            "folder.",
        ),
    ] = None
    cache_size: Annotated[
        Any,
        typer.Option(
            metavar="SIZE",
            parser=size_in_bytes,
            help="The maximum size of that cache, like 20G; least recently used files are deleted "
            "first. Default: NGRAMKIT_CACHE_SIZE, else half of the free space there.",
        ),
    ] = None


def takes_urls(command: Callable[..., None]) -> Callable[..., None]:
    """Add --cache-dir and --cache-size to a command."""
    TAKING_URLS.add(command)
    return command
