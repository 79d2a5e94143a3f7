"""blend for many requests: what all share, what a thread counts in, what a request holds.

`BlendSource`: corpora, tables and past requests, read only. `Desk`: tables to count in, a tree to
grow and memos of what was sampled, one for each thread, so that no two ever write into one. A
`BlendRequest` holds its live context and what was learnt of its sources: at a vocabulary of
152,000 under 1 MB and 16 bytes a token. It drafts exactly what a Blend of its own would after
start(tokens[:prompt]) and accept(tokens[prompt:]).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import NOTHING, DraftTree, TokenArray
from ngramkit.drafters.blend import Blend
from ngramkit.engines.asked import Asked
from ngramkit.engines.blend_desk import TRUSTED, Desk
from ngramkit.engines.model_tokens import Built
from ngramkit.kernels.blend.counts import grown, new_live
from ngramkit.kernels.blend.prediction import new_place
from ngramkit.kernels.blend.tree import EXTEND, LEARN, REWIND, act, serve_chains
from ngramkit.kernels.packed import Packed

CHECKPOINTS = 64  # of what was learnt, so that tokens can be taken back
ROOM = 256  # tokens of a live context that there is room for at first
Trust = npt.NDArray[np.float64]


class BlendSource:
    """What all requests draft from. The past requests are those of when this was made."""

    def __init__(self, blend: Blend) -> None:
        self.built: list[Built] = []  # what it was opened from
        blend.start(NOTHING)  # takes in past requests
        self._alive = blend  # and with it the arrays behind addresses
        self.sources = blend.sources
        self.vocabulary, self.judged = blend.vocabulary, blend.judged
        first = [getattr(self.sources, name).trust.ravel() for name in TRUSTED]
        self.first_trust: Trust = np.concatenate(first)
        # Where in that each begins, in bytes.
        self.trust_offsets = np.cumsum([0, *(each.nbytes for each in first[:-1])]).tolist()
        self.live = Packed(new_live(self.vocabulary, 1))
        self.place = Packed(new_place(len(self.sources.corpus.table)))

    def desk(self) -> Desk:
        return Desk(self)

    def request(self, desk: Desk, prompt: TokenArray) -> BlendRequest:
        return BlendRequest(self, desk, prompt)

    def trees(self, desk: Desk, asked: Sequence[Asked]) -> list[DraftTree]:
        """A tree for each, when what was written is told: in one call of a kernel."""
        return desk.trees(asked)

    def chains(self, desk: Desk, asked: Sequence[Asked], least: float) -> list[DraftTree]:
        return desk.chains(asked, least)


class BlendRequest:
    """One request, `prompt` tokens of which were there at first. Use it from one thread at a time,
    each call with that thread's desk. Tokens are int32[n], 0..vocabulary: unknown ids are the
    vocabulary's size, as `batch.known` makes them."""

    def __init__(self, source: BlendSource, desk: Desk, prompt: TokenArray) -> None:
        self._source = source
        room = len(prompt) + max(ROOM, len(prompt) // 4)
        self.live = source.live.of_same_type(new_live(source.vocabulary, room))
        self._place = source.place.of_same_type(new_place(len(source.sources.corpus.table)))
        self.trust: Trust = source.first_trust.copy()
        begin = self.trust.__array_interface__["data"][0]
        self.place = self._place.address
        self.trusts = [begin + offset for offset in source.trust_offsets]  # addresses
        self._learnt: deque[tuple[int, Trust]] = deque(maxlen=CHECKPOINTS)
        self.prompt = self.size = 0
        self._act(desk, EXTEND, *self._put(prompt))
        self.prompt = self.size

    @property
    def tokens(self) -> TokenArray:
        """int32[size], unknown ids as the vocabulary's size; a view, until the next call."""
        found: TokenArray = self.live.parts.tokens[: self.size]
        return found

    @property
    def bytes(self) -> int:
        """What it holds, of arrays."""
        parts = [*self.live.parts, *self._place.parts, self.trust]
        return int(sum(each.nbytes for each in (*parts, *(t for _, t in self._learnt))))

    def extend(self, desk: Desk, tokens: TokenArray) -> None:
        """These were written."""
        desk.trees([Asked(self, tokens, 0)])

    def put(self, tokens: TokenArray) -> tuple[int, int]:
        """They were written: from where to where they stand. No kernel is told yet."""
        if self._source.judged and len(tokens):
            self._learnt.append((self.size, self.trust.copy()))
        return self._put(tokens)

    def _put(self, tokens: TokenArray) -> tuple[int, int]:
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown(self.live.parts, end + max(ROOM, end // 4))
            self.live = self._source.live.of_same_type(live)
        self.live.parts.tokens[begin:end] = tokens
        self.size = end
        return begin, end

    def rewind(self, desk: Desk, size: int) -> None:
        """Of what there is, only the first `size` tokens were written; what was learnt from the
        others is unlearnt."""
        if size >= self.size:
            return
        if not self._source.judged:
            self._take_back(desk, size)
            self.size, self.prompt = size, min(size, self.prompt)
            return
        while self._learnt and self._learnt[-1][0] > size:
            self._learnt.pop()
        begin, trust = self._learnt[-1] if self._learnt else (0, self._source.first_trust)
        self._take_back(desk, begin)
        self.trust[:] = trust
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            self._act(desk, EXTEND, 0, begin)
        self._act(desk, LEARN, begin, size)
        self.size = size

    def tree(self, desk: Desk, budget: int) -> DraftTree:
        """As Drafter.draft."""
        return desk.trees([Asked(self, NOTHING, budget)])[0]

    def chain(self, desk: Desk, length: int, least: float) -> DraftTree:
        """The path of at most `length` tokens that is worth most, where each costs `least` passes:
        see kernels.blend.tree."""
        return desk.chains([Asked(self, NOTHING, length)], least)[0]

    def _act(self, desk: Desk, what: int, begin: int, end: int) -> None:
        desk.seat(self)
        act(what, desk.sources, self._place, desk.tree, begin, end)

    def _take_back(self, desk: Desk, begin: int) -> None:
        """The tokens from there on."""
        desk.seat(self)
        serve_chains(REWIND, desk.sources, self._place, desk.tree, begin, self.size)
