"""REST's datastore file (`datastore_chat_small.idx`; FasterDecoding/REST).

Little-endian chunks, repeated to the end of the file:

    u32           bytes of the tokens
    u16 or u32    tokens of the chunk; u32 in a patched variant, recognised by the two lengths
    u32           bytes of the suffix array
    i32           token positions in the order of the suffixes that begin there; a shorter suffix
                  comes before a longer one that continues it

There are no document boundaries and no vocabulary. The usual variant sorts whole ids but writes 16
bits: ids above 65,535 wrap, and look-ups fail silently. Such files are refused.

On import a document ends after each EOS and before each BOS, which is dropped: REST's builders put
one before every document, and no draft can use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngramkit.basics.errors import InputError, UsageError, reason
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import open_plain
from ngramkit.builders.datastore import build_datastore
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.outputs import require_fit_for_output
from ngramkit.formats.replacing import delete_artifact, whole_file
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, sha256_of
from ngramkit.formats.tokens import TokenStore
from ngramkit.remote.publishing import folder_to_build_in

CHUNK_TOKENS = 1 << 29  # tokens per written chunk, REST's default; lengths fit 32 bits
CHECKED_SUFFIXES = 1 << 22  # suffixes checked at a time


@dataclass(frozen=True)
class Chunk:
    tokens: Array  # uint16 | uint32 [n]
    suffix_array: Array  # int32[n]


def export_rest_idx(
    store: Datastore,
    path: Path,
    *,
    u32: bool = False,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write the documents of `store` without separators; return {"bytes"}.

    Raises UsageError if the ids need `u32`, or `path` exists.
    """
    if store.separator > 1 << 16 and not u32:
        raise UsageError(
            f"cannot export {store.where}: its vocabulary has {store.separator:,} tokens, and "
            "REST's files hold 16-bit ids",
            "Give u32=True for a REST that was patched to read 32-bit ids.",
            option="u32",
        )
    from ngramkit.kernels.suffix.sort import sort_shard

    dtype = "<u4" if u32 else "<u2"
    reporter.stage("suffix arrays", store.manifest.counts.get("tokens"))
    private = store.manifest.private
    with whole_file(path, is_rest_idx, force=force, inputs=[store.path], private=private) as file:
        for shard in store.shards:
            tokens = shard.tokens[shard.tokens != store.separator]
            for begin in range(0, len(tokens), CHUNK_TOKENS):
                chunk = tokens[begin : begin + CHUNK_TOKENS]
                order = sort_shard(chunk, store.separator)["suffix_array"]
                for values in (chunk.astype(dtype), order.astype("<i4")):
                    file.write(values.nbytes.to_bytes(4, "little"))
                    file.write(values.data)
                reporter.advance(len(chunk))
        return {"bytes": file.tell()}


def import_rest_idx(
    path: Path,
    tokenizer: TextTokenizer,
    out: str | Path,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Datastore:
    """Build a datastore of the same documents.

    Raises InputError for truncated files, wrapped ids and ids of another tokenizer.
    """
    chunks = list(read_chunks(path))
    record = tokenizer.record
    corpus = {"id": path.name, "format": "rest-idx", "sha256": sha256_of(path)}
    plan = {"kind": TokenStore.kind, "corpus": corpus, "tokenizer": record.fingerprint}
    folder = folder_to_build_in(out)
    require_fit_for_output(folder, [path])
    documents = folder.with_name(folder.name + ".documents.partial")

    def write(writer: ArtifactWriter) -> None:
        counts = {"documents": 0, "tokens": 0}
        for number, chunk in enumerate(chunks):
            check_chunk(path, chunk, tokenizer)
            arrays = _split_documents(chunk.tokens, tokenizer)
            writer.write(f"shard-{number:05d}.safetensors", arrays)
            counts["documents"] += len(arrays["documents"]) - 1
            counts["tokens"] += len(arrays["tokens"])
            reporter.advance(len(arrays["tokens"]), **counts)
        writer.commit(record, parameters={}, corpus=corpus, counts=counts, foreign=True)

    store = Build(kind=TokenStore, plans=[plan], write=write).at(documents, force=True)
    datastore = build_datastore(store, out, reporter=reporter, force=force)
    delete_artifact(documents)
    return datastore


def read_chunks(path: Path) -> Iterator[Chunk]:
    try:
        with open_plain(path, error=InputError) as file:
            if not os.fstat(file.fileno()).st_size:
                raise _not_a_datastore(path, "it is empty")
            raw = np.memmap(file, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {reason(error)}", "Check the path.") from error
    at = 0
    while at < len(raw):
        tokens, at = _read_block(path, raw, at)
        order, at = _read_block(path, raw, at)
        if len(order) % 4 or len(tokens) not in (len(order) // 2, len(order)):
            raise _not_a_datastore(
                path, "the lengths of tokens and suffix array do not fit each other"
            )
        width = "<u4" if len(tokens) == len(order) else "<u2"
        yield Chunk(tokens.view(width), order.view("<i4"))


def is_rest_idx(path: Path) -> bool:
    return sum(1 for _ in read_chunks(path)) > 0


def _read_block(path: Path, raw: Array, at: int) -> tuple[Array, int]:
    length = int.from_bytes(raw[at : at + 4].tobytes(), "little")
    begin, end = at + 4, at + 4 + length
    if begin > len(raw) or end > len(raw) or not length:
        raise _not_a_datastore(path, f"the block at byte {at:,} is cut short")
    return np.asarray(raw[begin:end]), end


def check_chunk(path: Path, chunk: Chunk, tokenizer: TextTokenizer) -> None:
    """Raise InputError unless ids are valid and suffixes sorted by their first token."""
    tokens, order, vocabulary = chunk.tokens, chunk.suffix_array, tokenizer.record.vocabulary
    wrapped = InputError(
        f"cannot read {path}: its suffixes are not in order. REST writes ids with 16 bits, so the "
        "ids of a vocabulary above 65,536 wrap silently",
        "Build the datastore again from the corpus: ngramkit build-datastore",
    )
    if tokens.dtype.itemsize == 2 and vocabulary > 1 << 16:
        raise wrapped
    highest = int(tokens.max())
    previous = -1
    for begin in range(0, len(order), CHECKED_SUFFIXES):
        positions = order[begin : begin + CHECKED_SUFFIXES]
        if positions.min() < 0 or positions.max() >= len(tokens):
            raise _not_a_datastore(path, "its suffix array points outside its tokens")
        first = tokens[positions].astype(np.int64)
        if first[0] < previous or np.any(first[1:] < first[:-1]):
            raise wrapped
        previous = int(first[-1])
    if highest >= vocabulary:
        raise InputError(
            f"cannot import {path}: it holds the id {highest}, outside the vocabulary of "
            f"{tokenizer.record.id} ({vocabulary:,} tokens)",
            "Give the model that the file was built for.",
            option="model",
        )


def _split_documents(tokens: Array, tokenizer: TextTokenizer) -> dict[str, Array]:
    """Split tokens after EOS and at BOS, which is dropped, into a token store's arrays."""
    eos, bos = tokenizer.record.eos, tokenizer.bos
    begins = np.zeros(len(tokens), bool)
    begins[0] = True
    if eos is not None:
        begins[1:] |= tokens[:-1] == eos
    kept = np.ones(len(tokens), bool)
    if bos is not None and bos != eos:
        kept = tokens != bos
        begins |= ~kept
    # A document begins at the first kept token at or after each cut.
    starts = np.unique(np.cumsum(kept)[begins] - kept[begins])
    ids = tokens[kept].astype(token_dtype(tokenizer.record.vocabulary))
    starts = starts[starts < len(ids)]
    return {"tokens": ids, "documents": np.append(starts, len(ids)).astype(np.uint64)}


def _not_a_datastore(path: Path, why: str) -> InputError:
    return InputError(
        f"cannot read {path} as a REST datastore: {why}", "Check the path and the file's size."
    )
