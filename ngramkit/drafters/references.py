"""References (predicted outputs): texts that the answer is likely to repeat.

References are only drafted from: they never become part of the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import UsageError, require_list
from ngramkit.basics.limits import LIMITS
from ngramkit.drafters.base import (
    Drafter,
    DraftTree,
    Source,
    TokenArray,
    occurrences,
    tree_of_nodes,
)
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.formats.datastore import requests_shard
from ngramkit.formats.history import join_requests
from ngramkit.kernels.arrays import NO_TOKEN, Array

REFERENCE_KEY = "ngramkit_reference"  # the parameter of an engine's request
MAX_MATCHED_TOKENS = 32  # maximum last tokens of the context that are matched
MIN_MATCH_INSIDE = 5  # last tokens of a prompt that must match inside a reference
MAX_REFERENCE_TOKENS = 1 << 27  # in all references


class ReferenceTexts:
    """References, int32[n] each, in one suffix array, for any number of requests.

    `begins`: how many of the first an answer may begin with; None: all. Raises UsageError for an
    empty one or an invalid token id.
    """

    def __init__(self, texts: Sequence[Any], *, begins: int | None = None) -> None:
        self.texts = [_token_ids(text, number) for number, text in enumerate(texts, start=1)]
        self.tokens = sum(map(len, self.texts))
        self._possible_beginnings = len(self.texts) if begins is None else begins
        if self.tokens > MAX_REFERENCE_TOKENS:
            raise UsageError(
                f"references must have at most {MAX_REFERENCE_TOKENS:,} tokens, "
                f"got {self.tokens:,}",
                "Give the parts that matter.",
                option="references",
            )
        # int64[0 or 1, 7], see kernels.suffix.search.shard_table
        self.table: npt.NDArray[np.int64] = np.empty((0, 7), np.int64)
        if self.texts:
            from ngramkit.kernels.suffix.search import shard_table

            separator = int(max(text.max() for text in self.texts)) + 1
            self._shard = requests_shard(join_requests(self.texts, separator), separator)
            self.table = shard_table([self._shard])

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"<ReferenceTexts {len(self)} texts, {self.tokens:,} tokens>"

    def place_at_start(self, places: Array, text: TokenArray) -> None:
        """Set places of kernels.blend.copied_text to the starts of the first two references.

        If `text`, int32[n], ends inside a reference, the kernel finds that place.
        """
        from ngramkit.kernels.blend.references import follow_beginning

        last = text[-MIN_MATCH_INSIDE:]
        if len(last) == MIN_MATCH_INSIDE and any(len(occurrences(t, last)) for t in self.texts):
            return
        start = 0
        for place, each in zip(places, self.texts[: self._possible_beginnings], strict=False):
            follow_beginning(place, self.table[0], start)
            start += len(each) + 1


Given = ReferenceTexts | Sequence[Any]


def reference_texts(given: Given) -> ReferenceTexts:
    if isinstance(given, ReferenceTexts):
        return given
    require_list("references", given)
    texts = list(given)
    return ReferenceTexts(texts) if texts else NO_REFERENCES


def start_with_references(drafter: Drafter, prompt: TokenArray, references: Given) -> None:
    """Begin a request. Raises UsageError if the drafter cannot use its references."""
    if not len(references):
        drafter.start(prompt)
        return
    require_references(drafter)
    begin: Any = drafter.start
    begin(prompt, references=reference_texts(references))


def require_references(drafter: Any) -> None:
    """Raise UsageError if a drafter (by name, or an object) cannot draft from references."""
    if isinstance(drafter, str):
        able, name = DRAFTERS[drafter].references, drafter
    else:
        able = getattr(drafter, "takes_references", False)
        name = getattr(drafter, "__name__", type(drafter).__name__)
    if not able:
        *some, last = (each for each, entry in DRAFTERS.items() if entry.references)
        raise UsageError(
            f"cannot draft from references with {name}: only {', '.join(some)} and {last} can",
            "Choose one of them, or leave references out.",
            option="references",
        )


class Cursor:
    """One request's place in its references, for drafters other than blend."""

    def __init__(self, references: Given, prompt: TokenArray) -> None:
        self._texts = reference_texts(references)
        if not len(self._texts):
            return
        from ngramkit.kernels.blend.copied_text import REFERENCE, new_copying, new_places
        from ngramkit.kernels.blend.references import follow_references, new_edits

        self._follow = follow_references
        self._places = new_places()[REFERENCE:]
        self._trust = new_copying().trust[REFERENCE:]
        self._edits = new_edits()
        self._size = len(prompt)
        self._recent = np.full(MAX_MATCHED_TOKENS, NO_TOKEN, np.int32)
        last = np.asarray(prompt[-MAX_MATCHED_TOKENS:], np.int32)[::-1]
        self._recent[: len(last)] = last
        self._texts.place_at_start(self._places, np.asarray(prompt, np.int32))

    def accept(self, tokens: TokenArray) -> None:
        if len(self._texts):
            tokens = np.array(tokens, np.int32)
            self._follow_references(self._places, self._recent, tokens, written=True)
            self._size += len(tokens)

    def before(self, tree: DraftTree, length: int, budget: int) -> DraftTree:
        """Return at most `length` tokens of references, then nodes of `tree`, within `budget`."""
        if not len(self._texts):
            return tree
        chain = np.empty(min(length, budget), np.int32)
        size, scores = self._follow_references(
            self._places.copy(), self._recent.copy(), chain, written=False
        )
        return put_before(chain[:size], scores[:size], tree, budget)

    def _follow_references(
        self, places: Array, recent: Array, tokens: Array, *, written: bool
    ) -> tuple[int, Array]:
        scores, longest = np.empty(len(tokens), np.float32), np.zeros(3, np.int64)
        size = self._follow(
            places, self._texts.table, self._edits, self._trust, longest, recent, tokens, scores,
            self._size, written,
        )  # fmt: skip
        return int(size), scores


def put_before(chain: Array, scores: Array, tree: DraftTree, budget: int) -> DraftTree:
    """Return a tree of the chain, int32[n] with float32[n] scores, then nodes of `tree`."""
    nodes = {(at - 1, token): at for at, token in enumerate(chain.tolist())}
    merged, source = scores.tolist(), [int(Source.REFERENCE)] * len(nodes)
    place = {-1: -1}  # node of `tree` -> node here
    columns = (tree.token_ids, tree.parents, tree.scores, tree.source)
    for node, (token, parent, score, origin) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if parent not in place:
            continue
        key = (place[parent], token)
        if key not in nodes:
            if len(nodes) >= budget:
                continue
            nodes[key] = len(nodes)
            merged.append(0.0)
            source.append(origin)
        place[node] = nodes[key]
        merged[nodes[key]] = max(merged[nodes[key]], score)
    return tree_of_nodes(nodes, merged, source)


def _token_ids(text: Any, number: int) -> TokenArray:
    ids = np.asarray(text)
    if not ids.size:
        got = "an empty one"
    elif ids.ndim != 1:
        got = f"{ids.ndim} dimensions"
    elif ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= LIMITS.vocabulary:
        got = "other values"
    else:
        return ids.astype(np.int32)
    raise UsageError(
        f"reference {number} must be a list of token ids, got {got}",
        "Give token ids.",
        option="references",
    )


NO_REFERENCES = ReferenceTexts(())
