"""Adapter for vLLM: `--speculative-config` with the method `custom_class` (read in 0.32 and 0.33).

    NGRAMKIT_DRAFT='{"datastores": ["hf://me/chat@v1"]}' vllm serve MODEL --speculative-config \\
      '{"method": "custom_class", "model": "ngramkit.engines.vllm.Proposer",
        "num_speculative_tokens": 8}'

vLLM makes a Proposer on every rank and asks it after every step for the chains of all rows. It
swaps rows between steps and does not say which request a row is: a request is found by its tokens.
Nothing here depends on time, so every rank drafts the same. Imports nothing of vLLM.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.metrics import EngineCounters, Statistics
from ngramkit.engines.pass_cost import FREE, FREE_ON_CPU, PassCost
from ngramkit.engines.source import load_engine_tokenizer
from ngramkit.errors import NgramkitError, UsageError, one_line

LOG = logging.getLogger("ngramkit")


class Proposer:
    """The class that vLLM's `create_custom_proposer` makes. `enabled = False` switches it off.

    Configured by NGRAMKIT_DRAFT, else by the key "ngramkit" of --additional-config; without either,
    blend over the requests' own text. Raises NgramkitError, which vLLM shows as it stops.
    """

    def __init__(self, vllm_config: Any) -> None:
        _log_where_vllm_does()
        try:
            config = _config(vllm_config)
            vocabulary = int(vllm_config.model_config.get_vocab_size())
            rank = getattr(getattr(vllm_config, "parallel_config", None), "rank", 0)
            device = getattr(getattr(vllm_config, "device_config", None), "device_type", "")
            self._batch = BatchDrafter.open(
                config,
                vocabulary=vocabulary,
                cost=PassCost(FREE_ON_CPU if device == "cpu" else FREE),
                counters=None if rank else EngineCounters(),  # ranks count alike
            )
            if self._batch.source.artifacts:
                self._batch.require_same(_tokenizer(vllm_config.model_config))
        except NgramkitError as error:
            raise type(error)(one_line(error), option=error.option) from error
        running = int(vllm_config.scheduler_config.max_num_seqs)
        self._batch.sessions.most = max(config.sessions, 2 * running)  # with preempted ones
        asked = int(vllm_config.speculative_config.num_speculative_tokens)
        self._length = min(config.tokens or asked, asked)
        self._longest = int(vllm_config.model_config.max_model_len)
        self.enabled = True

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no model. vLLM's CPU runner calls this without asking for it."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a chain for every row of `sampled_token_ids`; [] for a row that sampled nothing,
        which is not to be drafted for.

        `num_tokens_no_spec` int32[rows or more] counts a row's tokens, the sampled ones included;
        `token_ids_cpu` int32[rows or more, max_model_len].
        """
        count = len(sampled_token_ids)
        lengths = [
            min(self._length, self._longest - int(num_tokens_no_spec[i]) - 1)
            if self.enabled and len(sampled_token_ids[i])
            else 0
            for i in range(count)
        ]
        rows = [token_ids_cpu[i, : num_tokens_no_spec[i]] for i in range(count)]
        return [chain.token_ids.tolist() for chain in self._batch.chain_batch(rows, lengths)]

    @property
    def statistics(self) -> Statistics:
        """The counters of drafted and accepted tokens."""
        return self._batch.statistics


def _log_where_vllm_does() -> None:
    """Send our log to vLLM's handlers, at its level, unless somebody chose others.

    vLLM shows the lines of its own loggers, and of others warnings alone.
    """
    theirs = logging.getLogger("vllm")
    if LOG.hasHandlers() or not theirs.handlers:
        return
    for handler in theirs.handlers:
        LOG.addHandler(handler)
    if LOG.level == logging.NOTSET:
        LOG.setLevel(theirs.getEffectiveLevel())


def _tokenizer(model_config: Any) -> Any:
    """Load the tokenizer that vLLM serves with; None where it serves without."""
    name = getattr(model_config, "tokenizer", None)
    if not name or getattr(model_config, "skip_tokenizer_init", False):
        return None
    return load_engine_tokenizer(
        str(name),
        revision=getattr(model_config, "tokenizer_revision", None),
        trust_remote_code=bool(getattr(model_config, "trust_remote_code", False)),
    )


def _config(vllm_config: Any) -> DraftConfig:
    config = DraftConfig.from_environment()
    if config is not None:
        return config
    additional = getattr(vllm_config, "additional_config", None)
    given = additional.get("ngramkit", {}) if isinstance(additional, dict) else {}
    where = "ngramkit in --additional-config"
    if not isinstance(given, dict):
        raise UsageError(f"{where} must be an object", 'write {"ngramkit": {"drafter": "blend"}}')
    return DraftConfig.parse(given, where)
