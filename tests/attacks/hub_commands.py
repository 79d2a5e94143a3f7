"""The killed commands that talk to the Hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.hub.pull import pull
from ngramkit.hub.push import push
from ngramkit.remote.fetch import fetch

from .killing import Command, files_below
from .made import each, frozen, source


def at_the_hub(endpoint: str) -> None:
    """Point the real client at the stand-in, with a cache in the working directory."""
    from huggingface_hub import constants

    home = str(Path("home").absolute())
    constants.ENDPOINT = endpoint
    constants.HUGGINGFACE_CO_URL_TEMPLATE = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    constants.HF_HOME, constants.HF_HUB_CACHE = home, f"{home}/hub"
    constants.HF_TOKEN_PATH = f"{home}/token"
    constants.HF_HUB_DISABLE_XET = True
    os.environ["HF_TOKEN"] = "hf_standin"


def repository(*names: str) -> str:
    return "-".join(("acme/kills", *names)).replace("_", "-")


def without_the_hubs() -> Any:
    """Return all files but the Hub client's own; a proof holds times."""
    found = files_below(Path())
    return {k: "home/" in k or v for k, v in found.items() if not k.startswith("home/hub")}


def some_past() -> None:
    history = History.at("past", TokenizerRecord("small", 100, "f" * 64))
    history.append(np.arange(50, dtype=np.int32), 20)


def hub_commands(endpoint: str) -> dict[str, Command]:
    @cache
    def published() -> str:
        push(Path("first"), repository("pull"))
        return repository("pull")

    def pulled() -> None:
        at_the_hub(endpoint)
        pull(published(), Path("x"), force=True)

    def fetched() -> None:
        at_the_hub(endpoint)
        pull(past(), Path("x"))

    @cache
    def past() -> str:
        push(Path("past"), repository("past"), allow_private=True)
        return repository("past")

    def own() -> str:
        return repository(*Path().absolute().parts[-2:])

    def there() -> Any:
        """Return the manifest that anybody would fetch."""
        at_the_hub(endpoint)
        return fetch(f"hf://{own()}").path.joinpath("manifest.json").read_text()

    def pushed(name: str) -> Callable[[], None]:
        return each(lambda: at_the_hub(endpoint), lambda: push(Path(name), own()))

    two = each(source, lambda: frozen("first", 20), lambda: frozen("second", 25))
    older = each(two, lambda: frozen("x", 5))
    done = without_the_hubs
    return {
        "pull": Command("x", two, pulled, settled=done),
        "pull --force": Command("x", older, pulled, settled=done),
        "pull, a history": Command("x", some_past, fetched, settled=done),
        "push": Command("x", two, pushed("second"), pushed("first"), state=there, settled=there),
    }
