"""The hooks of vLLM's general plugin: drafts in Model Runner V2, under the method `ngram`.

Each process of vLLM loads them before it imports its model runner. They import neither numba nor
that runner: on a CPU vLLM's worker fails if either is imported first.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any

from ngramkit.basics.errors import NgramkitError, one_line
from ngramkit.engines.config import require_usable_variable
from ngramkit.engines.vllm_front import (
    Served,
    carry_texts,
    register_prediction_counts,
    uses_our_drafts,
)
from ngramkit.engines.vllm_options import require_v2_drafts
from ngramkit.engines.vllm_wanted import (
    RUNNER_MODULE,
    SPECULATORS_PACKAGE,
    uses_our_speculator,
)
from ngramkit.engines.wrapping import wrap


def register_hooks() -> None:
    """Check NGRAMKIT_DRAFT, and prepare vLLM to use ngramkit's speculator if it is asked for.

    Raises NgramkitError if NGRAMKIT_DRAFT cannot be used.
    """
    require_usable_variable("vllm")
    try:
        from vllm.config import VllmConfig
    except ImportError:  # not a process of vLLM
        return
    wrap(VllmConfig, "__post_init__", _refuse_unless_v2_drafts)
    carry_texts()
    with suppress(
        ImportError
    ):  # a version without Model Runner V2, which `_refuse_unless_v2_drafts` refuses
        wrap(importlib.import_module(SPECULATORS_PACKAGE), "init_speculator", _with_our_speculator)
    wrap(sys.modules.get(RUNNER_MODULE), "init_speculator", _with_our_speculator)


def _refuse_unless_v2_drafts(theirs: Any, vllm_config: Any) -> None:
    """Let a VllmConfig that asks for ngramkit's drafts fail if V2 will not make them."""
    theirs(vllm_config)
    if uses_our_speculator(vllm_config):
        _require_v2_drafts_here(vllm_config)
    if uses_our_speculator(vllm_config) or uses_our_drafts(vllm_config.speculative_config):
        Served.by_options = True


def _with_our_speculator(theirs: Any, vllm_config: Any, device: Any, req_states: Any) -> Any:
    if not uses_our_speculator(vllm_config):
        return theirs(vllm_config, device, req_states)
    _require_v2_drafts_here(vllm_config)
    from ngramkit.engines.vllm_v2 import Speculator, show_requests_to_speculators

    register_prediction_counts()
    show_requests_to_speculators(vars(sys.modules[RUNNER_MODULE])["GPUModelRunner"])
    try:
        return Speculator(vllm_config, device, req_states)
    except NgramkitError as error:
        raise type(error)(one_line(error), option=error.option) from error


def _require_v2_drafts_here(vllm_config: Any) -> None:
    from vllm.version import __version__

    require_v2_drafts(vllm_config, __version__)
