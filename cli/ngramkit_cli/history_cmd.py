"""`ngramkit history`: look into past requests, join those of several machines, forget old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ngramkit
from ngramkit_cli.command import App
from ngramkit_cli.options import Debug, Json
from ngramkit_cli.output import Output, table

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
        found = ngramkit.history(path, last=last)
        facts = found.to_dict()
        names = [name for name, value in facts.items() if isinstance(value, int)]
        rows = {name.replace("_", " "): f"{facts[name]:,}" for name in names}
        out.show(*table(str(path), {"tokenizer": found.tokenizer, **rows}))
        for request in found.last:
            out.show("", f"> {request.prompt!r}", f"< {request.output!r}")
        out.result(path, **{name: facts[name] for name in names})


@app.command()
def merge(paths: Folders, out_path: NewFolder, json: Json = False, debug: Debug = False) -> None:
    """Join histories into a new one, the newest requests of each last.

    Example: ngramkit history merge pod-1 pod-2 --out everything
    """
    with Output("history merge", json=json, debug=debug) as out:
        requests = ngramkit.merge_histories(paths, out_path).log.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        out.say(f"{out_path}: {len(requests):,} requests, {tokens:,} tokens")
        out.result(out_path, requests=len(requests), tokens=tokens)


@app.command()
def trim(path: Folder, tokens: Tokens, json: Json = False, debug: Debug = False) -> None:
    """Forget the oldest requests; processes that use the history notice.

    Example: ngramkit history trim my-history --tokens 4000000
    """
    with Output("history trim", json=json, debug=debug) as out:
        dropped = ngramkit.trim_history(path, tokens)
        kept = ngramkit.history(path)
        out.say(
            f"{path}: {dropped:,} requests dropped, {kept.requests:,} kept ({kept.tokens:,} tokens)"
        )
        out.result(path, dropped=dropped, requests=kept.requests, tokens=kept.tokens)
