"""ik_llama.cpp's suffix corpus, as `--spec-type suffix:suffix_corpus=PATH.bin` reads it.

No header: token ids, int32 little-endian, one document after another, each with its EOS. At every
start ik_llama.cpp builds a suffix tree of them, as deep as suffix_max_depth. It refuses more than
2^28 / depth tokens, and its users measured 40 s for 3.0 M tokens and 120 s for 4.8 M (its issues
1719 and 1721). So an export ends before the first document that no longer fits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.exchange.text import documents
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.replacing import whole_file

DEPTH = 64  # suffix_max_depth, where nobody says
NODES = 1 << 28  # of the tree, at most
MOST = NODES // DEPTH  # tokens
ID_BYTES = 4
LARGEST = 1 << 24  # no id is as high, but four bytes of text are


def export_corpus(
    store: Datastore,
    path: Path,
    *,
    most: int = MOST,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write the first documents that hold `most` tokens together; return how many there are of
    documents, tokens and bytes, and of documents that are left out.

    Raises UsageError where the first is longer, or `path` exists; see `whole_file`.
    """
    reporter.stage("documents", store.manifest.counts.get("documents"), "documents")
    written = tokens = left_out = 0
    with whole_file(path, is_corpus, force=force, inputs=[store.path]) as file:
        for document in documents(store):
            reporter.advance(1)
            if not len(document):
                continue
            if left_out or tokens + len(document) > most:
                left_out += 1
                continue
            file.write(document.astype("<i4").tobytes())
            written, tokens = written + 1, tokens + len(document)
        if not written:
            raise UsageError(
                f"{store.path} holds no document of at most {most:,} tokens, which is what "
                "ik_llama.cpp reads",
                "export a datastore of shorter documents",
            )
    if left_out:
        reporter.note(
            f"{left_out:,} documents are left out: ik_llama.cpp reads at most {most:,} tokens at "
            f"its suffix_max_depth of {DEPTH}"
        )
    sizes = {"documents": written, "tokens": tokens, "bytes": ID_BYTES * tokens}
    return {**sizes, "left_out": left_out}


def is_corpus(path: Path) -> bool:
    """Return whether the file is int32 ids of a vocabulary."""
    if path.stat().st_size % ID_BYTES:
        return False
    ids = np.memmap(path, "<u4", "r")
    return bool(ids.max() < LARGEST)
