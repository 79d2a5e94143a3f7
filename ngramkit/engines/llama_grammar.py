"""Text that a grammar of llama-cpp-python forces ahead of the model, and drafts that it refuses.

Text is forced and then tokenized as a whole, since tokens may span it in several ways. The grammar
is a copy of `Llama._sampler` (read in 0.3.36).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

MAX_FORCED_CHARACTERS = 80  # maximum characters of a forced text
SPACE = ord(" ")
FOLLOWED_BY_SPACE = b":,{[}]"  # after these, models write a space or none, by habit
USUALLY_SPACED = b":,"  # as json.dumps does
REFUSED_BELOW_LOGIT = -1e30  # logits below this are refused
TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class SpaceHabit:
    """The choice of a space if a grammar leaves it open: as the last time."""

    def __init__(self) -> None:
        self._spaced = {character: character in USUALLY_SPACED for character in FOLLOWED_BY_SPACE}

    def learn(self, text: bytes) -> None:
        for character, following in pairwise(text):
            if character in self._spaced:
                self._spaced[character] = following == SPACE

    def choose(self, last: int, choices: bytes) -> int | None:
        if len(choices) == 2 and SPACE in choices:
            spaced = self._spaced.get(last, False)
            return next(each for each in choices if (each == SPACE) == spaced)
        return choices[0] if len(choices) == 1 else None


def forced_text(grammar: _GrammarState, last: int, habits: SpaceHabit) -> bytes:
    """Advance the grammar by the text that it forces after `last`, and return it."""
    text = bytearray()
    while len(text) < MAX_FORCED_CHARACTERS:
        choices = grammar.next()
        character = None if choices is None else habits.choose(last, choices)
        if character is None:
            break
        grammar.accept(character)
        text.append(character)
        last = character
    return bytes(text)


class LlamaGrammar:
    """The grammar of a Llama's current text. `api`: the module llama_cpp."""

    def __init__(self, llama: Any, api: Any) -> None:
        self._llama = weakref.ref(llama)  # it holds the drafter, which holds this
        self._api, self._eos, self._habits = api, llama.token_eos(), SpaceHabit()
        pieces = ((token, llama.detokenize([token])) for token in range(llama.n_vocab()))
        wanted = {*range(32, 127), ord("\n")}
        self._tokens: dict[int, int] = {}  # of single characters
        for token, piece in pieces:
            if len(piece) == 1 and piece[0] in wanted:
                self._tokens.setdefault(piece[0], token)

    def forced_tokens(self, text: Sequence[int]) -> list[int]:
        llama, copy = self._llama(), self._copy()
        if llama is None or copy is None:
            return []
        written: bytes = llama.detokenize(list(text))
        self._habits.learn(written)
        found = forced_text(copy, written[-1] if written else SPACE, self._habits).rstrip(b" ")
        if not found:
            return []
        tokens: list[int] = llama.tokenize(found, add_bos=False)
        return tokens

    def allowed_length(self, draft: Sequence[int]) -> int:
        """Return how many tokens of a draft the grammar allows."""
        copy = self._copy()
        if copy is None:
            return len(draft)
        for count, token in enumerate(draft):
            if not copy.allowed_tokens([token]) or token == self._eos:
                return count
            copy.take(token)
        return len(draft)

    @property
    def is_given(self) -> bool:
        """Whether the current request has a grammar."""
        return self._sampler() is not None

    def _copy(self) -> _GrammarState | None:
        sampler = self._sampler()
        if sampler is None:
            return None
        return _GrammarState(sampler, self._tokens, self._eos, self._api)

    def _sampler(self) -> Any:
        chain: Any = getattr(self._llama(), "_sampler", None)
        api = self._api
        # A logits processor has no name: llama_sampler_name would end the process.
        processors = {i for i, _ in getattr(chain, "custom_samplers", ())}
        for i in range(api.llama_sampler_chain_n(chain.sampler) if chain else 0):
            if i in processors:
                continue
            sampler = api.llama_sampler_chain_get(chain.sampler, i)
            if api.llama_sampler_name(sampler) == b"grammar":
                return sampler
        return None


class _GrammarState:
    """A grammar's state after the written text."""

    def __init__(self, sampler: Any, tokens: dict[int, int], eos: int, api: Any) -> None:
        self._sampler = api.llama_sampler_clone(sampler)
        self._tokens, self._eos, self._api = tokens, eos, api

    def __del__(self) -> None:
        self._api.llama_sampler_free(self._sampler)

    def next(self) -> bytes | None:
        """Return the characters that may follow; None if the text may end."""
        passing = self.allowed_tokens([*self._tokens.values(), self._eos])
        ends = self._eos in passing
        return None if ends else bytes(c for c, token in self._tokens.items() if token in passing)

    def accept(self, character: int) -> None:
        self.take(self._tokens[character])

    def take(self, token: int) -> None:
        self._api.llama_sampler_accept(self._sampler, token)

    def allowed_tokens(self, tokens: Sequence[int]) -> set[int]:
        api, rows = self._api, np.zeros(len(tokens), TOKEN_DATA)
        rows["id"] = tokens
        data = rows.ctypes.data_as(ctypes.POINTER(api.llama_token_data))
        array = api.llama_token_data_array(data, len(rows), -1, False)
        api.llama_sampler_apply(self._sampler, ctypes.byref(array))  # keeps their order
        return set(rows["id"][rows["logit"] > REFUSED_BELOW_LOGIT].tolist())
