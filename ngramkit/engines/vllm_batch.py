"""The batch drafter of a rank of vLLM, by the server's options."""

from __future__ import annotations

import math
import time
from typing import Any

from ngramkit.basics.errors import UsageError
from ngramkit.budget.model_size import model_size, served_config
from ngramkit.budget.pass_times import pass_times
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growing_history import config_of_later_replica
from ngramkit.engines.metrics import EngineCounters
from ngramkit.engines.source import engine_record, load_engine_tokenizer


def open_batch(vllm_config: Any, config: DraftConfig, device: str, *, counts: bool) -> BatchDrafter:
    """Open what `config` drafts from, for the model and the rank that vLLM's options name."""
    config.refuse_keys_of_other_engines("vllm")
    model, parallel = vllm_config.model_config, getattr(vllm_config, "parallel_config", None)
    vocabulary = int(model.get_vocab_size())
    tokenizer = tokenizer_of(model) if config.named else None
    size = model_size(served_config(model))
    ranks = int(getattr(parallel, "world_size", 1))
    later = bool(getattr(parallel, "data_parallel_index", 0))
    if later:
        config = config_of_later_replica(config, ranks=ranks, logs=counts)
    if config.clock and ranks > 1:
        raise UsageError(
            "cannot use clock: several ranks must draft the same, and clocks differ",
            "Leave it out, or give the passes' times as pass_cost.",
            option="clock",
        )
    learns = ranks == 1 and config.clock is not False and config.pass_cost is None
    batch = BatchDrafter.open(
        config,
        vocabulary=vocabulary,
        cost=pass_times(config.pass_cost, size, device),
        clock=time.perf_counter if learns else None,
        counters=EngineCounters() if counts else None,
        tokenizer=engine_record(tokenizer, vocabulary),
        writes=is_first_rank_of_stage(parallel) and not later,
    )
    batch.require_same_encoding(tokenizer)
    batch.decode = getattr(tokenizer, "decode", None)
    running = int(vllm_config.scheduler_config.max_num_seqs)
    batch.sessions.most = max(batch.sessions.most, 2 * running)  # with preempted ones
    return batch


def is_first_rank_of_stage(parallel: Any) -> bool:
    """Return whether this is the first of the ranks that share a layer; others may not draft."""
    sizes = ("tensor_parallel_size", "prefill_context_parallel_size")  # vLLM's inner dimensions
    ranks = math.prod(int(getattr(parallel, name, 1)) for name in sizes)
    return int(getattr(parallel, "rank", 0)) % ranks == 0


def most_drafted(vllm_config: Any, config: DraftConfig) -> int:
    """Return the most tokens of a chain."""
    slots = int(vllm_config.speculative_config.num_speculative_tokens)
    return min(config.tokens or slots, slots)


def tokenizer_of(model_config: Any) -> Any:
    """Load the tokenizer that vLLM's configuration names; None if it names none."""
    name = getattr(model_config, "tokenizer", None)
    if not name or getattr(model_config, "skip_tokenizer_init", False):
        return None
    return load_engine_tokenizer(
        str(name),
        revision=getattr(model_config, "tokenizer_revision", None),
        trust_remote_code=bool(getattr(model_config, "trust_remote_code", False)),
    )
