"""What a model held likely in one request: a row per context, found token by token.

Rows are a trie: the prompt's last token is its root, a row's context is the tokens down to it.
Knows neither folders nor models.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.formats.container import Array
from ngramkit.formats.evidence import KEPT, About, Told

UNKNOWN = -1  # no row


class Known:
    """The rows of `prompt`, int32[n]; `saved` of them are in the folder already."""

    def __init__(self, about: About, prompt: TokenArray, answer: TokenArray) -> None:
        self.about, self.prompt, self.answer = about, prompt, answer
        self.saved = 0
        self._rows: dict[tuple[int, int], int] = {}  # (parent, token) -> row
        self._tokens = np.empty(64, np.int32)
        self._parents = np.empty(64, np.int32)
        self._ids = np.empty((64, KEPT), np.int32)
        self._log_probs = np.empty((64, KEPT), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def root(self) -> int:
        """The prompt's own row, or UNKNOWN."""
        return 0 if self._rows else UNKNOWN

    def child(self, row: int, token: int) -> int:
        """The row of `token` after `row`'s context, or UNKNOWN."""
        return self._rows.get((row, token), UNKNOWN)

    def add(self, parent: int, token: int, ids: Array, log_probs: Array) -> int:
        """The row of `token` after `parent`'s context: the one there is, else a new one with these
        likeliest next tokens, [k]. The first row's parent is UNKNOWN."""
        row = self._rows.setdefault((parent, token), len(self._rows))
        if row < len(self._rows) - 1:
            return row
        if row == len(self._tokens):
            self._grow()
        count = min(len(ids), KEPT)
        self._tokens[row], self._parents[row] = token, parent
        self._ids[row, :count], self._ids[row, count:] = ids[:count], -1
        self._log_probs[row, :count] = log_probs[:count]
        self._log_probs[row, count:] = -np.inf
        return row

    def _grow(self) -> None:
        for name in ("_tokens", "_parents", "_ids", "_log_probs"):
            held = getattr(self, name)
            setattr(self, name, np.concatenate([held, np.empty_like(held)]))

    def merge(self, told: Told) -> None:
        """Takes in what is not known yet."""
        rows: list[int] = []
        tokens, parents = told.tokens.tolist(), told.parents.tolist()
        for i, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            above = rows[parent] if parent >= 0 else UNKNOWN
            rows.append(self.add(above, token, told.top_ids[i], told.top_log_probs[i]))
        if not len(self.answer):
            self.answer = told.answer.copy()

    def rows_of(self, above: int, root: int, tree: DraftTree) -> list[int]:
        """A pass's rows, `root` and then the nodes, after the context of `above`; UNKNOWN where
        they are not known."""
        rows = [self.child(above, root)]
        for token, parent in zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True):
            held = rows[parent + 1]
            rows.append(UNKNOWN if held == UNKNOWN else self.child(held, token))
        return rows

    def put(
        self, above: int, root: int, tree: DraftTree, ids: Array, log_probs: Array
    ) -> list[int]:
        """Adds what is new of a pass, ids and log_probs [n + 1, k]; its rows, as `rows_of`."""
        rows = [self.add(above, root, ids[0], log_probs[0])]
        for i, (token, parent) in enumerate(zip(tree.token_ids.tolist(), tree.parents.tolist(),
                                                strict=True), 1):  # fmt: skip
            rows.append(self.add(rows[parent + 1], token, ids[i], log_probs[i]))
        return rows

    def evidence(self, root: int, rows: list[int], tree: DraftTree, tops: int) -> Evidence:
        """Of a pass's `rows`, as `rows_of` gives them: those that are known. The first must be."""
        held = np.array(rows)
        known = held >= 0
        place = np.cumsum(known, dtype=np.int32) - 1  # of a pass's row among those known
        tokens = np.concatenate([np.array([root], np.int32), tree.token_ids])[known]
        above = np.concatenate([np.array([0], np.int32), tree.parents + np.int32(1)])
        parents = place[above][known]
        parents[0] = -1
        held = held[known]
        ids, log_probs = self._ids[held], self._log_probs[held]
        there = min(tops, int((ids[0] >= 0).sum()))  # a small vocabulary has fewer
        return Evidence(tokens, parents, ids[:, :there], log_probs[:, :there])

    def unsaved(self) -> Told:
        """What is to be added to the folder: the new rows and those above them; maybe none."""
        size = len(self._rows)
        wanted = np.zeros(size, bool)
        for row in range(self.saved, size):
            at = row
            while at >= 0 and not wanted[at]:
                wanted[at] = True
                at = int(self._parents[at])
        place = np.cumsum(wanted, dtype=np.int32) - 1
        rows = np.flatnonzero(wanted)
        parents = self._parents[rows]
        return Told(
            self.about,
            self.prompt,
            self.answer,
            self._tokens[rows],
            np.where(parents < 0, np.int32(-1), place[parents]),
            self._ids[rows],
            self._log_probs[rows],
        )
