"""Patches of vLLM 0.33's Model Runner V2 on a CPU, as a general plugin; without effect elsewhere.

Asynchronous scheduling stays as it was asked for; vLLM's CPU platform would switch it off. The
sampler's kernel searches a row of logits in one program, as the interpreter takes milliseconds for
each. With V2_ON_CPU_ADAPTIVE=1, adaptive verification works without CUDA graphs, at costs that are
given instead of measured: a pass over t tokens takes 1 + t / FREE of a pass over none.
"""

from __future__ import annotations

import os
from typing import Any

from ngramkit.engines.wrapping import wrap

FREE = 24.0
BLOCK, WHOLE = 1024, 1 << 16  # logits of a program: vLLM's, and any vocabulary of the benchmarks


def plugin() -> None:
    """Apply the patches once in a process."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    import vllm.v1.sample.ops.topk_topp_sampler as sampler

    sampler.HAS_TRITON = False  # its kernel fails in the interpreter; torch's way replaces it
    if os.environ.get("V2_ON_CPU_ADAPTIVE") == "1":
        _verify_adaptively()
    _schedule_asynchronously()
    _sample_in_one_block()


def _sample_in_one_block() -> None:
    from vllm.v1.worker.gpu.sample import gumbel

    code = gumbel.gumbel_sample.__code__
    constants = tuple(WHOLE if each == BLOCK else each for each in code.co_consts)
    gumbel.gumbel_sample.__code__ = code.replace(co_consts=constants)


def _schedule_asynchronously() -> None:
    from vllm.platforms.cpu import CpuPlatform

    wrap(CpuPlatform, "check_and_update_config", _with_scheduling_as_asked)


def _with_scheduling_as_asked(theirs: Any, *given: Any) -> None:
    scheduler = given[-1].scheduler_config  # vLLM calls the method of an instance
    wanted = scheduler.async_scheduling
    theirs(given[-1])
    scheduler.async_scheduling = wanted


def _verify_adaptively() -> None:
    from vllm.config import VllmConfig

    VllmConfig._validate_adaptive_verification = lambda self: None
    # The worker's shared memory module has to be the first of its modules.
    import vllm.v1.worker.cpu.shm  # noqa: F401
    import vllm.v1.worker.gpu.model_runner as runner
    import vllm.v1.worker.gpu.spec_decode.adaptive_verification as adaptive

    adaptive._assign_draft_token_budget_compiled = adaptive._assign_draft_token_budget

    def make(
        *, enable_adaptive_verification: bool, req_states: Any, query_start_loc: Any,
        num_bonus_tokens: Any, max_total_logits: Any, **_: Any,
    ) -> Any:  # fmt: skip
        if not enable_adaptive_verification:
            return None
        manager = adaptive.AdaptiveVerificationManager(
            req_states, query_start_loc, num_bonus_tokens, max_total_logits
        )
        rows, tokens = req_states.max_num_reqs, req_states.max_num_batched_tokens
        manager.set_cost_curves(
            [(n, 0.05) for n in range(1, rows + 1)],
            [(t, 1 + t / FREE) for t in range(1, tokens + 1)],
        )
        return manager

    runner.maybe_create_adaptive_verification_manager = make
    runner.resolve_adaptive_cudagraph_mode = lambda mode, **_: mode
