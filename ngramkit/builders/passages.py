"""Which passages of a datastore to keep when it is pruned: of many kinds, rather than many of one.

A passage is at most `PASSAGE` tokens of one document; documents are cut evenly. Those are kept that
hold the most n-grams, per token, which text like it comes to and no other passage kept holds; see
kernels.worth. What text comes to is seen in the training split, some of the datastore's documents,
which are kept last, and in recorded answers of the kind that drafts are for, which weigh more.

Short n-grams only: longer ones are of the subjects that a corpus happens to have, and other text
has other subjects. docs/benchmarks.md has the figures, beside a random sample and other rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.kernels.worth import choose, new_wanted, text_table, want

PASSAGE = 64  # tokens at most
ORDERS = (2, 3)  # lengths of the n-grams that a passage is worth something for
ANSWER = 8  # what an n-gram of the answers is worth, beside one of the split alone
SPLIT, MOST_TRAINED = 16, 1 << 21  # one document of so many, up to so many tokens of them
RULE = "most new n-grams per token, 2"  # in manifests: another number for any other choice
MIXED = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class Passages:
    """Rows in the corpus's order."""

    rows: Array  # int64[n, 3]: shard, begin, end in its tokens
    joined: Array  # bool[n], whether a row goes on where the one before it ends
    training: Array  # bool[n], whether its document is of the training split

    def kept(self, chosen: Array) -> Passages:
        """Those that are `chosen`, bool[n]."""
        joined = self.joined.copy()
        joined[1:] &= chosen[:-1]
        return Passages(self.rows[chosen], joined[chosen], self.training[chosen])

    @property
    def lengths(self) -> Array:
        """int64[n], in tokens."""
        return np.asarray(self.rows[:, 2] - self.rows[:, 1])

    @property
    def size(self) -> int:
        """Tokens of a stream of them, a separator behind each that the next does not continue."""
        return int(self.lengths.sum() + np.count_nonzero(~self.joined))


def chosen_passages(
    shards: Sequence[DatastoreShard], separator: int, budget: int, answers: Sequence[Array] = ()
) -> Passages:
    """What to keep of these shards in `budget` tokens, separators included.

    `answers` are token ids of text that drafts are for. What room is left when nothing more is
    worth anything is filled with other passages, drawn by the hash of their numbers: a sample.
    Memory: at most 144 bytes per token of the training split and the answers, 2 per token of the
    corpus.
    """
    documents = _documents(shards, separator)
    passages = _cut(documents)
    if passages.size <= budget:
        return passages
    trained = documents.rows[documents.training]
    texts = [shard.tokens for shard in shards]
    given = [np.asarray(answer, texts[0].dtype) for answer in answers]
    rows = np.array([(len(texts) + i, 0, len(a)) for i, a in enumerate(given)], np.int64)
    split = int((trained[:, 2] - trained[:, 1]).sum())
    total = sum(map(len, given))
    table = new_wanted(split + total, ORDERS)
    where = text_table([*texts, *given])
    want(table, where, trained, 1, False)
    want(table, where, rows.reshape(-1, 3), ANSWER, False)

    candidates = passages.kept(~passages.training)
    found = choose(table, where, candidates.rows, candidates.joined, budget)
    chosen = np.zeros(len(passages.rows), bool)
    chosen[np.flatnonzero(~passages.training)[found]] = True
    _fill(passages, chosen, budget)
    return passages.kept(chosen)


def _fill(passages: Passages, chosen: Array, budget: int) -> None:
    """Chooses more while there is room, those of the training split last."""
    left = budget - passages.kept(chosen).size
    others = np.flatnonzero(~chosen)
    order = others[np.lexsort((_drawn(others), passages.training[others]))]
    costs = np.cumsum(passages.lengths[order] + 1)
    chosen[order[: np.searchsorted(costs, left, side="right")]] = True


def _documents(shards: Sequence[DatastoreShard], separator: int) -> Passages:
    """Every document, as one row each; empty ones have none."""
    found = []
    for index, shard in enumerate(shards):
        last, end = (int(at) for at in shard.first_token[-2:])
        ends = np.sort(shard.suffix_array[last:end]).astype(np.int64)  # of the separators
        begins = np.concatenate([[0], ends[:-1] + 1])
        found.append(np.column_stack([np.full(len(ends), index), begins, ends]))
    rows = np.concatenate(found)
    rows = rows[rows[:, 1] < rows[:, 2]]
    documents = Passages(rows, np.zeros(len(rows), bool), np.zeros(len(rows), bool))
    drawn = _drawn(np.arange(len(rows))) % np.uint64(SPLIT) == 0
    enough = np.cumsum(np.where(drawn, documents.lengths, 0)) > MOST_TRAINED
    return replace(documents, training=drawn & ~enough)


def _drawn(numbers: Array) -> Array:
    """uint64[n], a hash of each number."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * MIXED
    return np.asarray((mixed ^ mixed >> np.uint64(31)) * MIXED >> np.uint64(40))


def _cut(documents: Passages) -> Passages:
    """Documents in as few even parts as have at most PASSAGE tokens."""
    lengths = documents.lengths
    parts = -(-lengths // PASSAGE)
    owner = np.repeat(np.arange(len(lengths)), parts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    first = documents.rows[owner, 1]
    begins = first + place * lengths[owner] // parts[owner]
    ends = first + (place + 1) * lengths[owner] // parts[owner]
    rows = np.column_stack([documents.rows[owner, 0], begins, ends])
    return Passages(rows, place > 0, documents.training[owner])
