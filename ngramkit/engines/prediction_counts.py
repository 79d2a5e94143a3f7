"""Count which drafted tokens of a request came from its prediction, for `usage`.

A request may have other texts too, and a draft does not tell which of them a token is from. It is
counted for the prediction unless another text holds a longer run of tokens that ends with it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree, Source, TokenArray
from ngramkit.drafters.references import MAX_MATCHED_TOKENS

END_OF_TEXT = chr(sys.maxunicode)  # no token's character


class PredictionCounts:
    """The counts of one request, which may be preempted and begin again."""

    def __init__(self) -> None:
        self.accepted = 0  # tokens of the answer
        self.rejected = 0
        self._draft: DraftTree | None = None  # to be verified
        self._before = self._prediction = self._texts = ""  # a character for each token

    def begin(self, prediction: Iterable[npt.ArrayLike], texts: Iterable[npt.ArrayLike]) -> None:
        """Take the ids of the prediction's texts, and of all texts that are drafted from."""
        self._draft = None
        self._prediction, self._texts = _joined(prediction), _joined(texts)

    def set_draft(self, draft: DraftTree, tokens: TokenArray) -> None:
        """Take a chain that follows `tokens`, int32[n], and will be verified."""
        self._draft, self._before = draft, _characters(tokens[-MAX_MATCHED_TOKENS:])

    def learn(self, written: Sequence[int], verified: int, answer: int) -> None:
        """Count a verified draft.

        `written`: tokens of the pass, `verified`: of the draft, `answer`: those written that belong
        to the answer.
        """
        if self._draft is None:
            return
        draft = self._draft.first(verified)
        right = len(draft.accepted_nodes(written[:answer]))
        predicted = self._came_from_prediction(draft)
        self.accepted += int(predicted[:right].sum())
        self.rejected += int(predicted[right:].sum())
        self._draft = None

    def _came_from_prediction(self, draft: DraftTree) -> npt.NDArray[np.bool_]:
        from_texts: npt.NDArray[np.bool_] = draft.source == Source.REFERENCE
        if self._texts == self._prediction or not from_texts.any():
            return from_texts
        path, begin = self._before + _characters(draft.token_ids), len(self._before)
        for i in np.flatnonzero(from_texts).tolist():
            run = path[: begin + i + 1][-MAX_MATCHED_TOKENS:]
            longest = _longest_end(run, self._prediction)
            if longest < len(run) and run[-longest - 1 :] in self._texts:
                from_texts[i] = False
        return from_texts


def _characters(ids: npt.ArrayLike) -> str:
    """Return a character for each id, since texts are searched faster than arrays."""
    return "".join(map(chr, np.minimum(ids, sys.maxunicode - 1).tolist()))


def _joined(texts: Iterable[npt.ArrayLike]) -> str:
    return "".join(_characters(ids) + END_OF_TEXT for ids in texts)


def _longest_end(run: str, text: str) -> int:
    """Return how many of a run's last characters a text holds in a row."""
    lengths = range(1, len(run) + 1)
    return bisect_left(lengths, True, key=lambda length: run[-length:] not in text)
