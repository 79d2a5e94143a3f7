"""Lengths at which a model's rope changes or its context ends.

LongRoPE changes the frequencies of all tokens of a pass beyond the original training length;
dynamic scaling changes them with every length beyond the context. `generate` reads token by token,
so drafts end before these lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ngramkit.basics.machine import Lock
from ngramkit.decode.base import ResumableVerifier
from ngramkit.decode.cache import InPlaceCache
from ngramkit.drafters.base import DraftTree, TokenArray

_LOCK = Lock()
LENGTH_BEFORE_SCALING = "original_max_position_embeddings"


@dataclass(frozen=True)
class LengthLimits:
    """Ascending lengths in tokens that a draft must not cross.

    Beyond `dynamic` nothing is drafted.
    """

    lengths: tuple[int, ...] = ()
    dynamic: int | None = None

    def passed(self, length: int) -> int:
        return bisect_left(self.lengths, length)

    def room(self, length: int) -> int | None:
        """Return the most draft nodes after `length` tokens and the root; None: any number."""
        if length in self.lengths or self.is_dynamic(length + 1):
            return 0
        ahead = self.lengths[self.passed(length) :]
        return ahead[0] - length - 1 if ahead else None

    def is_dynamic(self, length: int) -> bool:
        return self.dynamic is not None and length > self.dynamic


def rope_limits(config: Any) -> LengthLimits:
    lengths: set[int | None] = set()
    dynamic = None
    for rope in rotary_embeddings(config):
        kind = str(rope.get("rope_type", rope.get("type")))
        if kind in ("longrope", "su"):
            # Frequencies change at the rope's length. Some modeling code reads the whole text
            # again at the config's.
            lengths |= {
                rope.get(LENGTH_BEFORE_SCALING),
                getattr(config, LENGTH_BEFORE_SCALING, None),
            }
        elif "dynamic" in kind:
            dynamic = int(config.max_position_embeddings)
            lengths.add(dynamic)
    return LengthLimits(tuple(sorted(each for each in lengths if each is not None)), dynamic)


def rotary_embeddings(config: Any) -> Iterator[dict[str, Any]]:
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [each for each in found.values() if isinstance(each, dict)]
    yield from nested or [found]


class LengthLimitVerifier:
    """A verifier that ends drafts before limits and reads the text again where `generate` does.

    Dynamic scaling leaves frequencies in the model, so every pass resets them, and other threads'
    passes wait.
    """

    def __init__(self, verifier: ResumableVerifier, model: Any, limits: LengthLimits) -> None:
        self._verifier, self._model, self._limits = verifier, model, limits
        self._ropes = []
        if limits.dynamic is not None:
            self._ropes = [
                part for part in model.modules() if hasattr(part, "original_max_seq_len")
            ]
        self._tokens: list[int] = []  # held, in order
        self._pass: list[int] = []  # the root and the draft of the last pass
        self._is_read = False  # whether the last pass put the root into the context
        self._passed: int | None = 0  # limits before the end of every pass; None if they differ

    @property
    def length(self) -> int:
        return self._verifier.length

    @property
    def replayed(self) -> int | None:
        return getattr(self._verifier, "replayed", None)

    def fit(self, tree: DraftTree, budget: int) -> DraftTree:
        room = self._limits.room(self.length)
        if room is not None and len(tree) > room:
            tree = tree.first(room)
        fit: Callable[[DraftTree, int], DraftTree] | None = getattr(self._verifier, "fit", None)
        return tree if fit is None else fit(tree, budget)

    def rewind(self, length: int) -> None:
        self._verifier.rewind(length)
        del self._tokens[self.length :]

    def expect(self, length: int) -> None:
        """Forget what is held if a prompt of `length` tokens would give it other values."""
        if self._passed != self._limits.passed(length) or self._limits.is_dynamic(length):
            self.rewind(0)

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        self.expect(len(prompt))
        self._is_read = False
        self._passed = self._limits.passed(len(prompt))
        self._tokens = prompt.tolist()
        return self._run(self._verifier.prefill, prompt)

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        self._is_read = False
        self._pass = [root, *tree.token_ids.tolist()]
        if self.length in self._limits.lengths:
            tokens = [*self._tokens, root]
            if reads_again(self._model, tokens):
                self.rewind(0)
                logits = self.prefill(np.array(tokens, np.int32))
                self._is_read = True
                return logits
            self._passed = None
        return self._run(self._verifier.verify, root, tree)

    def keep(self, nodes: list[int]) -> None:
        if self._is_read:
            return
        self._tokens += [self._pass[row] for row in [0, *(node + 1 for node in nodes)]]
        self._verifier.keep(nodes)

    def _run(self, run: Callable[..., torch.Tensor], *given: Any) -> torch.Tensor:
        with _LOCK if self._ropes else nullcontext():
            for part in self._ropes:
                restore_frequencies(part)
            try:
                return run(*given)
            finally:
                for part in self._ropes:
                    restore_frequencies(part)


def restore_frequencies(rope: Any) -> None:
    """Restore the original frequencies of a rotary embedding."""
    kinds = rope.rope_type if isinstance(rope.rope_type, dict) else [None]
    for prefix in ("" if kind is None else f"{kind}_" for kind in kinds):
        first = getattr(rope, f"{prefix}original_inv_freq", None)
        if first is not None:
            now = getattr(rope, f"{prefix}inv_freq")
            setattr(rope, f"{prefix}inv_freq", first.to(now.device, copy=True))
            setattr(rope, f"{prefix}max_seq_len_cached", rope.original_max_seq_len)


def reads_again(model: Any, tokens: Sequence[int]) -> bool:
    """Return whether `generate` reads all tokens in one pass, although only the last is new."""
    held = InPlaceCache(model.config.get_text_config().num_hidden_layers, room=0)
    held.length = len(tokens) - 1
    inputs = model.prepare_inputs_for_generation(
        torch.tensor([tokens], device=model.device),
        next_sequence_length=1,
        past_key_values=held,
        attention_mask=None,
        use_cache=True,
    )
    return int(inputs["input_ids"].shape[1]) > 1
