"""A verifier that decodes with a SpeCache: no drafts, two rows per pass.

The paper's algorithms 1 (`prefill`), 2 (pre-decode, in the first `verify`) and 3 (`verify`,
`keep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from ngramkit.basics.errors import InputError
from ngramkit.decode.specache.attention import CURRENT_RUN, using_specache_attention
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.prefetching_cache import SpeCacheRun
from ngramkit.decode.specache.store import copies_for
from ngramkit.drafters.base import Drafter, DraftTree, Evidence, TokenArray
from ngramkit.drafters.checked import ANY_VOCABULARY, drafts_of
from ngramkit.drafters.registry import NoDraft

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


class Guesses:
    """A drafter whose best node guesses the next token; drafts are empty."""

    wants_evidence = False

    def __init__(self, drafter: Drafter, vocabulary: int = ANY_VOCABULARY) -> None:
        self._drafter, self._draft = drafter, drafts_of(drafter, vocabulary)
        self.best: int | None = None

    def start(self, prompt: TokenArray) -> None:
        self._drafter.start(prompt)

    def draft(self, budget: int) -> DraftTree:
        tree = self._draft(1)
        self.best = int(tree.token_ids[0]) if len(tree) else None
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self.best = None
        self._drafter.accept(tokens, None)

    def finish(self) -> None:
        self._drafter.finish()


class SpeCacheVerifier:
    """The verifier of one request; close it after the last pass.

    `room` is the number of tokens to allocate at first. Raises UsageError if the options do not fit
    the model, InputError if its attention cannot be replaced.
    """

    def __init__(
        self, model: Any, options: SpeCache, *, room: int, guesses: Guesses | None = None
    ) -> None:
        config = model.config.get_text_config()
        others = set(getattr(config, "layer_types", None) or ()) - ATTENTION
        if others:
            raise InputError(
                f"cannot use a SpeCache: {config.model_type} has layers without keys and values "
                f"({', '.join(others)})",
                "Use a model with attention in every layer.",
            )
        self._model, self._options, self._guesses = model, options, guesses
        self.drafter: Drafter = NoDraft() if guesses is None else guesses  # for the loop
        layers, copies = config.num_hidden_layers, copies_for(model.device)
        self.run = SpeCacheRun(options, layers, room=room, copies=copies)
        self._speculative: torch.Tensor | None = None
        self._open = ExitStack()
        self._open.enter_context(using_specache_attention(model))

    def close(self) -> None:
        self._open.close()

    @property
    def length(self) -> int:
        return self.run.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Read the prompt in full precision; return the logits [1, V] after it."""
        logits = self._pass(prompt.tolist(), logits_to_keep=1)
        if self.run.missing:
            raise InputError(
                f"cannot use a SpeCache: {self.run.missing} layers of "
                f"{self._model.config.model_type} do not attend through transformers' "
                "attention functions",
                "Leave out the cache option.",
            )
        return logits

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Return logits [1, V] after `root`, read with the speculative token."""
        if not self._options.fetches:
            return self._pass([root])
        if self._speculative is None:  # pre-decode: the first guess, and the first pairs to fetch
            self._speculative = self._pass([root], keeps=0)[0].argmax()
        guess = self._guesses.best if self._guesses is not None else None
        rows = [root, int(self._speculative) if guess is None else guess]
        logits = self._pass(rows)
        self._speculative = logits[1].argmax()
        return logits[:1]

    def keep(self, nodes: Sequence[int]) -> None:
        """Do nothing: each pass keeps its root and drops the speculative row."""

    def _pass(self, tokens: list[int], keeps: int = 1, **inputs: Any) -> torch.Tensor:
        self.run.keeps = keeps
        ids = torch.tensor([tokens], device=self._model.device)
        token = CURRENT_RUN.set(self.run)
        try:
            output = self._model(input_ids=ids, past_key_values=self.run, use_cache=True, **inputs)
        finally:
            CURRENT_RUN.reset(token)
        self.run.end_pass()
        logits: torch.Tensor = output.logits[0]
        return logits
