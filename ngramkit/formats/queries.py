"""What an artifact says about a phrase, and what it holds most of. For people: exact, not fast.

Knows token ids, not text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngramkit.formats.artifact import Artifact
from ngramkit.formats.continuations import spans_of, top_continuations
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable

DEEPEST = 8  # tokens of a datastore's continuations


@dataclass(frozen=True)
class Answer:
    """How often `phrase` was seen, and what followed it most often, with counts."""

    phrase: list[int]
    matches: int
    continuations: list[tuple[list[int], int]]


def ask(artifact: Artifact, phrase: Sequence[int], top: int) -> Answer | None:
    """The `top` most frequent continuations of `phrase`; None for kinds that hold no n-grams.

    A datastore answers for the whole phrase with its most frequent continuations of any length up
    to 8 tokens, counted over all shards. A frozen table answers for the phrase's last tokens, as
    many as its leaders have.
    """
    if isinstance(artifact, Datastore):
        return _ask_datastore(artifact, phrase, top)
    if isinstance(artifact, FrozenTable):
        return _ask_table(artifact, list(phrase[-artifact.leader_len :]), top)
    return None


def most_frequent(artifact: Artifact, top: int, followers: int) -> Iterator[Answer]:
    """The `top` most frequent leaders (single tokens of a datastore), ties to the lower ids."""
    if isinstance(artifact, Datastore):
        buckets = sum(shard.first_token.astype(np.int64) for shard in artifact.shards)
        counts = np.diff(buckets)[: artifact.separator]
        for token in np.argsort(-counts, kind="stable")[:top].tolist():
            if counts[token]:
                yield _ask_datastore(artifact, [token], followers)
    if isinstance(artifact, FrozenTable):
        counts = artifact.leader_counts.astype(np.int64)
        for row in np.argsort(-counts, kind="stable")[:top]:
            yield _ask_table(artifact, artifact.leaders[row].tolist(), followers)


def _ask_table(table: FrozenTable, leader: list[int], top: int) -> Answer:
    row = table.find(leader)
    if row < 0:
        return Answer(leader, 0, [])
    rows = table.lookup(leader)
    rows = slice(rows.start, min(rows.stop, rows.start + top))
    followers = zip(table.followers[rows], table.follower_counts[rows], strict=True)
    best = [(follower.tolist(), int(count)) for follower, count in followers]
    return Answer(leader, int(table.leader_counts[row]), best)


def _ask_datastore(datastore: Datastore, phrase: Sequence[int], top: int) -> Answer:
    spans = spans_of(datastore.shards, phrase)
    matches = sum(high - low for low, high in spans)
    eos = datastore.tokenizer.eos
    ends = frozenset(() if eos is None else [eos])
    best = top_continuations(datastore.shards, spans, len(phrase), top, DEEPEST, ends)
    return Answer(list(phrase), matches, best)
