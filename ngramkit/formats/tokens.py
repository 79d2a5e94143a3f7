"""Kind `tokens`: a tokenised corpus.

Files `shard-00000.safetensors`, `shard-00001.safetensors`, ..., each with whole documents:

    tokens     u16 or u32 [n]      ids of one document after another; u16 up to 65,535 ids
    documents  u64 [d + 1]         the place of each document's first token; the last is n

`counts`: documents, tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from ngramkit.formats.artifact import IDS, Artifact, Layout, ValueCheck, require
from ngramkit.formats.safetensors import Array

LAYOUT: Layout = {"tokens": (IDS, 1), "documents": (("uint64",), 1)}


@dataclass(frozen=True)
class TokenShard:
    tokens: Array  # uint16 | uint32 [n]
    documents: Array  # uint64 [d + 1], in tokens


class TokenStore(Artifact):
    kind = "tokens"

    @cached_property
    def shards(self) -> list[TokenShard]:
        return [TokenShard(**self.arrays(name, LAYOUT)) for name in sorted(self.manifest.files)]

    def documents(self) -> Iterator[Array]:
        for shard in self.shards:
            for begin, end in zip(shard.documents[:-1], shard.documents[1:], strict=True):
                yield shard.tokens[int(begin) : int(end)]

    def value_checks(self) -> list[ValueCheck]:
        names = sorted(self.manifest.files)
        shards = zip(names, self.shards, strict=True)
        return [*(partial(self._check_shard, *pair) for pair in shards), self._check_counts]

    def _check_shard(self, name: str, shard: TokenShard) -> list[str]:
        path, offsets, vocabulary = self.path / name, shard.documents, self.tokenizer.vocabulary
        require(len(offsets) > 0 and offsets[0] == 0, path, "documents must begin at 0")
        require(np.all(offsets[:-1] <= offsets[1:]), path, "document offsets must not fall")
        length = len(shard.tokens)
        require(offsets[-1] == length, path, "documents must end at the number of tokens")
        highest = int(shard.tokens.max(initial=0))
        require(highest < vocabulary, path, f"id {highest} is outside the vocabulary")
        lines = ("token width", "document offsets", "ids inside the vocabulary")
        return [f"{name}: {line}" for line in lines]

    def _check_counts(self) -> list[str]:
        counts = {
            "documents": sum(len(shard.documents) - 1 for shard in self.shards),
            "tokens": sum(len(shard.tokens) for shard in self.shards),
        }
        require(counts == self.manifest.counts, self.path, f"it holds {counts}, not as listed")
        return ["counts"]
