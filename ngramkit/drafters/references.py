"""References (predicted outputs): texts that the answer is likely to repeat, as drafters take them.

`ReferenceTexts` are sorted once and may serve many requests. A `Cursor` is one request's place in
them, for drafters without a mixture of probabilities: the tokens expected there go before the
drafter's own. References are only drafted from: they never become part of the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import UsageError, require_list
from ngramkit.drafters.base import NOTHING, Drafter, DraftTree, Source, TokenArray, tree_of_nodes
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.kernels.arrays import NO_TOKEN, Array

if TYPE_CHECKING:
    from ngramkit.kernels.blend.references import References

RECENT = 8  # last tokens of the context that are matched, at most
MOST_IDS = (1 << 24) - 2  # ids are sorted as three bytes at most, and one is the separator
MOST_TOKENS = 1 << 27  # in all references


class ReferenceTexts:
    """References, int32[n] each, in one suffix array.

    Raises UsageError where one is empty or has a value that is no token id.
    """

    def __init__(self, texts: Sequence[Any]) -> None:
        self.texts = [_token_ids(text, number) for number, text in enumerate(texts, start=1)]
        self.tokens = sum(map(len, self.texts))
        if self.tokens > MOST_TOKENS:
            raise UsageError(
                f"references have {self.tokens:,} tokens; at most {MOST_TOKENS:,} are taken",
                "give the parts that matter",
                option="references",
            )
        self._shard, self._starts = _sort(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"<ReferenceTexts {len(self)} texts, {self.tokens:,} tokens>"

    def for_request(self) -> References:
        """Return what the kernels of one request read; it must not outlive this object."""
        from ngramkit.kernels.blend.references import new_references
        from ngramkit.kernels.suffix.search import shard_table

        return new_references(shard_table(self._shard), self._starts)


Given = ReferenceTexts | Sequence[Any]


def reference_texts(given: Given) -> ReferenceTexts:
    """Return the references sorted. Raises UsageError as `ReferenceTexts`."""
    if isinstance(given, ReferenceTexts):
        return given
    require_list("references", given)
    return ReferenceTexts(given) if len(given) else NONE


def start(drafter: Drafter, prompt: TokenArray, references: Given) -> None:
    """Begin a request. Raises UsageError where there are references that it cannot draft from."""
    if not len(references):
        drafter.start(prompt)
        return
    require_references(drafter)
    begin: Any = drafter.start
    begin(prompt, references=reference_texts(references))


def require_references(drafter: Any) -> None:
    """Raise UsageError where a drafter (by name, or an object) cannot draft from references."""
    if isinstance(drafter, str):
        able, name = DRAFTERS[drafter].references, drafter
    else:
        able = getattr(drafter, "takes_references", False)
        name = getattr(drafter, "__name__", type(drafter).__name__)
    if not able:
        *some, last = (each for each, entry in DRAFTERS.items() if entry.references)
        raise UsageError(
            f"the drafter {name} cannot draft from references; {', '.join(some)} and {last} can",
            "choose one of them, or leave references out",
            option="references",
        )


class Cursor:
    """One request's alignment with its references, and the tokens expected next there."""

    def __init__(self, references: Given, prompt: TokenArray) -> None:
        self._texts = reference_texts(references)
        if not len(self._texts):
            return
        from ngramkit.kernels.blend import references as kernels
        from ngramkit.kernels.packed import Packed

        self._kernels = kernels
        self._packed = Packed(self._texts.for_request())
        self._state = kernels.new_state()
        self._recent = np.full(RECENT, NO_TOKEN, np.int32)
        last = np.asarray(prompt[-RECENT:], np.int32)[::-1]
        self._recent[: len(last)] = last
        self._act(kernels.BEGIN, self._state, self._recent, NOTHING)

    def accept(self, tokens: TokenArray) -> None:
        """Follow the tokens that were written, int32[m]."""
        if len(self._texts):
            tokens = np.ascontiguousarray(tokens, np.int32)
            self._act(self._kernels.FOLLOW, self._state, self._recent, tokens)

    def before(self, tree: DraftTree, length: int, budget: int) -> DraftTree:
        """Return a tree of at most `length` tokens from the references, then of the nodes of `tree`
        that fit into `budget`. The scores of the former are probabilities."""
        if not len(self._texts):
            return tree
        chain = np.empty(min(length, budget), np.int32)
        scores = np.empty(len(chain), np.float32)
        state, recent = self._state.copy(), self._recent.copy()
        size = self._act(self._kernels.CHAIN, state, recent, chain, scores)
        return put_before(chain[:size], scores[:size], tree, budget)

    def _act(
        self, what: int, state: Array, recent: Array, tokens: Array, scores: Array | None = None
    ) -> int:
        scores = np.empty(0, np.float32) if scores is None else scores
        return int(self._kernels.act(what, self._packed, state, recent, tokens, scores))


def put_before(chain: Array, scores: Array, tree: DraftTree, budget: int) -> DraftTree:
    """Return a tree of `chain` int32[n], from references with `scores` float32[n], and of as many
    nodes of `tree` as fit. A path that both have is one node each, with the higher score."""
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
    """Return a reference's ids. Raises UsageError, which names the reference by `number`."""
    ids = np.asarray(text)
    if ids.ndim != 1 or not len(ids):
        fault = "is empty" if not ids.size else "is no list of token ids"
        raise UsageError(f"reference {number} {fault}", "give token ids", option="references")
    if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() > MOST_IDS:
        raise UsageError(
            f"reference {number} holds what is no token id", "give token ids", option="references"
        )
    return ids.astype(np.int32)


def _sort(texts: Sequence[TokenArray]) -> tuple[list[tuple[Array, Array, Array]], Array]:
    """Return one shard of all texts, or none, and where each text begins, int64[texts]."""
    if not texts:
        return [], np.empty(0, np.int64)
    from ngramkit.kernels.suffix.sort import sort_shard

    separator = int(max(text.max() for text in texts)) + 1
    width = np.uint16 if separator <= 0xFFFF else np.uint32
    end = np.array([separator])
    tokens = np.concatenate([part for text in texts for part in (text, end)]).astype(width)
    ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64)
    arrays = sort_shard(tokens, separator)
    shard = (arrays["tokens"], arrays["suffix_array"], arrays["first_token"])
    return [shard], np.concatenate([np.zeros(1, np.int64), ends[:-1]])


NONE = ReferenceTexts(())
