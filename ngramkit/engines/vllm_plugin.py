"""vLLM's entry point for `engines.vllm_hooks`.

It imports nothing that can fail: vLLM logs an error of this module, and starts with its own n-gram
drafter. An error of the function stops vLLM.
"""

from __future__ import annotations

import importlib
import logging
import sys
from contextlib import suppress
from typing import Any

from ngramkit.basics.errors import NgramkitError  # which the package imports too
from ngramkit.engines.vllm_wanted import (
    RUNNER_MODULE,
    SPECULATORS_PACKAGE,
    is_configured_by_variable,
    uses_our_speculator,
)
from ngramkit.engines.wrapping import wrap

LOG = logging.getLogger("ngramkit")


def plugin() -> None:
    """Prepare vLLM to use ngramkit's speculator if it is asked for.

    If ngramkit cannot be loaded, only servers that ask for its drafts stop, with an ImportError:
    NGRAMKIT_DRAFT asks at once, --additional-config when vLLM has read its options. Raises as
    `register_hooks`.
    """
    try:
        from ngramkit.engines.vllm_hooks import register_hooks

        register_hooks()
    except NgramkitError:
        raise
    except Exception as error:
        message = (
            f"cannot load ngramkit: {error}. Repair its installation, or leave it out of "
            "VLLM_PLUGINS."
        )
        if is_configured_by_variable() or not _refuse_drafts(message):
            raise ImportError(message) from error
        LOG.warning("%s vLLM starts without it.", message)


def _refuse_drafts(message: str) -> bool:
    """Let vLLM fail where ngramkit is asked for drafts; False if it cannot be told.

    Options are read in one process, and a speculator is made in workers.
    """
    try:
        from vllm.config import VllmConfig
    except ImportError:
        return False

    def refuse(theirs: Any, vllm_config: Any, *given: Any) -> Any:
        made = theirs(vllm_config, *given)
        if uses_our_speculator(vllm_config):
            raise ImportError(message)
        return made

    wrap(VllmConfig, "__post_init__", refuse)
    with suppress(ImportError):  # a version without Model Runner V2
        wrap(importlib.import_module(SPECULATORS_PACKAGE), "init_speculator", refuse)
    wrap(sys.modules.get(RUNNER_MODULE), "init_speculator", refuse)
    return True
