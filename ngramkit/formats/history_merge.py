"""Histories of several machines to one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from ngramkit.formats.artifact import require_one_tokenizer
from ngramkit.formats.history import PRIVATE, History, create
from ngramkit.formats.replacing import Replacement


def merge(sources: Sequence[History], out: Path) -> History:
    """A new history of all requests of `sources`, the newest of each next to each other at its end.

    Raises UsageError where `out` exists, ArtifactError where the tokenizers differ.
    """
    require_one_tokenizer(sources)
    columns = [reversed(source.log.read().requests) for source in sources]
    rows = itertools.zip_longest(*columns)
    newest_first = [request for row in rows for request in reversed(row) if request is not None]
    with Replacement(out, inputs=[source.path for source in sources], mode=PRIVATE) as new:
        new.empty()
        create(new.partial, sources[0].tokenizer, newest_first[::-1])
        new.put_in_place()
    return History.open(out)
