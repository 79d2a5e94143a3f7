"""What a URL is here, and which storage is behind it: s3://, gs://, https://, hf://datasets/... .

`hf://USER/NAME` is an artifact of the Hub (ngramkit.hub) and no URL of a storage; `file://` is the
path itself. Nothing of a URL but its path is shown or written anywhere: user names, passwords and
signatures stay out. Knows fsspec; nothing of what lies behind a URL.
"""

from __future__ import annotations

import glob
import logging
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ngramkit.errors import UsageError, reason
from ngramkit.visible import visible

# Two letters and more: C:// is a drive.
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
COLLAPSED = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)", re.IGNORECASE)  # what Path makes of one
HUB_STORAGE = re.compile(r"hf://(datasets|buckets)/[^/]", re.IGNORECASE)
CLOUD = "pip install 'ngramkit[cloud]'"
PACKAGES = {
    **dict.fromkeys(("s3", "s3a", "gs", "gcs", "http", "https"), CLOUD),
    "az": "pip install adlfs", "abfs": "pip install adlfs",
}  # fmt: skip
# Of this machine, or of what runs there: those are named as paths, or not at all.
NOT_REMOTE = {
    "local", "dir", "reference", "simplecache", "filecache", "blockcache", "generic",
    "data", "cached", "jupyter", "git", "zip", "tar", "libarchive",
}  # fmt: skip


def is_url(name: str) -> bool:
    return URL.match(name) is not None


def as_url(given: str | Path) -> str | None:
    """The URL of a storage that `given` is; None for paths, file:// and hf://USER/NAME.

    >>> as_url(Path("s3://bucket/x")), as_url("hf://me/x"), as_url("file:///x"), as_url("a/b")
    ('s3://bucket/x', None, None, None)
    """
    text = COLLAPSED.sub(r"\1://", str(given), count=1) if isinstance(given, Path) else given
    protocol = text.partition("://")[0].lower()
    if not is_url(text) or protocol == "file" or (protocol == "hf" and not HUB_STORAGE.match(text)):
        return None
    return text


def as_path(given: str | Path) -> Path:
    """What is no URL of a storage, as a path: file:///a/b%20c is /a/b c.

    Raises UsageError for a file:// of another host, or without an absolute path.
    """
    text = COLLAPSED.sub(r"\1:///", str(given), count=1) if isinstance(given, Path) else given
    if not text.lower().startswith("file:"):
        return Path(given)
    split = urlsplit(text)
    if split.netloc not in ("", "localhost") or not split.path.startswith("/"):
        raise UsageError("a file:// names an absolute path of this machine", "file:///FOLDER/FILE")
    return Path(unquote(split.path))


def open_storage(url: str, option: str = "") -> tuple[Any, str]:
    """The fsspec file system behind `url`, with no listing remembered, and the path there.

    Raises UsageError, naming `option`, for a storage that is unknown or needs a package.
    """
    from fsspec.core import url_to_fs

    protocol = url.partition("://")[0].lower()
    if protocol == "hf" and not HUB_STORAGE.match(url):
        raise UsageError(
            f"{label(url)} is no storage of the Hub",
            "hf://datasets/USER/NAME/... or hf://buckets/USER/NAME/...; a whole dataset is hf:ID",
            option=option,
        )
    if protocol in NOT_REMOTE or "::" in url:
        raise UsageError(f"{protocol}:// is not read", "give the path itself", option=option)
    try:
        storage, path = url_to_fs(url)
    except ImportError as error:
        hint = PACKAGES.get(protocol) or reason(error)
        raise UsageError(f"{protocol}:// needs one more package", hint, option=option) from error
    except ValueError as error:
        known = "s3://, gs://, https:// and hf://datasets/... are read"
        raise UsageError(f"nothing here reads {protocol}://", known, option=option) from error
    # What its client logs is in the errors too: shown by -vv, and not on everybody's screen.
    for client in ("gcsfs", "s3fs", "fsspec", "aiobotocore", "botocore"):
        if not logging.getLogger(client).handlers:
            logging.getLogger(client).addHandler(logging.NullHandler())
    storage.invalidate_cache()
    return storage, str(path)


def has_magic(path: str) -> bool:
    """Whether it is a glob; the ? of a web address begins its query."""
    return glob.has_magic(path.partition("?")[0] if path.startswith("http") else path)


def plain_path(name: str) -> Path:
    """The name without scheme, user, web host and query, fit for a screen."""
    plain = name
    if is_url(name):
        split = urlsplit(name)
        bucket = "" if split.scheme.startswith("http") else split.netloc.rpartition("@")[2]
        plain = bucket + split.path
    return Path(visible(plain.lstrip("/")) or "file")


def label(url: str) -> str:
    """The last part, and of a glob all from the folder before it on."""
    parts = PurePosixPath(plain_path(url)).parts
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    begin = max(wild - 1, 0) if any(map(glob.has_magic, parts)) else len(parts) - 1
    return "/".join(parts[begin:])


def shown(url: str) -> str:
    """The URL for a screen: without user, password and query.

    >>> shown("s3://key:secret@bucket/x?signature=1")
    's3://bucket/x'
    """
    split = urlsplit(url)
    return visible(f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}".rstrip("/"))
