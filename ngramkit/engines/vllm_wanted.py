"""Whether vLLM is asked for ngramkit's drafts. Imports nothing that can fail, see `vllm_plugin`."""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "NGRAMKIT_DRAFT"  # CONFIG_VARIABLE, whose module may fail
RUNNER_MODULE = "vllm.v1.worker.gpu.model_runner"  # has its `init_speculator` as a global
SPECULATORS_PACKAGE = "vllm.v1.worker.gpu.spec_decode"
NGRAM_METHODS = ("ngram", "ngram_gpu")  # those that vLLM's own n-gram drafter serves in V2


def uses_our_speculator(vllm_config: Any) -> bool:
    """Return whether ngramkit is asked to draft in place of vLLM's own n-gram drafter."""
    additional = getattr(vllm_config, "additional_config", None)
    asked = isinstance(additional, dict) and "ngramkit" in additional
    method = getattr(vllm_config.speculative_config, "method", None)
    return (asked or is_configured_by_variable()) and method in NGRAM_METHODS


def is_configured_by_variable() -> bool:
    return bool(os.environ.get(VARIABLE, "").strip())
