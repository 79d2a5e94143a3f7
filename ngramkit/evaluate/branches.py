"""Branches: draft nodes that hang anywhere in a text, of many drafts at once. Knows no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.evaluate.known import UNKNOWN, Known
from ngramkit.formats.container import Array

Bools = npt.NDArray[np.bool_]


class Branches(NamedTuple):
    """Nodes, each behind its parent."""

    tokens: TokenArray  # int32[n]
    parents: TokenArray  # int32[n]; -1: it hangs in the text
    after: TokenArray  # int32[n], how many tokens of the text come before its branch
    wanted: Bools  # [n], the others only lead there

    def part(self, kept: Bools) -> Branches:
        """Whole branches of it."""
        place = np.append(np.cumsum(kept, dtype=np.int32) - 1, np.int32(-1))  # the last: none
        parents = place[self.parents][kept]
        return Branches(self.tokens[kept], parents, self.after[kept], self.wanted[kept])


def in_parts(branches: Branches, most: int) -> Iterator[Branches]:
    """Neighbouring branches together, at most `most` nodes unless one alone has more. Rows that are
    wanted come in the order of `branches`."""
    begins = np.flatnonzero(branches.parents < 0)
    sizes = np.diff(np.append(begins, len(branches.tokens)))
    number, filled = np.zeros(len(begins), np.int64), 0
    for i, size in enumerate(sizes.tolist()):
        new = i > 0 and filled + size > most
        filled = size if new else filled + size
        number[i] = number[i - 1] + new if i else 0
    of_node = np.repeat(number, sizes)
    for part in range(int(of_node[-1]) + 1 if len(of_node) else 0):
        yield branches.part(of_node == part)


def by_place(branches: Branches) -> Iterator[Branches]:
    """Those that hang in one place together, place by place in the order of `branches`."""
    for after in np.unique(branches.after):
        yield branches.part(branches.after == after)


class Forest:
    """What many drafts after one text lack, each context once.

    `spine`: the row after each number of tokens of the text, text and all, [len(text) + 1].
    """

    def __init__(self, known: Known, text: TokenArray, spine: list[int]) -> None:
        self._known, self._text, self._spine = known, text.tolist(), spine
        self._places: dict[tuple[int, int], int] = {}  # (parent, token) -> node
        self._tokens: list[int] = []
        self._parents: list[int] = []  # a node, or ~after for one that hangs in the text
        self._rows: list[int] = []

    def add(self, written: int, tree: DraftTree, rows: list[int]) -> None:
        """A draft after `written` tokens of the text; `rows` of its nodes, UNKNOWN: wanted."""
        at = [~written]
        nodes = zip(tree.token_ids.tolist(), tree.parents.tolist(), rows, strict=True)
        for token, parent, row in nodes:
            above = at[parent + 1]
            if above < 0 and ~above < len(self._text) and self._text[~above] == token:
                at.append(above - 1)  # the text goes on so
            else:
                at.append(self._node(above, token, row))

    def _node(self, above: int, token: int, row: int) -> int:
        place = self._places.setdefault((above, token), len(self._tokens))
        if place == len(self._tokens):
            self._tokens.append(token)
            self._parents.append(above)
            self._rows.append(row)
        return place

    def __len__(self) -> int:
        return len(self._tokens)

    def ordered(self) -> tuple[Branches, list[int]]:
        """All, branch by branch along the text, and the node that each was added as."""
        tops: list[int] = []
        for node, parent in enumerate(self._parents):
            tops.append(node if parent < 0 else tops[parent])
        order = sorted(range(len(tops)), key=lambda n: (~self._parents[tops[n]], tops[n], n))
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        parents = [-1 if self._parents[n] < 0 else place[self._parents[n]] for n in order]
        found = Branches(
            np.array([self._tokens[n] for n in order], np.int32),
            np.array(parents, np.int32),
            np.array([~self._parents[tops[n]] for n in order], np.int32),
            np.array([self._rows[n] == UNKNOWN for n in order], bool),
        )
        return found, order

    def put(self, order: list[int], ids: Array, log_probs: Array) -> int:
        """Adds what was said of the wanted nodes of `ordered`, [wanted, k]; how many."""
        given = 0
        for node in order:
            if self._rows[node] != UNKNOWN:
                continue
            above = self._parents[node]
            row = self._spine[~above] if above < 0 else self._rows[above]
            said = ids[given], log_probs[given]
            self._rows[node] = self._known.add(row, self._tokens[node], *said)
            given += 1
        return given
