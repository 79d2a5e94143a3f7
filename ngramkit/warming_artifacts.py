"""Artifacts of a few tokens, for kernels to be compiled with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter

SHARDED = (TokenStore.kind, Datastore.kind)
TOKENS = np.tile(np.array([1, 2, 3, 4, 2, 3, 5], np.int32), 12)


def tiny_store(folder: Path, of: TokenizerRecord) -> TokenStore:
    """Two documents of TOKENS."""
    size = len(TOKENS)
    arrays = {
        "tokens": np.tile(TOKENS, 2).astype(token_dtype(of.vocabulary)),
        "documents": np.array([0, size, 2 * size], np.uint64),
    }
    counts = {"documents": 2, "tokens": 2 * size}
    made = _written(folder / f"tokens-{of.id}", TokenStore.kind, of, arrays, counts)
    return TokenStore.open(made)


def tiny_datastore(folder: Path, of: TokenizerRecord) -> Datastore:
    """A document of TOKENS, sorted without the kernels of building: whoever drafts from a datastore
    does not wait for those."""
    separator = of.vocabulary
    tokens = np.append(TOKENS, separator).astype(token_dtype(separator))
    text = tokens.tolist()
    arrays = {
        "tokens": tokens,
        "suffix_array": np.array(sorted(range(len(text)), key=lambda at: text[at:]), np.int32),
        "first_token": np.append(0, np.bincount(text).cumsum()).astype(np.uint64),
    }
    counts = {"documents": 1, "tokens": len(TOKENS)}
    made = _written(folder / f"datastore-{of.id}", Datastore.kind, of, arrays, counts)
    return Datastore.open(made)


def tiny_bigram(folder: Path, of: TokenizerRecord, k: int = 2, width: int = 3) -> ModelBigram:
    ids = np.arange(of.vocabulary)[:, None] + np.arange(k)
    next_tokens = (ids % of.vocabulary).astype(token_dtype(of.vocabulary))
    arrays = {
        "next_tokens": next_tokens,
        "log_probs": np.tile(np.array([-1, -2], np.float16), (of.vocabulary, 1)),
        "extended": np.repeat(next_tokens[:, :, None], width, axis=2),
    }
    counts = {"rows": of.vocabulary, "drafts": of.vocabulary * k}
    parameters = {"k": k, "width": width, "extend": "model"}
    made = _written(folder / f"bigram-{of.id}", ModelBigram.kind, of, arrays, counts, parameters)
    return ModelBigram.open(made)


def tiny_frozen(folder: Path, of: TokenizerRecord) -> FrozenTable:
    """What follows the tokens 1 and 2 of TOKENS."""
    width = token_dtype(of.vocabulary)
    arrays = {
        "leaders": np.array([[1], [2]], width),
        "leader_counts": np.array([12, 24], np.uint32),
        "follower_offsets": np.array([0, 1, 3], np.uint64),
        "followers": np.array([[2, 3, 4], [3, 4, 2], [3, 5, 1]], width),
        "follower_counts": np.array([12, 12, 11], np.uint32),
    }
    counts = {"documents": 1, "tokens": len(TOKENS), "leaders": 2, "followers": 3}
    asked = {"leader_len": 1, "leaders": 2, "follower_len": 3, "followers": 2}
    made = _written(folder / f"frozen-{of.id}", FrozenTable.kind, of, arrays, counts, asked)
    return FrozenTable.open(made)


def _written(
    path: Path,
    kind: str,
    of: TokenizerRecord,
    arrays: dict[str, Array],
    counts: dict[str, int],
    parameters: dict[str, Any] | None = None,
) -> Path:
    name = "shard-00000.safetensors" if kind in SHARDED else TABLE
    with ArtifactWriter(path, kind, {"id": of.id}) as writer:
        writer.write(name, arrays)
        writer.commit(of, parameters=parameters or {}, corpus={"id": "none"}, counts=counts)
    return path
