"""Kind `tokens`: a corpus, tokenised once.

Files `shard-00000.safetensors`, `shard-00001.safetensors`, ..., each with

    tokens     u16 or u32 [n]      ids of one document after another; u16 up to 65,535 ids
    documents  u64 [d + 1]         where each document begins, in tokens; the last is n

A shard holds whole documents. An empty document has two equal offsets.
`counts`: documents, tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ngramkit.formats.artifact import Artifact, Layout, require, token_dtype
from ngramkit.formats.container import Array

LAYOUT: Layout = {"tokens": (("uint16", "uint32"), 1), "documents": (("uint64",), 1)}


@dataclass(frozen=True)
class TokenShard:
    tokens: Array  # uint16 | uint32 [n]
    documents: Array  # uint64 [d + 1], in tokens


class TokenStore(Artifact):
    kind = "tokens"

    @cached_property
    def shards(self) -> list[TokenShard]:
        found = []
        for name in sorted(self.manifest.files):
            arrays = self.arrays(name, LAYOUT)
            found.append(TokenShard(arrays["tokens"], arrays["documents"]))
        return found

    def documents(self) -> Iterator[Array]:
        """Every document's ids, in the corpus's order; empty ones too."""
        for shard in self.shards:
            for begin, end in zip(shard.documents[:-1], shard.documents[1:], strict=True):
                yield shard.tokens[int(begin) : int(end)]

    def check(self) -> Iterator[str]:
        vocabulary = self.tokenizer.vocabulary
        counts = {"documents": 0, "tokens": 0}
        for name, shard in zip(sorted(self.manifest.files), self.shards, strict=True):
            path, offsets = self.path / name, shard.documents
            dtype = token_dtype(vocabulary)
            require(shard.tokens.dtype == dtype, path, f"ids are not {dtype}")
            yield f"{name}: token width"
            require(len(offsets) > 0 and offsets[0] == 0, path, "documents do not begin at 0")
            require(np.all(offsets[:-1] <= offsets[1:]), path, "document offsets fall")
            require(offsets[-1] == len(shard.tokens), path, "documents do not end at the end")
            yield f"{name}: document offsets"
            highest = int(shard.tokens.max(initial=0))
            require(highest < vocabulary, path, f"id {highest} is outside the vocabulary")
            yield f"{name}: ids inside the vocabulary"
            counts["documents"] += len(offsets) - 1
            counts["tokens"] += len(shard.tokens)
        require(counts == self.manifest.counts, self.path, f"it holds {counts}, not as listed")
        yield "counts"
