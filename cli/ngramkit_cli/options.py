"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit.errors import UsageError
from ngramkit.machine import parse_size
from ngramkit_cli.command import options_of, with_parameters
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.drafters.sources import Sources


Force = Annotated[bool, typer.Option("--force", help="Replace what --out holds.")]
WHICH_MODEL = "Default: NGRAMKIT_MODEL, else the one of `ngramkit use`, else demo."
ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A causal language model: a name from `ngramkit models`, a Hub id (ID@REVISION) or a "
        f"folder. {WHICH_MODEL}",
    ),
]
NamedModel = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The model, in place of MODEL.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N questions.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID[@REVISION]|PATH",
        help="The model (here: its tokenizer): a short name, a Hub id, a folder or a GGUF file "
        f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}",
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


def the_model(given: str | None, out: Output, named: str | None = None) -> str:
    """Return the model's name; say it, and why where nobody asked for it.

    Raises UsageError where it is `given` and `named` by an option, too.
    """
    if given is not None and named is not None:
        raise UsageError("MODEL and --model exclude each other", "give one of them")
    from ngramkit.models import DEFAULT, chosen_model, described

    chosen = chosen_model(given if named is None else named)
    known = "" if chosen.name == DEFAULT else described(chosen.name)
    out.say(f"model: {chosen.name}{known and f' = {known}'}{chosen.why and f' ({chosen.why})'}")
    return chosen.name


def checked_size(text: str | None) -> str | None:
    """Return the bytes of an option that is a size, like 4G. Raises BadParameter for another."""
    try:
        return text if text is None else str(parse_size(text))
    except UsageError as error:
        raise typer.BadParameter(f"{error}: {error.hint}") from error


Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=checked_size,
        help="Like 4G or 512M. Default: half of what is free.",
    ),
]


# Options that name what a drafter drafts from.

WHERE = "PATH|URL|hf://USER/NAME@REV"
DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:OPTION=VALUE,...]",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8. Default: blend.",
    ),
]
DrafterNames = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:OPTION=VALUE,...]",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8; may be repeated.",
    ),
]


@dataclass(frozen=True)
class SourceOptions:
    """The artifacts to draft from, an option each; without any, those that fit under artifacts/."""

    datastore: Annotated[
        list[str] | None,
        typer.Option(metavar=WHERE, help="May be repeated. Default: all that fit."),
    ] = None
    frozen_table: Annotated[
        str | None, typer.Option(metavar=WHERE, help="Default: the largest that fits.")
    ] = None
    bigram: Annotated[
        str | None,
        typer.Option(metavar=WHERE, help="A model's bigram table. Default: its own, if built."),
    ] = None
    unigram: Annotated[
        str | None,
        typer.Option(metavar=WHERE, help="A model's unigram table. Default: its own, if built."),
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Past requests, for the drafters that learn from them; decode makes it where "
            "there is none. Default: nothing outlives the command.",
        ),
    ] = None
    history_tokens: Annotated[
        int, typer.Option(min=1, help="How many of its newest are searched.")
    ] = 4_000_000
    no_store: Annotated[bool, typer.Option("--no-store", help="Do not remember this request.")] = (
        False
    )

    def sources(self) -> Sources:
        from ngramkit.drafters.sources import PastUse, Sources

        return Sources(
            datastores=self.datastore or (),
            frozen_table=self.frozen_table,
            bigram=self.bigram,
            unigram=self.unigram,
            past=PastUse(self.history, self.history_tokens, store=not self.no_store),
        )


# The executor of a build: this machine, or the nodes of a Ray cluster.

EXECUTORS = "local|ray"


@dataclass(frozen=True)
class ExecutorOptions:
    """The executor options; a field is an option."""

    executor: Annotated[
        str,
        typer.Option(
            metavar=EXECUTORS,
            help="Where it runs: on this machine, or on a Ray cluster; same bytes.",
            autocompletion=lambda: EXECUTORS.split("|"),
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="The Ray cluster. Default: RAY_ADDRESS, else auto, the one of this machine.",
        ),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        return vars(self)


# Options of the commands that read or write artifacts by URL: the staging cache.
#
# @takes_urls
# def verify(path: ArtifactPath) -> None: ...


@dataclass(frozen=True)
class StagingOptions:
    """Options of where the files of URLs are staged. A field is an option."""

    cache_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where the files of URLs are staged. Default: NGRAMKIT_CACHE_DIR, else the user's "
            "cache folder.",
        ),
    ] = None
    cache_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            callback=checked_size,
            help="The most bytes that are staged, like 20G; files unused longest are deleted "
            "first. Default: NGRAMKIT_CACHE_SIZE, else half of the free space there.",
        ),
    ] = None


def takes_urls(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --cache-dir and --cache-size."""

    def wrapped(*, cache_dir: str | None, cache_size: str | None, **values: Any) -> None:
        from ngramkit.remote.staging import using_cache

        with using_cache(cache_dir, cache_size):
            command(**values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    return with_parameters(wrapped, command, [*own, *options_of(StagingOptions)])
