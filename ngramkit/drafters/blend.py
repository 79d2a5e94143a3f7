"""blend: one probability model over everything at hand, and the tree of its most probable paths.

What followed the last 1, 2, 3, ... tokens, in the datastores and in the live context, is mixed by
gates that were fitted on other text (ngramkit.evaluate.fit_blend). Scores are calibrated: a node
with score 0.3 is accepted about three times in ten. Where decode says what the model itself held
likely (`Evidence`), that is one more opinion, trusted as far as it has come true so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.drafters.blend_state import (
    forget,
    grown,
    load_weights,
    log_shares,
    new_candidates,
    new_live,
    new_memo,
    new_opinions,
)
from ngramkit.errors import UsageError
from ngramkit.formats.datastore import Datastore
from ngramkit.kernels.blend_counts import BUFFER, DEPTH, Memo
from ngramkit.kernels.blend_mix import Weights
from ngramkit.kernels.blend_tree import extend, grow, learn, look
from ngramkit.kernels.suffix import shard_table

Floats = npt.NDArray[np.float32]

NO_TOKEN = -1
# What samples of a datastore gave holds for every drafter over it. Two threads that write one row
# at once may spoil a draft, never what the model writes.
_MEMOS: WeakKeyDictionary[Datastore, dict[tuple[int, int], Memo]] = WeakKeyDictionary()


class Blend:
    """Drafts from any number of datastores and the live context.

    `scan`: intervals up to this many occurrences are read whole; wider ones are sampled at
    `sample` places. `hops`: how many occurrences of a token in the live context are followed, the
    newest first. Raises UsageError without a datastore, ArtifactError for datastores of different
    tokenizers.
    """

    wants_evidence = True

    def __init__(
        self,
        datastores: Sequence[Datastore],
        *,
        scan: int = 48,
        sample: int = 256,
        hops: int = 128,
        weights: Weights | None = None,
    ) -> None:
        if not 1 <= scan <= BUFFER or not 8 <= sample <= BUFFER:
            raise UsageError(f"scan {scan}, sample {sample}", f"at most {BUFFER}")
        if not datastores:
            raise UsageError("the blend drafter needs a datastore", "build one: build-datastore")
        first = datastores[0]
        for other in datastores[1:]:
            first.tokenizer.require(other.tokenizer, str(first.path))
        self._vocabulary = first.tokenizer.vocabulary
        self._datastores = list(datastores)  # keeps the arrays behind the table alive
        shards = [shard for datastore in datastores for shard in datastore.shards]
        self._table = shard_table([(s.tokens, s.suffix_array, s.first_token) for s in shards])
        self._shares = log_shares(shards, self._vocabulary)
        self._weights = load_weights() if weights is None else weights
        eos = NO_TOKEN if first.tokenizer.eos is None else first.tokenizer.eos
        self._limits = np.array([scan, sample, hops, eos], np.int64)
        self._memo = self._shared_memo(scan, sample)
        self._candidates = new_candidates(self._vocabulary)
        self._opinions = new_opinions()
        self._live = new_live(self._vocabulary, 1 << 12)
        self._root = np.zeros((DEPTH + 1, len(self._table), 2), np.int64)
        self._recent = np.full(DEPTH, NO_TOKEN, np.int32)
        self._size = 0

    def _shared_memo(self, scan: int, sample: int) -> Memo:
        if len(self._datastores) > 1:
            return new_memo(len(self._table))
        memos = _MEMOS.setdefault(self._datastores[0], {})
        return memos.setdefault((scan, sample), new_memo(len(self._table)))

    def start(self, prompt: TokenArray) -> None:
        forget(self._opinions)
        self._live.latest[:] = -1
        self._live.counts[:] = 0
        self._root[:] = 0
        self._recent[:] = NO_TOKEN
        self._size = 0
        self.accept(prompt)

    def draft(self, budget: int) -> DraftTree:
        kernel: Any = grow
        return DraftTree(*kernel(*self._known(), self._opinions, budget))

    def _known(self) -> tuple[Any, ...]:
        """What every kernel that predicts is called with."""
        return (
            self._table,
            self._root,
            self._recent,
            self._live,
            self._size,
            self._memo,
            self._candidates,
            self._weights,
            self._shares,
            self._limits,
        )

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        if evidence is not None and self._size and len(tokens):
            kernel: Any = learn
            kernel(
                *self._known(),
                self._opinions,
                np.ascontiguousarray(evidence.token_ids, np.int32),
                np.ascontiguousarray(evidence.parents, np.int32),
                np.ascontiguousarray(evidence.top_ids, np.int32),
                np.ascontiguousarray(evidence.top_log_probs, np.float32),
                int(tokens[0]),
            )
        begin, end = self._size, self._size + len(tokens)
        if end > len(self._live.tokens):
            self._live = grown(self._live, 2 * end)
        # A model may know more ids than its tokenizer does; all of those are one unknown.
        np.minimum(tokens, self._vocabulary, out=self._live.tokens[begin:end])
        extend(
            self._table,
            self._root,
            self._recent,
            self._live,
            begin,
            end,
            self._memo,
            self._limits,
        )
        self._size = end

    def look(self) -> tuple[Floats, ...]:
        """What is known of the next token: candidates int32[n], counts [n, COLUMNS], totals
        [COLUMNS], evidence [EVIDENCE], traits [n, TRAITS] (without log p, which is 0)."""
        found: tuple[Floats, ...] = look(
            self._table,
            self._root,
            self._recent,
            self._live,
            self._size,
            self._memo,
            self._candidates,
            self._shares,
            self._limits,
        )
        return found

    def finish(self) -> None:
        """Nothing is learnt across requests."""
