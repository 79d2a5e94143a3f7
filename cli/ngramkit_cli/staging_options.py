"""Options of the commands that read or write artifacts by URL: the staging cache.

@takes_urls
def verify(path: ArtifactPath) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ngramkit_cli.command import with_options


def _size(text: str | None) -> str | None:
    from ngramkit.errors import UsageError
    from ngramkit.machine import parse_size

    try:
        return text if text is None else str(parse_size(text))
    except UsageError as error:
        raise typer.BadParameter(f"{error}: {error.hint}") from error


CacheDir = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Where the files of URLs are staged. Default: NGRAMKIT_CACHE_DIR, else the user's "
        "cache folder.",
    ),
]
CacheSize = Annotated[
    str | None,
    typer.Option(
        "--cache-size",
        metavar="SIZE",
        callback=_size,
        help="The most bytes that are staged, like 20G; files unused longest are deleted first. "
        "Default: NGRAMKIT_CACHE_SIZE, else half of the free space there.",
    ),
]


def takes_urls(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --cache-dir and --cache-size."""

    def wrapped(*, cache_dir: str | None, cache_size: str | None, **values: Any) -> None:
        from ngramkit.remote.staging import using_cache

        with using_cache(cache_dir, cache_size):
            command(**values)

    options = {"cache_dir": (CacheDir, None), "cache_size": (CacheSize, None)}
    return with_options(command, wrapped, options)
