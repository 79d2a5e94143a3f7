"""`ngramkit push`, `ngramkit pull` and `ngramkit search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ngramkit
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import Force, artifact_argument, takes_urls
from ngramkit_cli.tables import table_of_figures

AllowPrivate = Annotated[
    bool,
    typer.Option(
        "--allow-private",
        help="Upload a private artifact or a history, to a private repository unless --public.",
    ),
]
Repository = Annotated[str, typer.Argument(metavar="USER/NAME", help="The repository.")]


@takes_urls
def push(
    *,
    path: Annotated[str, artifact_argument("PATH|URL", "The artifact's folder, or where it is.")],
    repository: Repository,
    private: Annotated[
        bool | None,
        typer.Option(
            "--private/--public",
            help="Whether only people whom you invite can see a new repository. "
            "Default: --private for a history or a private artifact.",
        ),
    ] = None,
    allow_private: AllowPrivate = False,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE,...",
            help="The corpus's languages, for the card: en,de. Default: as on the repository's "
            "card, else the source dataset's if it has one.",
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Made where it is new. Default: main.")
    ] = None,
    tag: Annotated[
        str | None, typer.Option(help="Name the commit, so that it can be pinned.")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request in place of a commit.")
    ] = False,
    squash: Annotated[
        bool,
        typer.Option(
            "--squash",
            help="Drop the branch's older commits, so that what a history forgot is in none.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Upload nothing; show what would be sent and replaced."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an artifact of another kind.")
    ] = False,
    out: Output,
) -> None:
    """Upload an artifact to the Hub: new files and a card.

    Example: ngramkit push artifacts/python-stdlib-demo-frozen me/python-frozen --tag v1
    """
    done = ngramkit.push(
        path,
        repository,
        private=private,
        allow_private=allow_private,
        language=language.split(",") if language is not None else (),
        revision=revision,
        tag=tag,
        create_pr=create_pr,
        squash=squash,
        dry_run=dry_run,
        force=force,
        reporter=out.reporter,
    )
    readers = "private" if done.private else "public"
    sent = f"{counted(done.files, 'file')}, {size_text(done.bytes)}"
    verb = "would be sent" if dry_run else "sent"
    where = f"{'new, ' if dry_run and done.new else ''}{readers}"
    out.show(
        f"{done.pull_request or done.url} ({where}): {sent} {verb}, {done.skipped} there already"
    )
    if dry_run:
        rows = [(f"  {name}", size_text(size)) for name, size in done.sent.items()]
        out.show(*table_of_figures(rows))
        if done.replaced:
            out.show(f"would replace or delete: {', '.join(done.replaced)}")
    out.result(path, **done.to_dict())


def pull(
    *,
    source: Annotated[
        str,
        typer.Argument(metavar="USER/NAME[@REV]", help="The repository; a branch, tag or commit."),
    ],
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Default: artifacts/NAME.")
    ] = None,
    force: Force = False,
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
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="ID|PATH",
            help="Only for this model's tokenizer: compared by fingerprint.",
            autocompletion=completion.models,
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only datastore, frozen-table, model-bigram, ...")
    ] = None,
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
