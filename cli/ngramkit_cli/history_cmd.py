"""`ngramkit history`: look into past requests, join those of several machines, forget old ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli.command import App
from ngramkit_cli.options import Debug, Json
from ngramkit_cli.output import Output, table

if TYPE_CHECKING:
    from ngramkit.formats.history import History
    from ngramkit.formats.request_log import PastRequest

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A history's folder.")]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Histories' folders.")]
Last = Annotated[
    int,
    typer.Option(
        "--last", min=0, max=1_000_000, help="Show the text of so many of the newest requests."
    ),
]
NewFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The new history's folder.")]
Tokens = Annotated[
    int, typer.Option("--tokens", min=0, help="Keep the newest requests of so many tokens at most.")
]
SHOWN = 300  # characters of a prompt and of an output

app = App(
    name="history",
    help="Past requests, which ssd and blend draft from: inspect, merge, trim.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def inspect(path: Folder, last: Last = 0, json: Json = False, debug: Debug = False) -> None:
    """What a history holds.

    Example: ngramkit history inspect my-history --last 3
    """
    with Output("history inspect", json=json, debug=debug) as out:
        from ngramkit.formats.history import History

        history = History.open(path)
        reading = history.log.read()
        index = history.load_index(0)
        facts: dict[str, Any] = {
            "requests": len(reading.requests),
            "tokens": sum(len(request.tokens) for request in reading.requests),
            "prompt_tokens": sum(request.prompt for request in reading.requests),
            "indexed_tokens": 0 if index is None else len(index.tokens),
            "bytes": sum(file.stat().st_size for file in path.iterdir()),
            "damaged_bytes": reading.damaged,
            "torn_bytes": reading.torn,
        }
        rows = {name.replace("_", " "): f"{value:,}" for name, value in facts.items()}
        out.show(*table(str(path), {"tokenizer": history.tokenizer.id, **rows}))
        if last:
            _show_texts(history, reading.requests[-last:], out.show)
        out.result(path, **facts)


@app.command()
def merge(paths: Folders, out_path: NewFolder, json: Json = False, debug: Debug = False) -> None:
    """Join histories into a new one, the newest requests of each last.

    Example: ngramkit history merge pod-1 pod-2 --out everything
    """
    with Output("history merge", json=json, debug=debug) as out:
        from ngramkit.formats.history import History
        from ngramkit.formats.history import merge as merged

        result = merged([History.open(path) for path in paths], out_path)
        requests = result.log.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        out.say(f"{out_path}: {len(requests):,} requests, {tokens:,} tokens")
        out.result(out_path, requests=len(requests), tokens=tokens)


@app.command()
def trim(path: Folder, tokens: Tokens, json: Json = False, debug: Debug = False) -> None:
    """Forget the oldest requests; processes that use the history notice.

    Example: ngramkit history trim my-history --tokens 4000000
    """
    with Output("history trim", json=json, debug=debug) as out:
        from ngramkit.formats.history import History

        history = History.open(path)
        dropped = history.trim(tokens)
        kept = history.log.read().requests
        left = sum(len(request.tokens) for request in kept)
        out.say(f"{path}: {dropped:,} requests dropped, {len(kept):,} kept ({left:,} tokens)")
        out.result(path, dropped=dropped, requests=len(kept), tokens=left)


def _show_texts(history: History, requests: list[PastRequest], show: Any) -> None:
    from ngramkit.corpus.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(history.tokenizer.id)
    history.tokenizer.require(tokenizer.record, str(history.path))
    for request in requests:
        prompt = tokenizer.decode(request.tokens[: request.prompt])
        output = tokenizer.decode(request.tokens[request.prompt :])
        show("", f"> {prompt[-SHOWN:]!r}", f"< {output[:SHOWN]!r}")
