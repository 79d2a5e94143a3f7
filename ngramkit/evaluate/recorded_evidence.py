"""A record of the model's top-k at verified nodes, the evidence of replays.

The top-k depends only on the context, so a recorded context serves every drafter. A model, if
given, verifies missing contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import ArtifactError
from ngramkit.drafters.base import MAX_EVIDENCE_TOKENS, DraftTree, Evidence, TokenArray
from ngramkit.evaluate.records import Record, Turn
from ngramkit.formats.evidence import KEPT_TOKENS, About, EvidenceFolder, RecordedRequest
from ngramkit.formats.safetensors import Array

NOT_RECORDED = -1  # no row: the context is not on record

TopK = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # ids and log probs, [rows, k] each


class Model(Protocol):
    """A model that verifies what is not on record."""

    def after_prompt(self, prompt: TokenArray) -> TopK:
        """Return the top-k after the prompt, one row."""

    def after_draft(self, prompt: TokenArray, written: TokenArray, tree: DraftTree) -> TopK:
        """Return a row for the last token of `written`, then one per node of `tree`."""


@dataclass
class Misses:
    rows: int = 0
    missing: int = 0

    def add(self, other: Misses) -> None:
        self.rows += other.rows
        self.missing += other.missing


class RecordedEvidence:
    """All requests of a folder; `model` verifies missing contexts, `save` adds them."""

    model: Model | None = None

    def __init__(self, folder: EvidenceFolder) -> None:
        self.folder = folder
        self.added = 0  # contexts that `save` has written
        self._requests: dict[bytes, RequestRows] = {}
        # By question and turn; several may have the same prompt.
        self._answered: dict[str, dict[int, tuple[About, RequestRows]]] = {}
        for stored in folder.requests():
            about, prompt = stored.about, stored.prompt.copy()
            rows = self._requests.setdefault(
                prompt.tobytes(), RequestRows(about, prompt, stored.answer.copy())
            )
            rows.merge(stored)
            rows.saved = len(rows)
            if len(stored.answer):
                self._answered.setdefault(about.question, {}).setdefault(about.turn, (about, rows))

    @classmethod
    def open(cls, path: str | Path) -> RecordedEvidence:
        return cls(EvidenceFolder.open(path))

    def __repr__(self) -> str:
        return (
            f"<RecordedEvidence {self.folder.path}: {len(self._requests):,} requests, "
            f"{self.rows:,} rows>"
        )

    @property
    def rows(self) -> int:
        return sum(map(len, self._requests.values()))

    def answers(self) -> list[Record]:
        if not self._answered:
            raise ArtifactError(
                f"cannot replay {self.folder.path}: it has no answers", "Record some."
            )
        return [
            Record(
                question,
                next(iter(turns.values()))[0].category,
                [
                    Turn(rows.prompt, rows.answer, longest=about.longest)
                    for _, (about, rows) in sorted(turns.items())
                ],
            )
            for question, turns in self._answered.items()
        ]

    def evidence_of(self, turn: Turn) -> ReplayedEvidence:
        key = np.ascontiguousarray(turn.prompt, np.int32).tobytes()
        if key not in self._requests:
            about = About("", "", 0, "", len(turn.answer))
            self._requests[key] = RequestRows(about, turn.prompt, np.empty(0, np.int32))
        return ReplayedEvidence(self._requests[key], self.model)

    def save(self) -> None:
        requests = self._requests.values()
        self.added += add_rows([each for each in requests if each.saved < len(each)], self.folder)


class ReplayedEvidence:
    def __init__(self, request: RequestRows, model: Model | None) -> None:
        self.misses = Misses()
        self._request, self._model = request, model
        self._read = request.root  # row of the context that the model has read
        self._written: list[int] = []

    def after_prompt(self) -> Evidence | None:
        request, last = self._request, int(self._request.prompt[-1])
        self.misses.rows += 1
        if self._read == NOT_RECORDED:
            if self._model is None:
                self.misses.missing += 1
                return None
            ids, log_probs = self._model.after_prompt(request.prompt)
            self._read = request.add(NOT_RECORDED, last, ids[0], log_probs[0])
        return request.evidence(last, [self._read], DraftTree.empty())

    def after_draft(self, tree: DraftTree) -> Evidence | None:
        root = self._written[-1]
        rows = self._request.rows_of(self._read, root, tree)
        if NOT_RECORDED in rows and self._model is not None and self._read != NOT_RECORDED:
            part = _leading_to(tree, [row == NOT_RECORDED for row in rows[1:]])
            written = np.array(self._written, np.int32)
            top_k = self._model.after_draft(self._request.prompt, written, part)
            self._request.add_pass(self._read, root, part, *top_k)
            rows = self._request.rows_of(self._read, root, tree)
        self.misses.rows += len(rows)
        self.misses.missing += rows.count(NOT_RECORDED)
        if rows[0] == NOT_RECORDED:
            return None
        return self._request.evidence(root, rows, tree)

    def write(self, tokens: TokenArray) -> None:
        """Append written tokens; the model has not read the last one."""
        for token in tokens.tolist():
            if self._written and self._read != NOT_RECORDED:
                self._read = self._request.child(self._read, self._written[-1])
            self._written.append(token)


def _leading_to(tree: DraftTree, missing: list[bool]) -> DraftTree:
    """Return the missing nodes of `tree` with their ancestors."""
    kept = np.array(missing, bool)
    for node in range(len(tree) - 1, -1, -1):
        if kept[node] and tree.parents[node] >= 0:
            kept[tree.parents[node]] = True
    return tree.subtree(np.flatnonzero(kept))


class RequestRows:
    """The top-k of one request, a row per context.

    Rows are a trie from the prompt's last token. The first `saved` rows are in the folder.
    """

    def __init__(self, about: About, prompt: TokenArray, answer: TokenArray) -> None:
        self.about, self.prompt, self.answer = about, prompt, answer
        self.saved = 0
        self._rows: dict[tuple[int, int], int] = {}  # (parent, token) -> row
        self._tokens = np.empty(64, np.int32)
        self._parents = np.empty(64, np.int32)
        self._ids = np.empty((64, KEPT_TOKENS), np.int32)
        self._log_probs = np.empty((64, KEPT_TOKENS), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def root(self) -> int:
        return 0 if self._rows else NOT_RECORDED

    def child(self, row: int, token: int) -> int:
        return self._rows.get((row, token), NOT_RECORDED)

    def add(self, parent: int, token: int, ids: Array, log_probs: Array) -> int:
        """Return the row of `token` after `parent`; a new row gets this top-k, [k] each."""
        row = self._rows.setdefault((parent, token), len(self._rows))
        if row < len(self._rows) - 1:
            return row
        if row == len(self._tokens):
            for name in ("_tokens", "_parents", "_ids", "_log_probs"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.empty_like(array)]))
        count = min(len(ids), KEPT_TOKENS)
        self._tokens[row], self._parents[row] = token, parent
        self._ids[row, :count], self._ids[row, count:] = ids[:count], -1
        self._log_probs[row, :count] = log_probs[:count]
        self._log_probs[row, count:] = -np.inf
        return row

    def add_pass(
        self, parent: int, root: int, tree: DraftTree, ids: Array, log_probs: Array
    ) -> list[int]:
        """Add the new rows of a pass, [n + 1, k] each; return all its rows."""
        rows = [self.add(parent, root, ids[0], log_probs[0])]
        nodes = zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True)
        for i, (token, above) in enumerate(nodes, 1):
            rows.append(self.add(rows[above + 1], token, ids[i], log_probs[i]))
        return rows

    def rows_of(self, parent: int, root: int, tree: DraftTree) -> list[int]:
        """Return a pass's rows, root first, then nodes; NOT_RECORDED if missing."""
        rows = [self.child(parent, root)]
        for token, above in zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True):
            row = rows[above + 1]
            rows.append(NOT_RECORDED if row == NOT_RECORDED else self.child(row, token))
        return rows

    def evidence(self, root: int, rows: list[int], tree: DraftTree) -> Evidence:
        """Return the evidence of a pass; the root's row must be on record."""
        row_of = np.array(rows)
        present = row_of >= 0
        place = np.cumsum(present, dtype=np.int32) - 1  # index of each node among those on record
        tokens = np.concatenate([np.array([root], np.int32), tree.token_ids])[present]
        above = np.concatenate([np.array([0], np.int32), tree.parents + np.int32(1)])
        parents = place[above][present]
        parents[0] = -1
        ids, log_probs = self._ids[row_of[present]], self._log_probs[row_of[present]]
        count = min(MAX_EVIDENCE_TOKENS, int((ids[0] >= 0).sum()))  # a small vocabulary has fewer
        return Evidence(tokens, parents, ids[:, :count], log_probs[:, :count])

    def merge(self, stored: RecordedRequest) -> None:
        rows: list[int] = []
        pairs = zip(stored.tokens.tolist(), stored.parents.tolist(), strict=True)
        for i, (token, parent) in enumerate(pairs):
            above = rows[parent] if parent >= 0 else NOT_RECORDED
            rows.append(self.add(above, token, stored.top_ids[i], stored.top_log_probs[i]))
        if not len(self.answer):
            self.answer = stored.answer.copy()

    def unsaved(self) -> RecordedRequest:
        """Return the rows that are not in the folder, and their ancestors."""
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
        return RecordedRequest(
            self.about,
            self.prompt,
            self.answer,
            self._tokens[rows],
            np.where(parents < 0, np.int32(-1), place[parents]),
            self._ids[rows],
            self._log_probs[rows],
        )


def add_rows(requests: Sequence[RequestRows], folder: EvidenceFolder) -> int:
    folder.add([request.unsaved() for request in requests])
    added = sum(len(request) - request.saved for request in requests)
    for request in requests:
        request.saved = len(request)
    return added
