"""An oracle: what a model held likely, on record, given to drafters as a live run gives it.

A pass of a live run tells a drafter what the model held likely after every node of its draft. All
that depends on the context alone, so a pass that was once recorded tells any drafter. What is not
on record is not told, and counted; or the model is asked, where there is one, and that is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import TOPS, DraftTree, Evidence, TokenArray
from ngramkit.errors import ArtifactError
from ngramkit.evaluate.records import Record, Turn
from ngramkit.formats.container import Array
from ngramkit.formats.evidence import KEPT, About, EvidenceFolder, RecordedRequest

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


# What a model held likely in one request: a row per context, found token by token.
#
# Rows are a trie: the prompt's last token is its root, a row's context is the tokens down to it.
# Knows neither folders nor models.

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

    def merge(self, told: RecordedRequest) -> None:
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

    def unsaved(self) -> RecordedRequest:
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
        return RecordedRequest(
            self.about,
            self.prompt,
            self.answer,
            self._tokens[rows],
            np.where(parents < 0, np.int32(-1), place[parents]),
            self._ids[rows],
            self._log_probs[rows],
        )


# Branches: draft nodes that hang anywhere in a text, of many drafts at once. Knows no model.

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
