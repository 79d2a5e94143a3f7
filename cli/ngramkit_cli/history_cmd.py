"""`ngramkit history`: inspect, import, merge, trim and forget past requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

import ngramkit
from ngramkit.basics.terminal_text import counted
from ngramkit_cli.command import App
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import (
    LOGS,
    MODEL,
    REMEMBER_PROMPTS,
    TEMPLATE_OF_QUESTIONS,
    YES,
    LogOptions,
    model_option,
)
from ngramkit_cli.stdin_log import with_stdin
from ngramkit_cli.tables import table_of_facts

if TYPE_CHECKING:
    from ngramkit.logs.history_commands import HistoryContents, HistorySize, ImportedHistory

FOLDER = typer.Argument(metavar="DIR", help="A history's folder.")
WHOSE_TOKENIZER = model_option(
    "Whose tokenizer reads the requests. Default: the history's.", "ID|PATH"
)

app = App(
    name="history",
    help="Past requests, which ssd and blend draft from: inspect, import, merge, trim, forget.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def inspect(
    *,
    path: Path = FOLDER,
    last: int = typer.Option(
        0, min=0, max=1_000_000, help="Show the text of the newest N requests."
    ),
    model: str | None = WHOSE_TOKENIZER,
    out: Output,
) -> None:
    """Show the content of a history.

    Example: ngramkit history inspect my-history --last 3
    """
    contents = ngramkit.history_inspect(path, last=last, model=model)
    facts = contents.to_dict()
    names = [name for name, value in facts.items() if type(value) is int]
    rows = {name.replace("_", " "): f"{facts[name]:,}" for name in names}
    mark = {"private": "yes"} if contents.private else {}
    out.show(*table_of_facts(str(path), {"tokenizer": contents.tokenizer, **mark, **rows}))
    for request in contents.last:
        prompt = repr(request.prompt) if request.prompt else "(its prompt was not remembered)"
        out.show("", f"> {prompt}", f"< {request.output!r}")
    out.result(path, **facts)


@app.command("import")
def import_(
    *,
    files: list[Path] = LOGS,
    into: Path = typer.Option(
        ..., "--out", metavar="DIR", help="The history to add to, created if missing."
    ),
    log: LogOptions,
    template: str = TEMPLATE_OF_QUESTIONS,
    prompts: bool = REMEMBER_PROMPTS,
    tokens: int | None = typer.Option(
        None, min=1, help="Keep the newest requests, at most N tokens."
    ),
    model: str | None = MODEL,
    out: Output,
) -> None:
    """Add the requests of logs to a history.

    Example: ngramkit history import rollouts/step_7 --out past --model qwen3-8b --tokens 4000000
    """
    with with_stdin(files, out.reporter) as logs:
        added = ngramkit.history_import(
            logs,
            into,
            model=model,
            **vars(log),
            template=template,
            prompts=prompts,
            tokens=tokens,
            reporter=out.reporter,
        )
    dropped = f", {counted(added.dropped, 'request')} dropped" if added.dropped else ""
    out.show(
        f"{into}: {counted(added.imported, 'request')} added "
        f"({counted(added.imported_tokens, 'token')}){dropped}; it holds {_size_text(added)}"
    )
    out.result(into, **added.to_dict())


@app.command()
def merge(
    *,
    paths: list[Path] = typer.Argument(metavar="DIR...", help="Histories' folders."),
    out_path: Path = typer.Option(..., "--out", metavar="DIR", help="The new history's folder."),
    out: Output,
) -> None:
    """Merge histories into a new one, the newest requests last.

    A request is kept as often as in the history that holds it most often.

    Example: ngramkit history merge pod-1 pod-2 --out everything
    """
    merged = ngramkit.history_merge(paths, out_path)
    twice = f"; {counted(merged.dropped, 'copy', 'copies')} dropped" if merged.dropped else ""
    out.show(f"{merged.path}: {_size_text(merged)}{twice}")
    out.result(merged.path, **_counts_of_history(merged))


@app.command()
def trim(
    *,
    path: Path = FOLDER,
    tokens: int = typer.Option(..., min=0, help="Keep the newest requests, at most N tokens."),
    out: Output,
) -> None:
    """Drop the oldest requests. Running processes see the change.

    Example: ngramkit history trim my-history --tokens 4000000
    """
    trimmed = ngramkit.history_trim(path, tokens)
    out.show(
        f"{path}: {counted(trimmed.dropped, 'request')} dropped, {trimmed.requests:,} kept "
        f"({counted(trimmed.tokens, 'token')})"
        f"{_damaged_bytes(trimmed, 'put aside in requests.damaged')}"
    )
    out.result(path, **_counts_of_history(trimmed))


@app.command()
def forget(
    *,
    path: Path = FOLDER,
    text: str | None = typer.Option(None, help="Forget the requests whose text holds this."),
    everything: bool = typer.Option(
        False, "--everything", help="Forget all requests, after a question."
    ),
    model: str | None = WHOSE_TOKENIZER,
    yes: bool = YES,
    out: Output,
) -> None:
    """Delete matching requests, or all. Running engines see the change after a restart.

    Example: ngramkit history forget my-history --text "jane@example.org"
    """
    if everything and text is None:
        held = ngramkit.history_inspect(path)
        out.confirm(f"forget everything in {path} ({_size_text(held)})", sure=yes)
    left = ngramkit.history_forget(path, text=text, everything=everything, model=model)
    out.show(
        f"{path}: {counted(left.dropped, 'request')} forgotten, {left.requests:,} kept "
        f"({counted(left.tokens, 'token')}){_damaged_bytes(left, 'deleted')}"
    )
    out.result(path, **_counts_of_history(left))


def _size_text(history: HistorySize | HistoryContents | ImportedHistory) -> str:
    return f"{counted(history.requests, 'request')}, {counted(history.tokens, 'token')}"


def _damaged_bytes(size: HistorySize, what: str) -> str:
    return f"; {counted(size.damaged_bytes, 'damaged byte')} {what}" if size.damaged_bytes else ""


def _counts_of_history(size: HistorySize) -> dict[str, int]:
    return {name: value for name, value in size.to_dict().items() if name != "path"}
