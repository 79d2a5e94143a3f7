"""ik_llama.cpp's suffix corpus, as `--spec-type suffix:suffix_corpus=PATH.bin` reads it.

No header: little-endian int32 token ids of all documents, each with its EOS. At each start
ik_llama.cpp builds a suffix tree of depth suffix_max_depth from at most 2^28 / depth tokens. Users
measured 40 s for 3.0 M tokens and 120 s for 4.8 M (issues 1719 and 1721).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.exchange.text import documents_of
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.replacing import whole_file

SUFFIX_MAX_DEPTH = 64  # ik_llama.cpp's default
MAX_EXPORTED_TOKENS = (1 << 28) // SUFFIX_MAX_DEPTH
ID_BYTES = 4
ID_BOUND = 1 << 24  # above any vocabulary, below four bytes of text


def export_corpus(
    store: Datastore, path: Path, *, reporter: Reporter = SILENT, force: bool = False
) -> dict[str, int]:
    """Write documents before the first that would exceed MAX_EXPORTED_TOKENS; return counts.

    Raises UsageError if no document fits.
    """
    reporter.stage("documents", store.manifest.counts.get("documents"), "documents")
    written = tokens = left_out = 0
    private = store.manifest.private
    with whole_file(path, is_corpus, force=force, inputs=[store.path], private=private) as file:
        for document in documents_of(store):
            reporter.advance(1)
            if not len(document):
                continue
            if left_out or tokens + len(document) > MAX_EXPORTED_TOKENS:
                left_out += 1
                continue
            file.write(document.astype("<i4").tobytes())
            written, tokens = written + 1, tokens + len(document)
        if not written:
            raise UsageError(
                f"cannot export {store.where}: it has no document of at most "
                f"{MAX_EXPORTED_TOKENS:,} tokens, ik_llama.cpp's limit",
                "Export a datastore of shorter documents.",
            )
    if left_out:
        reporter.note(
            f"skipped {left_out:,} documents: ik_llama.cpp reads at most "
            f"{MAX_EXPORTED_TOKENS:,} tokens with a suffix_max_depth of {SUFFIX_MAX_DEPTH}"
        )
    sizes = {"documents": written, "tokens": tokens, "bytes": ID_BYTES * tokens}
    return {**sizes, "left_out": left_out}


def is_corpus(path: Path) -> bool:
    if path.stat().st_size % ID_BYTES:
        return False
    ids = np.memmap(path, "<u4", "r")
    return bool(ids.max() < ID_BOUND)
