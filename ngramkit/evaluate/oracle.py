"""An oracle: what a model held likely, on record, given to drafters as a live run gives it.

A pass of a live run tells a drafter what the model held likely after every node of its draft. All
that depends on the context alone, so a pass that was once recorded tells any drafter. What is not
on record is not told, and counted; or the model is asked, where there is one, and that is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import TOPS, DraftTree, Evidence, TokenArray
from ngramkit.errors import ArtifactError
from ngramkit.evaluate.branches import Branches
from ngramkit.evaluate.known import UNKNOWN, Known
from ngramkit.evaluate.records import Record, Turn
from ngramkit.formats.evidence import About, EvidenceFolder

Likeliest = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # [rows, k] each


class Model(Protocol):
    """A model that is asked for what is not on record, one request at a time."""

    def begin(self, prompt: TokenArray) -> None: ...
    def after_prompt(self) -> Likeliest: ...
    def after_draft(self, written: TokenArray, tree: DraftTree) -> Likeliest:
        """One row for the last written token, then one per node; the prompt's text comes before
        `written`."""

    def after_branches(self, written: TokenArray, branches: Branches) -> Likeliest:
        """A row per node that is wanted."""


@dataclass
class Misses:
    """Rows of passes: how many there were, how many were not on record."""

    rows: int = 0
    missing: int = 0

    def add(self, other: Misses) -> None:
        self.rows += other.rows
        self.missing += other.missing


class Oracle:
    """The requests of a folder, by their prompts. `model`: asked where the record ends; what it
    says is kept, and added to the folder by `save`."""

    def __init__(self, folder: EvidenceFolder, model: Model | None = None) -> None:
        self.folder, self.model = folder, model
        self._known: dict[bytes, Known] = {}
        self._read: set[str] = set()  # batches, by name
        self.refresh()

    def refresh(self) -> None:
        """Takes in what was added to the folder since it was read; what is new here is saved."""
        self.save()
        for told in self.folder.requests(self._read):
            key = told.prompt.tobytes()
            if key not in self._known:
                self._known[key] = Known(told.about, told.prompt.copy(), told.answer.copy())
            self._known[key].merge(told)
        for known in self._known.values():
            known.saved = len(known)

    @classmethod
    def open(cls, path: str | Path, model: Model | None = None) -> Oracle:
        """Raises ArtifactError where there is no evidence, or it is damaged."""
        return cls(EvidenceFolder.open(path), model)

    def __repr__(self) -> str:
        return f"<Oracle {self.folder.path}: {len(self._known):,} requests, {self.rows:,} rows>"

    @property
    def rows(self) -> int:
        """Contexts on record."""
        return sum(map(len, self._known.values()))

    def records(self) -> list[Record]:
        """The answers, question by question, in the order recorded. Raises ArtifactError where
        there are none."""
        turns: dict[str, dict[int, Known]] = {}
        for known in self._known.values():
            if len(known.answer):
                turns.setdefault(known.about.question, {}).setdefault(known.about.turn, known)
        if not turns:
            raise ArtifactError(f"{self.folder.path} holds no answers", "record some")
        return [
            Record(
                question,
                next(iter(each.values())).about.category,
                [
                    Turn(known.prompt, known.answer, longest=known.about.longest)
                    for _, known in sorted(each.items())
                ],
            )
            for question, each in turns.items()
        ]

    def witness(self, turn: Turn) -> Witness:
        """Of one turn, from its beginning."""
        key = np.ascontiguousarray(turn.prompt, np.int32).tobytes()
        if key not in self._known:
            about = About("", "", 0, "", len(turn.answer))
            self._known[key] = Known(about, turn.prompt, np.empty(0, np.int32))
        return Witness(self._known[key], self.model)

    def save(self) -> None:
        """Adds what the model said to the folder."""
        new = [known for known in self._known.values() if known.saved < len(known)]
        batch = self.folder.add([known.unsaved() for known in new])
        if batch is not None:
            self._read.add(batch)
        for known in new:
            known.saved = len(known)


class Witness:
    """Tells of one request's passes, as decoding does."""

    def __init__(self, known: Known, model: Model | None) -> None:
        self.misses = Misses()
        self._known, self._model = known, model
        self._asked = False
        self._above = known.root  # the row of all that the model has read
        self._written: list[int] = []

    def of_prompt(self) -> Evidence | None:
        """After the prompt; None where that is not on record."""
        known, last = self._known, int(self._known.prompt[-1])
        self.misses.rows += 1
        if self._above == UNKNOWN:
            self.misses.missing += 1
            if self._model is None:
                return None
            ids, log_probs = self._begun(self._model).after_prompt()
            self._above = known.add(UNKNOWN, last, ids[0], log_probs[0])
        return known.evidence(last, [self._above], DraftTree.empty(), TOPS)

    @property
    def known(self) -> Known:
        """What is on record of the request."""
        return self._known

    def missing(self, tree: DraftTree) -> tuple[int, DraftTree, list[int]] | None:
        """How many tokens were written, the part of `tree` that leads to what is not on record, and
        its nodes' rows, UNKNOWN where there are none; None where all is on record."""
        if self._above == UNKNOWN:
            return None
        rows = self._known.rows_of(self._above, self._written[-1], tree)
        lacking = [row == UNKNOWN for row in rows[1:]]
        if not any(lacking):
            return None
        kept = _kept(tree, lacking)
        held = [row for row, keeps in zip(rows[1:], kept, strict=True) if keeps]
        return len(self._written), _leading_to(tree, kept), held

    def of(self, tree: DraftTree) -> Evidence | None:
        """Of a pass that verifies `tree` after what was written; None where nothing is known."""
        root = self._written[-1]
        rows = self._known.rows_of(self._above, root, tree)
        missing = rows.count(UNKNOWN)
        self.misses.rows += len(rows)
        self.misses.missing += missing
        if missing and self._model is not None and self._above != UNKNOWN:
            asked = _leading_to(tree, _kept(tree, [row == UNKNOWN for row in rows[1:]]))
            written = np.array(self._written, np.int32)
            ids, log_probs = self._begun(self._model).after_draft(written, asked)
            self._known.put(self._above, root, asked, ids, log_probs)
            rows = self._known.rows_of(self._above, root, tree)
        if rows[0] == UNKNOWN:
            return None
        return self._known.evidence(root, rows, tree, TOPS)

    def write(self, tokens: TokenArray) -> None:
        """These were written; the last one, the model has not read yet."""
        for token in tokens.tolist():
            if self._written and self._above != UNKNOWN:
                self._above = self._known.child(self._above, self._written[-1])
            self._written.append(token)

    def _begun(self, model: Model) -> Model:
        if not self._asked:
            model.begin(self._known.prompt)
            self._asked = True
        return model


def _kept(tree: DraftTree, missing: list[bool]) -> npt.NDArray[np.bool_]:
    """The nodes that are missing, and those above them, without which they cannot be verified."""
    kept = np.array(missing, bool)
    for node in range(len(tree) - 1, -1, -1):
        if kept[node] and tree.parents[node] >= 0:
            kept[tree.parents[node]] = True
    return kept


def _leading_to(tree: DraftTree, kept: npt.NDArray[np.bool_]) -> DraftTree:
    place = np.append(np.cumsum(kept, dtype=np.int32) - 1, np.int32(-1))  # the last is the root's
    parents = place[tree.parents][kept]
    return DraftTree(tree.token_ids[kept], parents, tree.scores[kept], tree.source[kept])
