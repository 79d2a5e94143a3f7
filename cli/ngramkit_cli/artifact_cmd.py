"""The commands about artifacts: `list`, `inspect`, `verify`, `merge`, `prune` and `rm`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.kinds import ARTIFACTS
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import (
    ANSWERED_QUESTIONS,
    FORCE,
    SOURCE_METAVAR,
    TEMPLATE_OF_QUESTIONS,
    YES,
    ExecutorOptions,
    artifact_argument,
    model_option,
    size_in_bytes,
    takes_urls,
)
from ngramkit_cli.tables import table_of_facts, table_of_figures

if TYPE_CHECKING:
    from ngramkit.formats.manifest import Manifest
    from ngramkit.inspection import Phrase

ARTIFACT_PATH = artifact_argument(SOURCE_METAVAR, "An artifact: its folder, or where else it is.")
FOLDER = typer.Option(ARTIFACTS, metavar="DIR", help="The folder of the artifacts.")


def list_(*, folder: Path = FOLDER, out: Output) -> None:
    """List the artifacts on this machine: kind, tokenizer, size and date.

    Example: ngramkit list
    """
    listed = ngramkit.list_(folder)
    rows = [
        (
            each.name,
            each.problem or (f"{each.kind}, private" if each.private else each.kind),
            each.tokenizer,
            _tokens_or_rows(each.counts),
            size_text(each.bytes),
            each.modified[:10],
        )
        for each in listed
    ]
    if rows:
        head = ["", "kind", "tokenizer", "holds", "size", "date"]
        out.show(*table_of_figures(rows, head))
    else:
        out.show(f"no artifacts in {folder}")
    out.result(folder, artifacts=listed.to_dict())


def _tokens_or_rows(counts: Mapping[str, int]) -> str:
    """Return tokens of text, else drafts or rows of a model's table."""
    for name in ("tokens", "drafts", "rows"):
        if name in counts:
            return counted(counts[name], name.removesuffix("s"))
    return ""


@takes_urls
def inspect(
    *,
    path: str = ARTIFACT_PATH,
    query: str | None = typer.Option(
        None, metavar="TEXT", help="Show how often this was seen and what follows it."
    ),
    model: str | None = model_option(
        "Whose tokenizer shows the text. Default: the artifact's.", "ID|PATH"
    ),
    top: int = typer.Option(10, min=1, max=1_000_000, help="Maximum lines of each list."),
    out: Output,
) -> None:
    """Show the content of an artifact: its origin, frequent phrases, and what follows a phrase.

    Example: ngramkit inspect artifacts/python-stdlib-demo-frozen --query "def main"
    """
    inspection = ngramkit.inspect(path, query, model=model, top=top, reporter=out.reporter)
    manifest = inspection.artifact.manifest
    out.show(*table_of_facts(str(path), _facts_of_artifact(manifest)))
    if inspection.ids_only:
        out.say(f"ids, not text: {inspection.ids_only}")
    _show_phrases("most frequent", inspection.most_frequent, out.show)
    for i, document in enumerate(inspection.documents):
        out.show(
            *([] if i else [""]),
            f"document {i}: {document if inspection.ids_only else repr(document)}",
        )
    if inspection.query is not None:
        _show_phrases("query", [inspection.query], out.show)
    facts = {
        "kind": manifest.kind,
        "private": manifest.private,
        "bytes": manifest.bytes,
        "counts": manifest.counts,
    }
    body = inspection.to_dict()
    listed = ["query"] if query is not None else ["most_frequent", "documents"]
    out.result(path, **facts, **{name: body[name] for name in listed})


@takes_urls
def verify(*, path: str = ARTIFACT_PATH, out: Output) -> None:
    """Verify an artifact's integrity: every checksum and every invariant of its format.

    Example: ngramkit verify artifacts/python-stdlib-demo-frozen
    """
    verified = ngramkit.verify(path, reporter=out.reporter)
    out.show(f"{path} is valid: {len(verified.checks)} checks")
    out.result(path, ok=verified.ok, checks=verified.checks)


def _facts_of_artifact(manifest: Manifest) -> dict[str, object]:
    from ngramkit.formats.card import corpus_part, pruned_from

    tokenizer = manifest.tokenizer
    facts = dict(manifest.corpus)
    facts.pop("private", None)  # shown for the whole artifact
    parts = enumerate([*(facts.pop("mixed", None) or ()), *(facts.pop("merged", None) or ())], 1)
    pruned = pruned_from({"pruned": facts.pop("pruned", None)})
    corpus = {f"corpus {name}": value for name, value in facts.items() if value}
    corpus |= {f"corpus {at}": corpus_part(part) for at, part in parts}
    return {
        "kind": manifest.kind,
        **({"private": "yes"} if manifest.private else {}),
        "tokenizer": f"{tokenizer.id} ({tokenizer.vocabulary:,} tokens, "
        f"{tokenizer.fingerprint[:12]})",
        **corpus,
        **pruned,
        **{f"--{n.replace('_', '-')}": v for n, v in manifest.parameters.items()},
        **{name: f"{count:,}" for name, count in manifest.counts.items()},
        **{name: f"{record.bytes:,} bytes" for name, record in manifest.files.items()},
        **(
            {"bytes": f"{manifest.bytes:,}"}
            if manifest.files
            else {"requests": "`ngramkit history inspect` shows them"}  # a history has no files
        ),
    }


def _show_phrases(title: str, phrases: Iterable[Phrase], show: Callable[..., None]) -> None:
    for phrase in phrases:
        show("", f"{title}: {phrase.shown}  {counted(phrase.matches, 'match', 'matches')}")
        rows = [
            ("", f"{each.count:,}", f"{each.count / phrase.matches:.1%}", each.shown)
            for each in phrase.continuations
        ]
        show(*table_of_figures(rows))


@dataclass(frozen=True)
class PruneOptions:
    source: str = artifact_argument(
        "ARTIFACT", "A datastore or a frozen table.", "datastore", "frozen-table"
    )
    bytes: str = typer.Option(..., metavar="SIZE", help="Maximum size, like 2G or 64M.")
    out: str | None = typer.Option(
        None, metavar="DIR|URL", help="Default: next to the artifact, as NAME-SIZE."
    )
    answers: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Recorded answers of the kind that drafts are for, as `ngramkit replay` takes them. "
        "Default: the artifact's own text.",
    )
    questions: Path | None = ANSWERED_QUESTIONS
    template: str = TEMPLATE_OF_QUESTIONS
    model: str | None = model_option(
        "Where to find the artifact's tokenizer, for --answers. Default: the model that it names.",
        "ID|PATH",
    )
    force: bool = FORCE


@takes_urls
def prune(*, options: PruneOptions, out: Output) -> None:
    """Make a datastore or frozen table smaller: keep the best drafts per byte.

    Example: ngramkit prune artifacts/python-stdlib-demo-datastore --bytes 4M
    """
    artifact = ngramkit.prune(**vars(options), reporter=out.reporter)
    out.made(artifact, from_bytes=artifact.manifest.corpus["pruned"]["of"]["bytes"])


def rm(
    *,
    names: list[str] = artifact_argument(
        "NAME...", "Artifacts of `ngramkit list`, or their folders."
    ),
    folder: Path = FOLDER,
    yes: bool = YES,
    out: Output,
) -> None:
    """Delete artifacts, after a question. Histories, links and other files are refused.

    Example: ngramkit rm python-stdlib-demo-frozen --yes
    """
    from ngramkit.catalog import removable_in

    found = removable_in(names, folder)
    size = size_text(sum(each.bytes for each in found))
    named = ", ".join(str(each.path) for each in found)
    out.confirm(f"delete {named} ({size})", sure=yes)
    removed = ngramkit.rm(names, folder)
    for each in removed:
        out.show(f"deleted {each.path}: {each.kind}, {size_text(each.bytes)}")
    out.result(removed=removed.to_dict())


@takes_urls
def merge(
    *,
    sources: list[str] = artifact_argument(
        "A B ...",
        "Artifacts of one kind and tokenizer: folders, URLs or hf://USER/NAME@REV.",
        "datastore",
        "frozen-table",
    ),
    out_dir: str = typer.Option(..., "--out", metavar="DIR|URL", help="The artifact to write."),
    memory: Any = typer.Option(
        None,
        metavar="SIZE",
        parser=size_in_bytes,
        help="Frozen tables: for a range of leaders being added, like 512M. Default: 1G.",
    ),
    where: ExecutorOptions,
    force: bool = FORCE,
    out: Output,
) -> None:
    """Merge several artifacts into one: all shards of datastores, summed counts of frozen tables.

    Example: ngramkit merge artifacts/chat-frozen artifacts/web-frozen --out artifacts/both-frozen
    """
    artifact = ngramkit.merge(
        sources, out_dir, memory=memory, **vars(where), reporter=out.reporter, force=force
    )
    if artifact.kind == "frozen-table":
        out.say("counts are exact only for n-grams that every part had kept")
    out.made(artifact)
