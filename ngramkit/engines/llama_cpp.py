"""Adapter for llama-cpp-python: `Llama(draft_model=Drafter())` (contract read in 0.3.36).

The engine calls the drafter before every pass with all token ids so far, int32[n], and takes one
chain, int32[k]. It tells of no start or end, and verifies a chain whatever that costs. One text at
a time; a text that is continued or shortened is found again.

Configured by NGRAMKIT_DRAFT, or by a DraftConfig:

    from ngramkit.engines.llama_cpp import Drafter
    drafter = Drafter(vocabulary=49152)
    llama = Llama("model.gguf", draft_model=drafter)
    drafter.check(llama)
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import VARIABLE, DraftConfig, existing_history
from ngramkit.engines.growth import GrowingHistory
from ngramkit.engines.metrics import Statistics
from ngramkit.engines.timed import Clock, TimedDrafter
from ngramkit.errors import UsageError

# What a drafted token costs, in passes, until passes were timed: a pass of two tokens took 1.6
# passes of one, of three 2.0 (SmolLM2-135M, Q4_1, one thread).
MIN_PROBABILITY = 0.6
TOKENS = 8
SESSIONS = 8


class Drafter:
    """A drafter that `Llama(draft_model=)` takes. `enabled = False` switches it off.

    `vocabulary`: how many ids the model knows, `llama.n_vocab()`; needed without artifacts only.
    `clock` returns the seconds by which passes are timed: not wall-clock time where other work goes
    on between passes. `config`: in place of NGRAMKIT_DRAFT; without either, blend over the text
    itself.

    Raises as `DraftConfig.read` and `engines.source.open_source`.
    """

    def __init__(
        self,
        config: DraftConfig | None = None,
        *,
        vocabulary: int | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        config = config or DraftConfig.from_environment() or DraftConfig(sessions=SESSIONS)
        if vocabulary is None and config.vocabulary is None and not _has_artifacts(config):
            raise UsageError(
                "without artifacts the model's vocabulary must be known",
                f"give vocabulary=llama.n_vocab(), or name artifacts in {VARIABLE}",
                option="vocabulary",
            )
        timed = config.min_probability is None and config.clock is not False
        self._batch = BatchDrafter.open(
            config, vocabulary=vocabulary, cost=MIN_PROBABILITY, timed=timed
        )
        self.timed: TimedDrafter | None = None
        if timed:
            self.timed = TimedDrafter(self._batch, MIN_PROBABILITY, clock, pause=config.pause)
        self._length = config.tokens or TOKENS
        self.enabled = True
        self._checked = False
        self._text = np.empty(0, np.int32)  # of the last call
        self._drafted = self._prompt = 0  # tokens of its draft, and of its prompt

    def __call__(self, input_ids: npt.NDArray[np.intc], /, **options: Any) -> npt.NDArray[np.intc]:
        """Return intc[k], tokens that may follow `input_ids`, intc[n]; none while switched off."""
        if not self.enabled or len(input_ids) == 0:
            return np.empty(0, np.intc)
        if not self._checked:
            self._batch.require_same(None)
            self._checked = True
        asked = self._asked(input_ids)
        if self.timed is None:
            (chain,) = self._batch.chain_batch([input_ids], [self._length], asked=[asked])
        else:
            chain = self.timed.chain(input_ids, self._length, asked)
        self._drafted = len(chain)
        return chain.token_ids.astype(np.intc)

    def _asked(self, text: npt.NDArray[np.intc]) -> Asked:
        """Return where the output of the text begins: a pass writes what was drafted and one token,
        and all else that is new is another prompt."""
        if self._batch.grows:
            size = len(self._text)
            goes_on = 0 < len(text) - size <= self._drafted + 1
            if not goes_on or not np.array_equal(text[:size], self._text):
                self._prompt = len(text) - 1
            self._text = text.copy()
        return Asked(self._prompt)

    def check(self, llama: Any) -> None:
        """Raise ArtifactError where an artifact was built for another tokenizer than that of
        `llama`, a Llama: the engine tells a drafter nothing of its model."""

        def encode(text: str) -> Any:
            return llama.tokenize(text.encode(), add_bos=False, special=True)

        self._batch.require_same(encode)
        self._checked = True

    @property
    def history(self) -> GrowingHistory | None:
        """The past requests that are drafted from, if there are any."""
        return self._batch.history

    @property
    def statistics(self) -> Statistics:
        """The counters of drafted and accepted tokens."""
        return self._batch.statistics


def _has_artifacts(config: DraftConfig) -> bool:
    history = existing_history(config) is not None
    return bool(config.artifacts) or history or config.drafter.partition(":")[0] != "blend"
