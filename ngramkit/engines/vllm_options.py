"""vLLM's options as ngramkit reads them; numba is not imported, since vLLM's plugins must not."""

from __future__ import annotations

import logging
from typing import Any

from ngramkit.basics.errors import UsageError, one_line
from ngramkit.engines.config import DraftConfig, require_usable_config
from ngramkit.engines.vllm_modes import NO_TRITON, V1_SETTING, choose_mode, why_not_v2
from ngramkit.engines.vllm_server_options import additional_draft_config

LOG = logging.getLogger("ngramkit")


def mode_of(vllm_config: Any) -> str:
    """Return which of `vllm_modes.MODES` follows from vLLM's options."""
    adaptive = getattr(vllm_config.speculative_config, "enable_adaptive_verification", False)
    return choose_mode(
        adaptive=adaptive, asynchronous=vllm_config.scheduler_config.async_scheduling
    )


def require_v2_drafts(vllm_config: Any, version: str) -> None:
    """Raise UsageError, in one line, unless Model Runner V2 runs ngramkit's drafts."""
    speculative = vllm_config.speculative_config
    cause = None
    if speculative.method != "ngram":
        cause = f'method must be "ngram", got {speculative.method!r}'
    elif (why := why_not_v2(version)) is not None:
        cause = why
    elif not vllm_config.use_v2_model_runner:
        cause = _why_v1(vllm_config)
    elif vllm_config.device_config.device_type == "cpu" and _adapts_head(vllm_config.lora_config):
        cause = (
            "on a CPU, vLLM fails with drafts of any method and LoRA adapters of lm_head, which "
            "--lora-target-modules can leave out"
        )
    if cause is not None:
        error = UsageError(
            f"cannot draft in vLLM's Model Runner V2: {cause}",
            f"Use Model Runner V1: set speculative_config to {V1_SETTING}.",
        )
        raise UsageError(one_line(error))
    require_usable_config(draft_config(vllm_config), "vllm")


def draft_config(vllm_config: Any) -> DraftConfig:
    """Return NGRAMKIT_DRAFT, else "ngramkit" of --additional-config, else the defaults."""
    config = DraftConfig.from_environment()
    additional = getattr(vllm_config, "additional_config", None)
    if config is None and isinstance(additional, dict):
        config = additional_draft_config(additional)
    return DraftConfig() if config is None else config


def log_where_vllm_does() -> None:
    """Send our log to vLLM's handlers: of other loggers vLLM shows only warnings."""
    theirs = logging.getLogger("vllm")
    if LOG.hasHandlers() or not theirs.handlers:
        return
    for handler in theirs.handlers:
        LOG.addHandler(handler)
    if LOG.level == logging.NOTSET:
        LOG.setLevel(theirs.getEffectiveLevel())


def _adapts_head(lora_config: Any) -> bool:
    targets = getattr(lora_config, "target_modules", None)
    return lora_config is not None and (targets is None or "lm_head" in targets)


def _why_v1(vllm_config: Any) -> str:
    from vllm.triton_utils import HAS_TRITON

    if not HAS_TRITON:
        return NO_TRITON
    return "it lacks " + ", ".join(vllm_config._get_v2_model_runner_unsupported_features())
