"""The hooks of vLLM's general plugin: drafts in Model Runner V2, under the method `ngram`.

Each process of vLLM loads them before it imports its model runner. They import neither numba nor
that runner: on a CPU vLLM's worker fails if either is imported first.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

from ngramkit.basics.errors import NgramkitError, one_line
from ngramkit.engines.check import require_usable
from ngramkit.engines.vllm_front import (
    Served,
    carry_texts,
    register_prediction_counts,
    uses_our_drafts,
)
from ngramkit.engines.vllm_options import require_supported
from ngramkit.engines.vllm_wanted import RUNNER_MODULE, uses_our_speculator


def register_hooks() -> None:
    """Check NGRAMKIT_DRAFT, and prepare vLLM to use ngramkit's speculator if it is asked for.

    Raises NgramkitError if NGRAMKIT_DRAFT cannot be used.
    """
    require_usable("vllm")
    try:
        from vllm.config import VllmConfig
        from vllm.version import __version__
    except ImportError:  # not a process of vLLM
        return
    _check_configurations(VllmConfig, __version__)
    carry_texts()
    _replace_speculator(__version__)


def _check_configurations(configurations: Any, version: str) -> None:
    """Let a VllmConfig that asks for ngramkit's drafts fail if V2 will not make them."""
    theirs = configurations.__post_init__
    if getattr(theirs, "checked_by_ngramkit", False):
        return

    @wraps(theirs)
    def post_init(self: Any) -> None:
        theirs(self)
        if uses_our_speculator(self):
            require_supported(self, version)
        if uses_our_speculator(self) or uses_our_drafts(self.speculative_config):
            Served.by_options = True

    post_init.checked_by_ngramkit = True  # type: ignore[attr-defined]
    configurations.__post_init__ = post_init


def _replace_speculator(version: str) -> None:
    """Replace `init_speculator` in its package, and in the runner's module if it is loaded."""
    try:
        import vllm.v1.worker.gpu.spec_decode as package
    except ImportError:  # a version without Model Runner V2, which `require_supported` refuses
        return
    theirs = getattr(package, "init_speculator", None)
    if theirs is None or getattr(theirs, "replaced_by_ngramkit", False):
        return

    @wraps(theirs)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        if not uses_our_speculator(vllm_config):
            return theirs(vllm_config, device, req_states)
        require_supported(vllm_config, version)
        from ngramkit.engines.vllm_v2 import Speculator, show_requests_to_speculators

        register_prediction_counts()
        show_requests_to_speculators(vars(sys.modules[RUNNER_MODULE])["GPUModelRunner"])
        try:
            return Speculator(vllm_config, device, req_states)
        except NgramkitError as error:
            raise type(error)(one_line(error), option=error.option) from error

    init_speculator.replaced_by_ngramkit = True  # type: ignore[attr-defined]
    package.init_speculator = init_speculator
    if RUNNER_MODULE in sys.modules:
        vars(sys.modules[RUNNER_MODULE])["init_speculator"] = init_speculator
