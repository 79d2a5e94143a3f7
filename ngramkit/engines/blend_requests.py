"""blend for many requests: what all share, what a thread counts in, what a request holds.

`BlendSource`: corpora, tables and past requests, read only. `Desk`: tables to count in, a tree to
grow and memos of what was sampled, one for each thread, so that no two ever write into one. A
`BlendRequest` holds its live context and what was learnt of its sources: at a vocabulary of
152,000 under 1 MB and 16 bytes a token. It drafts exactly what a Blend of its own would after
start(tokens[:prompt]) and accept(tokens[prompt:]).
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import NOTHING, DraftTree, TokenArray
from ngramkit.drafters.blend import PAST_ROWS, Blend
from ngramkit.engines.model_tokens import Built
from ngramkit.kernels.blend.chain import CHAIN, REWIND, serve
from ngramkit.kernels.blend.context import new_tree
from ngramkit.kernels.blend.corpus import MEMO_ROWS, Corpus, new_corpus, new_memo
from ngramkit.kernels.blend.experts import new_experts
from ngramkit.kernels.blend.frozen import SIZE, Frozen
from ngramkit.kernels.blend.history import History, new_history
from ngramkit.kernels.blend.live import grown, new_live
from ngramkit.kernels.blend.mixture import new_scratch
from ngramkit.kernels.blend.opinions import new_opinions
from ngramkit.kernels.blend.predict import new_place
from ngramkit.kernels.blend.table import new_candidates
from ngramkit.kernels.blend.tree import DRAFT, EXTEND, LEARN, act
from ngramkit.kernels.packed import Packed

CHECKPOINTS = 64  # of what was learnt, so that tokens can be taken back
ROOM = 256  # tokens of a live context that there is room for at first
LOOKS = 64  # contexts looked at for a chain, and its tokens, at most
TRUSTED = ("experts", "earlier", "lately", "opinions")  # parts of Sources that learn a trust
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


class Desk:
    """Where one thread counts and drafts, for one request after another."""

    def __init__(self, source: BlendSource) -> None:
        shared, vocabulary = source.sources, source.vocabulary
        self._source = source
        self.sources = Packed(
            shared._replace(
                corpus=_own(shared.corpus, MEMO_ROWS),
                frozen=_own_frozen(shared.frozen),
                live=source.live.parts,
                earlier=_own_history(shared.earlier),
                lately=_own_history(shared.lately),
                opinions=new_opinions(1),
                experts=new_experts(len(shared.experts.trust)),
                scratch=new_scratch(shared.weights),
                into=new_candidates(vocabulary),
                aside=new_candidates(vocabulary),
            )
        )
        self._seated: Packed | None = None
        inside = self.sources.inside
        self._live = self.sources.place_of("live")
        self._trusts = [inside[name].place_of("trust") for name in TRUSTED]
        self.chains = Packed(new_tree(len(shared.corpus.table), LOOKS))
        self.room(0)

    def room(self, nodes: int) -> None:
        """The tree has room for so many from now on."""
        self.tree = Packed(new_tree(len(self._source.sources.corpus.table), nodes))
        self.nodes = nodes

    def seat(self, request: BlendRequest) -> None:
        """What kernels do next they do for `request`."""
        if self._seated is request.live:  # anew where a request has outgrown its arrays
            return
        block, word = self._live
        block[word] = request.live.address
        if self._source.judged:  # else nothing is learnt, and trust is what it was at first
            for (block, word), address in zip(self._trusts, request.trusts, strict=True):
                block[word] = address
        self._seated = request.live


def _own(corpus: Corpus, rows: int) -> Corpus:
    return new_corpus(corpus.table, rows, corpus.ends, corpus.firsts)


def _own_history(history: History) -> History:
    return new_history(_own(history.corpus, PAST_ROWS))


def _own_frozen(frozen: Frozen) -> Frozen:
    return frozen._replace(memo=new_memo(MEMO_ROWS if frozen.where[SIZE] else 1))


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
        self.trusts = [begin + offset for offset in source.trust_offsets]  # addresses
        self._learnt: deque[tuple[int, Trust]] = deque(maxlen=CHECKPOINTS)
        self.prompt = self.size = 0
        self._write(desk, prompt, EXTEND)
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
        if self._source.judged:
            self._learnt.append((self.size, self.trust.copy()))
        self._write(desk, tokens, LEARN if self._source.judged else EXTEND)

    def rewind(self, desk: Desk, size: int) -> None:
        """Of what there is, only the first `size` tokens were written; what was learnt from the
        others is unlearnt."""
        if size >= self.size:
            return
        if not self._source.judged:
            self._serve(desk, REWIND, size, self.size)
            self.size, self.prompt = size, min(size, self.prompt)
            return
        while self._learnt and self._learnt[-1][0] > size:
            self._learnt.pop()
        begin, trust = self._learnt[-1] if self._learnt else (0, self._source.first_trust)
        self._serve(desk, REWIND, begin, self.size)
        self.trust[:] = trust
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            self._act(desk, EXTEND, 0, begin)
        self._act(desk, LEARN, begin, size)
        self.size = size

    def tree(self, desk: Desk, budget: int) -> DraftTree:
        """As Drafter.draft."""
        if desk.nodes < budget:
            desk.room(budget)
        n = self._act(desk, DRAFT, self.size, budget)
        tree = desk.tree.parts
        found = (tree.tokens, tree.parents, tree.scores, tree.origins)
        return DraftTree(*(column[:n].copy() for column in found))

    def chain(self, desk: Desk, length: int, least: float) -> DraftTree:
        """The path of at most `length` tokens that is worth most, where each costs `least` passes:
        see kernels.blend.chain."""
        tree = desk.chains.parts
        tree.least[0] = least
        n = self._serve(desk, CHAIN, self.size, min(length, LOOKS))
        return DraftTree(
            tree.queue[:n, 0].copy(),
            np.arange(-1, n - 1, dtype=np.int32),
            tree.queue_p[:n].copy(),
            tree.queue[:n, 2].astype(np.uint8),
        )

    def _write(self, desk: Desk, tokens: TokenArray, what: int) -> None:
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown(self.live.parts, end + max(ROOM, end // 4))
            self.live = self._source.live.of_same_type(live)
        self.live.parts.tokens[begin:end] = tokens
        self._act(desk, what, begin, end)
        self.size = end

    def _act(self, desk: Desk, what: int, begin: int, end: int) -> int:
        desk.seat(self)
        return int(act(what, desk.sources, self._place, desk.tree, begin, end))

    def _serve(self, desk: Desk, what: int, begin: int, end: int) -> int:
        desk.seat(self)
        return int(serve(what, desk.sources, self._place, desk.chains, begin, end))
