"""`ngramkit push`, `ngramkit pull` and `ngramkit search`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

import ngramkit
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import FORCE, artifact_argument, takes_urls
from ngramkit_cli.tables import table_of_figures


@dataclass(frozen=True)
class PushOptions:
    path: str = artifact_argument("PATH|URL", "The artifact's folder, or where it is.")
    repository: str = typer.Argument(metavar="USER/NAME", help="The repository.")
    private: bool | None = typer.Option(
        None,
        "--private/--public",
        help="Whether only people whom you invite can see a new repository. "
        "Default: --private for a history or a private artifact.",
    )
    allow_private: bool = typer.Option(
        False,
        "--allow-private",
        help="Upload a private artifact or a history, to a private repository unless --public.",
    )
    language: str | None = typer.Option(
        None,
        metavar="CODE,...",
        help="The corpus's languages, for the card: en,de. Default: as on the repository's "
        "card, else the source dataset's if it has one.",
    )
    revision: str | None = typer.Option(
        None, metavar="BRANCH", help="Made where it is new. Default: main."
    )
    tag: str | None = typer.Option(None, help="Name the commit, so that it can be pinned.")
    create_pr: bool = typer.Option(
        False, "--create-pr", help="Open a pull request in place of a commit."
    )
    squash: bool = typer.Option(
        False,
        "--squash",
        help="Drop the branch's older commits, so that what a history forgot is in none.",
    )
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Upload nothing; show what would be sent and replaced."
    )
    force: bool = typer.Option(False, "--force", help="Replace an artifact of another kind.")


@takes_urls
def push(*, options: PushOptions, out: Output) -> None:
    """Upload an artifact to the Hub: new files and a card.

    Example: ngramkit push artifacts/python-stdlib-demo-frozen me/python-frozen --tag v1
    """
    languages = options.language.split(",") if options.language is not None else ()
    given = {**vars(options), "language": languages}
    done = ngramkit.push(**given, reporter=out.reporter)
    readers = "private" if done.private else "public"
    sent = f"{counted(done.files, 'file')}, {size_text(done.bytes)}"
    verb = "would be sent" if options.dry_run else "sent"
    where = f"{'new, ' if options.dry_run and done.new else ''}{readers}"
    out.show(
        f"{done.pull_request or done.url} ({where}): {sent} {verb}, {done.skipped} there already"
    )
    if options.dry_run:
        rows = [(f"  {name}", size_text(size)) for name, size in done.sent.items()]
        out.show(*table_of_figures(rows))
        if done.replaced:
            out.show(f"would replace or delete: {', '.join(done.replaced)}")
    out.result(options.path, **done.to_dict())


def pull(
    *,
    source: str = typer.Argument(
        metavar="USER/NAME[@REV]", help="The repository; a branch, tag or commit."
    ),
    out_dir: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="Default: artifacts/NAME."
    ),
    force: bool = FORCE,
    out: Output,
) -> None:
    """Download an artifact from the Hub: checked before it appears.

    Example: ngramkit pull me/python-frozen@v1
    """
    done = ngramkit.pull(source, out_dir, reporter=out.reporter, force=force)
    where = f"{done.repository}@{done.revision}"
    out.show(f"{done.path}: {a_kind(done.kind)} of {where}, {size_text(done.bytes)}")
    facts = {"kind": done.kind, "bytes": done.bytes, **done.counts}
    out.result(done.path, repository=done.repository, revision=done.revision, **facts)


def search(
    *,
    tokenizer: str | None = typer.Option(
        None,
        metavar="ID|PATH",
        help="Only for this model's tokenizer: compared by fingerprint.",
        autocompletion=completion.models,
    ),
    kind: str | None = typer.Option(None, help="Only datastore, frozen-table, model-bigram, ..."),
    out: Output,
) -> None:
    """List the artifacts on the Hub.

    Example: ngramkit search --tokenizer vicuna-7b
    """
    artifacts = ngramkit.search(tokenizer, kind, reporter=out.reporter)
    rows = [
        (
            f"hf://{each.id}",
            each.problem or f"{each.kind} for {each.tokenizer}, {size_text(each.bytes)}",
        )
        for each in artifacts
    ]
    if artifacts:
        out.show(*table_of_figures(rows))
    else:
        out.show("nothing found")
    out.result(found=artifacts.to_dict())
