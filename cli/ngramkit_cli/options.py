"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit.errors import UsageError
from ngramkit_cli.command import options_of, with_parameters
from ngramkit_cli.demo_notice import warn_of_demo
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.corpus.mixing import Weighted
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


def the_model(given: str | None, out: Output) -> str:
    """The model's name; says it, and why where nobody asked for it."""
    from ngramkit.models import DEFAULT, chosen_model, described

    chosen = chosen_model(given)
    known = "" if chosen.name == DEFAULT else described(chosen.name)
    out.say(f"model: {chosen.name}{known and f' = {known}'}{chosen.why and f' ({chosen.why})'}")
    return chosen.name


# The options that choose a corpus, shared by every command that reads text.


@dataclass(frozen=True)
class CorpusOptions:
    """The chosen corpus. Each field is an option."""

    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|hf:ID[:CONFIG]|PATH|GLOB|URL[:WEIGHT]",
            help="The text: a name from `ngramkit corpora`, a Hub dataset, or files (.txt .md .py "
            ".jsonl .json .parquet .arrow, also .gz .zst); quote a glob; a URL is s3://, gs://, "
            "hf://datasets/ID/..., hf://buckets/ID/... or https://. Repeat it to mix corpora: of "
            "NAME:0.3 three documents in ten are kept.",
        ),
    ] = None
    split: Annotated[
        str | None, typer.Option(help="The dataset's split. Default: train, or the corpus's own.")
    ] = None
    column: Annotated[
        str | None,
        typer.Option(help="The text column. Default: text, content, or the only string column."),
    ] = None
    revision: Annotated[
        str | None, typer.Option(help="The Hub dataset's branch, tag or commit.")
    ] = None
    language: Annotated[
        str | None, typer.Option(help="The Stack's programming language. Default: python.")
    ] = None
    join_turns: Annotated[
        bool, typer.Option("--join-turns", help="A conversation is one document, not one per turn.")
    ] = False
    sample: Annotated[
        float, typer.Option(help="The share of documents to keep, by a hash of (seed, index).")
    ] = 1.0
    seed: Annotated[int, typer.Option(help="Which sample.")] = 0
    limit: Annotated[int | None, typer.Option(help="At most this many documents.")] = None
    licenses: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Keep documents whose licences are all listed: mit,apache-2.0."
        ),
    ] = None
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Opt-outs: repository names or sha256 of documents, one a line. Or an evaluation "
            "set, FILE.jsonl: documents that hold one of its texts are left out. May be repeated.",
        ),
    ] = None
    dedup: Annotated[
        str | None,
        typer.Option(
            metavar="exact|minhash",
            help="Leave out documents that came before: the same text, or one much like it "
            "(minhash needs ngramkit[dedup]).",
        ),
    ] = None

    max_document: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Stop at a document that is larger, like 64M or 1G."),
    ] = "64M"

    @property
    def text(self) -> Any:
        """The corpus for `ngramkit.tokenize`: one name, or the parts of a mixture.

        Raises UsageError without --corpus, and for a weight that is not in (0, 1].
        """
        parts = self._parts
        is_single = len(parts) == 1 and parts[0].weight == 1
        return parts[0].corpus if is_single else [tuple(part) for part in parts]

    @property
    def names(self) -> list[str]:
        return [str(part.corpus) for part in self._parts]

    @property
    def _parts(self) -> list[Weighted]:
        from ngramkit.corpus.mixing import parse_weighted

        if not self.corpus:
            raise UsageError("no corpus was chosen", "give --corpus; `ngramkit corpora` lists them")
        return [parse_weighted(each) for each in self.corpus]

    @property
    def options(self) -> dict[str, Any]:
        """All options but the name, as `ngramkit.open_corpus` takes them."""
        chosen = {key: value for key, value in vars(self).items() if key != "corpus"}
        return {**chosen, "licenses": self.licenses.split(",") if self.licenses else ()}


# The source of build-datastore and build-frozen: a token store, or a corpus.

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


def _size(text: str | None) -> str | None:
    from ngramkit.errors import UsageError
    from ngramkit.machine import parse_size

    try:
        return text if text is None else str(parse_size(text))
    except UsageError as error:
        raise typer.BadParameter(f"{error}: {error.hint}") from error


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
            callback=_size,
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
