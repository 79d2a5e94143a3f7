"""ExLlamaV3's frozen suffix automaton of a corpus, as its `ngram_corpus` option reads it.

Little-endian, version 1, read by ExLlamaV3 1.6.5:

    magic     8 bytes   EXL3SAM and a zero byte
    version   u32       1
    header    u32       bytes of the header
    payload   u64       bytes of the decompressed payload
    JSON                the header: counts, the sha256 of the corpus and of the tokenizer's files,
                        and the offsets of the sections
    zstd                one frame, the payload: int32 sections at multiples of 64 bytes, each as
                        four planes: all lowest bytes first, all highest bytes last

The sections are `link`, `max_len` and `min_end` of each state, `edge_offsets` with the range of its
edges, `edge_token` and `edge_to` sorted by state and token, `root` with the target of each token
from state 0 (-1 for none), `corpus` with the tokens and -1 after each document, and `document_ends`
with the positions of the -1.

ExLlamaV3 drafts what follows the longest suffix of the context at its first place in the corpus,
up to the end of the document. It loads a file only if tokenizer.json, tokenizer_config.json and
added_tokens.json in the model's folder have the listed sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.machine import free_memory
from ngramkit.basics.models import resolve_model
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import size_text
from ngramkit.basics.version import __version__
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.replacing import whole_file
from ngramkit.formats.safetensors import Array, sha256_of

MAGIC, VERSION = b"EXL3SAM\0", 1
HEADER = struct.Struct("<8sIIQ")
SEPARATOR = -1
ALIGNMENT = 64  # bytes
MAX_EXPORTED_TOKENS = (2**31 - 2) // 3  # with separators; a token has at most three edges
MAX_ROOT = 1 << 20  # entries of `root`
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json")
CHUNK_TOKENS = 1 << 20  # tokens
TOKEN_BYTES = 132  # most memory for a token: 84, and 48 for the slots or then the sorted edges


def export_automaton(
    store: Datastore,
    model: str | Path,
    path: Path,
    *,
    memory: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write the automaton of a datastore's documents; return counts.

    `model` is the folder that ExLlamaV3 loads. `memory` bounds the automaton in bytes (default:
    what is free). Raises UsageError if the corpus or the automaton is too large, or `model` is not
    such a folder.
    """
    files = tokenizer_files(model)
    store.tokenizer.require(load_tokenizer(str(model)).record, str(store.path))
    size = sum(len(shard.tokens) for shard in store.shards)
    _require_room(store, size, memory)
    reporter.stage("suffix automaton", size, "tokens")
    private = store.manifest.private
    with whole_file(path, is_automaton, force=force, inputs=[store.path], private=private) as file:
        sections = _automaton_arrays(store, size, reporter)
        corpus, ends = sections["corpus"], sections["document_ends"]
        if not len(ends):
            raise InputError(f"cannot export {store.where}: it has no text", "Export another one.")
        counts = {
            "documents": len(ends),
            "tokens": len(corpus) - len(ends),
            "states": len(sections["link"]),
            "edges": len(sections["edge_token"]),
        }
        facts = {
            "tokenizer": {"files": files},
            "sources": [{"name": str(store.manifest.corpus.get("id", "unknown"))}],
            "software": {"ngramkit": __version__},
            "build": store.manifest.build,
            **({"private": True} if private else {}),
            "corpus_sha256": hashlib.sha256(corpus.astype("<i4").data).hexdigest(),
            "token_count": len(corpus),
            "document_count": counts["documents"],
            "state_count": counts["states"],
            "edge_count": counts["edges"],
        }
        write_sections(file, sections, facts, reporter)
        return {**counts, "bytes": os.fstat(file.fileno()).st_size}


def tokenizer_files(model: str | Path) -> dict[str, str]:
    """Return the sha256 of the files that ExLlamaV3 compares. Raises UsageError without them."""
    folder = Path(resolve_model(model))
    if not (folder / TOKENIZER_FILES[0]).is_file():
        raise UsageError(
            f"model must be the folder that ExLlamaV3 loads, with {TOKENIZER_FILES[0]}, got "
            f"{model}",
            "Give the folder's path.",
            option="model",
        )
    return {name: sha256_of(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}


def _require_room(store: Datastore, size: int, memory: int | None) -> None:
    if size > MAX_EXPORTED_TOKENS:
        fitting = size_text(store.manifest.bytes * MAX_EXPORTED_TOKENS // size)
        raise UsageError(
            f"cannot export {store.where}: it has {size:,} tokens and separators, and ExLlamaV3 "
            f"reads at most {MAX_EXPORTED_TOKENS:,}",
            f"Prune it to {fitting} or less first.",
        )
    needed, limit = TOKEN_BYTES * size, memory or free_memory()
    if needed > limit:
        fitting = size_text(store.manifest.bytes * limit // needed)
        raise UsageError(
            f"cannot export {store.where}: its automaton may take {size_text(needed)} of memory, "
            f"and {size_text(limit)} are {'allowed' if memory else 'free'}",
            f"Prune it to {fitting} or less first"
            + (", or raise memory." if memory else ", or export it on a larger machine."),
            option="memory",
        )


def _automaton_arrays(store: Datastore, size: int, reporter: Reporter) -> dict[str, Array]:
    """Build the automaton; return the file's int32 arrays in order."""
    from ngramkit.kernels.automaton import EDGES, SIZE, STATES, add, new_automaton, sort_edges

    automaton = new_automaton(size)
    for chunk in _token_chunks(store):
        add(automaton, chunk)
        reporter.advance(len(chunk))
    tokens, states, edges = (int(automaton.state[at]) for at in (SIZE, STATES, EDGES))
    automaton = automaton._replace(slots=np.empty(0, np.int32))  # half of the memory
    vocabulary = store.tokenizer.vocabulary
    counts, offsets = np.zeros(vocabulary + 2, np.int64), np.zeros(states + 1, np.int32)
    edge_token, edge_to = np.empty(edges, np.int32), np.empty(edges, np.int32)
    sort_edges(automaton, counts, offsets, edge_token, edge_to)
    root = np.full(min(vocabulary, MAX_ROOT), -1, np.int32)
    labels = edge_token[: offsets[1]]
    dense = (labels >= 0) & (labels < len(root))
    root[labels[dense]] = edge_to[: offsets[1]][dense]
    first = automaton.first[:states]
    first -= 1
    first[0] = np.iinfo(np.int32).max  # of the empty match
    corpus = automaton.tokens[:tokens]
    return {
        "link": automaton.link[:states],
        "max_len": automaton.length[:states],
        "min_end": first,
        "edge_offsets": offsets,
        "edge_token": edge_token,
        "edge_to": edge_to,
        "root": root,
        "corpus": corpus,
        "document_ends": np.flatnonzero(corpus == SEPARATOR).astype(np.int32),
    }


def _token_chunks(store: Datastore) -> Iterator[Array]:
    """Yield the tokens, int32[n], with -1 after each document that is not empty."""
    after = True  # a separator, or the beginning
    for shard in store.shards:
        for begin in range(0, len(shard.tokens), CHUNK_TOKENS):
            tokens = shard.tokens[begin : begin + CHUNK_TOKENS].astype(np.int32)
            ends = tokens == store.separator
            empty = ends & np.concatenate([[after], ends[:-1]])
            tokens[ends] = SEPARATOR
            after = bool(ends[-1])
            yield tokens[~empty]


def write_sections(
    file: BinaryIO, sections: dict[str, Array], facts: dict[str, Any], reporter: Reporter = SILENT
) -> None:
    """Write the file's prefix, header and payload."""
    import pyarrow as pa

    listed: list[dict[str, Any]] = []
    end = 0
    for name, values in sections.items():
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        end = begin + 4 * len(values)
        place = {"name": name, "offset": begin, "count": len(values)}
        listed.append(place | {"dtype": "<i4", "encoding": "byte_planes"})
    layout = {
        "format": "exllamav3.frozen_sam",
        "version": VERSION,
        "layout": "csr",
        "compression": "zstd",
        "separator": SEPARATOR,
        "root_dense_limit": MAX_ROOT,
        "payload_bytes": end,
        "sections": listed,
    }
    header = json.dumps({**facts, **layout}, sort_keys=True, separators=(",", ":")).encode()
    file.write(HEADER.pack(MAGIC, VERSION, len(header), end))
    file.write(header)
    file.flush()
    reporter.stage("writing", end, "bytes")
    written = 0
    with (
        os.fdopen(os.dup(file.fileno()), "wb") as raw,  # closed at the end of the frame
        pa.CompressedOutputStream(pa.PythonFile(raw, "w"), "zstd") as frame,
    ):
        for section, values in zip(listed, sections.values(), strict=True):
            frame.write(bytes(section["offset"] - written))
            written = section["offset"] + 4 * section["count"]
            planes = values.astype("<i4", copy=False).view(np.uint8).reshape(-1, 4)
            for plane in range(4):
                for begin in range(0, len(planes), CHUNK_TOKENS):
                    frame.write(planes[begin : begin + CHUNK_TOKENS, plane].tobytes())
            reporter.advance(4 * section["count"])


def is_automaton(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
