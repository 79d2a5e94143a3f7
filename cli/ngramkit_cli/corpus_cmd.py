"""`ngramkit corpora`, and the options that choose a corpus."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit_cli import completion
from ngramkit_cli.command import words_as_typed
from ngramkit_cli.errors import Flag, with_flags
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import MODEL, the_model
from ngramkit_cli.tables import wrap_text

if TYPE_CHECKING:
    from ngramkit.corpus.mixing import Weighted

# Options in the summaries of corpora.
CORPUS_FLAGS = {"language": Flag("--language"), "join_turns": Flag("--join-turns", switch=True)}


def corpora(*, out: Output) -> None:
    """List the corpora that have names.

    Example: ngramkit corpora
    """
    named = ngramkit.corpora()
    for corpus in named:
        where = corpus.hub or "embedded"
        gated = ", gated: hf auth login" if corpus.gated else ""
        summary = with_flags(corpus.summary, CORPUS_FLAGS, CORPUS_FLAGS)
        out.show(*wrap_text(f"{corpus.name}  ({where}{gated})", 0, 2), *wrap_text(summary, 4))
    out.show("hf:ID[:CONFIG]", "    any other dataset on the Hub")
    urls = "s3://, gs://, hf://datasets/..., hf://buckets/..., https://"
    files = "files: .txt .md .py .jsonl .json .csv .tsv .parquet .arrow, also .gz .zst"
    out.show("PATH, 'GLOB', URL", *wrap_text(f"{files}; {urls}", 4))
    out.result(corpora=named.to_dict())


@dataclass(frozen=True)
class CorpusOptions:
    """The chosen corpus, and how it becomes tokens. Each field is an option."""

    PANEL: ClassVar[str] = "Text"

    corpus: list[str] | None = typer.Option(
        None,
        metavar="NAME|hf:ID[:CONFIG]|PATH|GLOB|URL[:WEIGHT]",
        help="The text: a name from `ngramkit corpora`, a Hub dataset, or files (.txt .md .py "
        ".jsonl .json .csv .tsv .parquet .arrow, also .gz .zst); quote a glob; a URL is s3://, "
        "gs://, hf://datasets/ID/..., hf://buckets/ID/... or https://. Repeat it to mix "
        "corpora: of NAME:0.3 three documents in ten are kept.",
        autocompletion=completion.corpora,
    )
    split: str | None = typer.Option(
        None, help="The dataset's split. Default: train, or the corpus's own."
    )
    column: str | None = typer.Option(
        None,
        help="The column with the text; a.b is the field b of the objects in a. Default: "
        "text, content, a conversation, or the only column that holds text.",
    )
    revision: str | None = typer.Option(None, help="The Hub dataset's branch, tag or commit.")
    language: str | None = typer.Option(
        None, help="The Stack's programming language. Default: python."
    )
    join_turns: bool = typer.Option(
        False, "--join-turns", help="Make a conversation one document, not one per turn."
    )
    sample: float = typer.Option(
        1.0, help="The share of documents to keep, by a hash of (seed, index)."
    )
    seed: int = typer.Option(0, help="The seed of the sample.")
    limit: int | None = typer.Option(None, help="At most this many documents.")
    licenses: str | None = typer.Option(
        None, metavar="NAME,...", help="Keep documents with only these licences: mit,apache-2.0."
    )
    exclude: list[Path] | None = typer.Option(
        None,
        metavar="FILE",
        help="A list of opt-outs: repository names or sha256 of documents, one per line. Or an "
        "evaluation set, FILE.jsonl: documents that contain one of its texts are left out. May "
        "be repeated.",
    )
    dedup: str | None = typer.Option(
        None,
        metavar="exact|minhash",
        help="Leave out duplicates: the same text, or a similar one (minhash, which needs "
        "ngramkit[dedup]).",
    )
    max_document: str = typer.Option(
        "64M", metavar="SIZE", help="Stop at a document that is larger, like 64M or 1G."
    )
    skip_bad: bool = typer.Option(
        False,
        "--skip-bad",
        help="Skip and count records that do not parse or have no text. Default: the first one "
        "is an error.",
    )
    private: bool = typer.Option(
        False,
        "--private",
        help="Mark what is built as private: only you can read its folder, and `push` needs "
        "--allow-private.",
    )
    model: str | None = MODEL
    eos: bool = typer.Option(
        True, "--eos/--no-eos", help="End every document with the tokenizer's EOS."
    )

    def source_and_options(
        self, out: Output, tokens: str | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return a corpus, a mixture or the store `tokens`, and a builder's keywords.

        Reports the model. Raises UsageError unless it is either --tokens or --corpus, for a weight
        outside (0, 1] and for an artifact as the corpus.
        """
        from ngramkit.corpus.mixing import parse_weighted
        from ngramkit.corpus.open import is_artifact, refuse_text_options

        if tokens is not None:
            from ngramkit.formats.tokens import TokenStore
            from ngramkit.remote.fetch import fetch

            refuse_text_options(
                name
                for name, value in vars(self).items()
                if value != getattr(CorpusOptions, name).default
            )
            store = TokenStore.open(fetch(tokens, reporter=out.reporter).path)
            out.say(f"tokenizer: {store.tokenizer.id} (of {tokens})")
            return store, {}
        if not self.corpus:
            raise UsageError(
                "--corpus must be given", "Choose one of `ngramkit corpora`, or files."
            )
        parts = [parse_weighted(each) for each in self.corpus]
        for part in parts:
            if is_artifact(str(part.corpus)):
                raise UsageError(
                    f"--corpus must be text, got the artifact {part.corpus}",
                    "Give a token store as --tokens.",
                )
        name = the_model(self.model, out)
        if self.model is None:
            _warn_of_demo(parts, name, out)
        is_single = len(parts) == 1 and parts[0].weight == 1
        text = parts[0].corpus if is_single else [tuple(part) for part in parts]
        words = {key: value for key, value in vars(self).items() if key != "corpus"}
        licenses = self.licenses.split(",") if self.licenses else ()
        return text, {**words, "model": name, "licenses": licenses}


def _warn_of_demo(parts: Sequence[Weighted], model: str, out: Output) -> None:
    """Warn if a Hub corpus is tokenised for the embedded model."""
    from ngramkit.basics.models import DEFAULT_MODEL
    from ngramkit.corpus.open import NAMED

    names = [str(part.corpus) for part in parts]
    if model == DEFAULT_MODEL and any(
        name.startswith("hf:") or (name in NAMED and NAMED[name].hub) for name in names
    ):
        out.say(
            f"note: this will serve the embedded model {DEFAULT_MODEL} only (a vocabulary of "
            "4,096 tokens); for your model, run:",
            f"  {shlex.join(['ngramkit', *words_as_typed(), '--model', 'MODEL'])}",
        )
