"""vLLM's model runners, and the modes of ngramkit's drafts that follow from vLLM's options."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import NamedTuple

from ngramkit.basics.terminal_text import visible

TESTED_VERSIONS = ("0.33.0",)  # versions whose Model Runner V2 was read and run
PRICE_KEYS = ("min_probability", "pass_cost", "clock", "pause")


class Mode(NamedTuple):
    verified: str  # what vLLM verifies
    cause: str  # option of `vllm serve` that it follows from
    options: str  # to get it, besides the method and K
    known: str  # about its speed, with the source
    unused: tuple[str, ...]  # keys of DraftConfig without effect


MODES = {
    "fixed": Mode(
        "asynchronous scheduling verifies all K tokens, so all are filled",
        "asynchronous scheduling",
        "",
        "asynchronous scheduling is 20 to 39 % faster for n-gram drafts (vllm#29184); all slots "
        "are verified, with a draft or without",
        ("tokens", "budget", *PRICE_KEYS),
    ),
    "trimmed": Mode(
        "synchronous scheduling verifies exactly the drafted tokens",
        "--no-async-scheduling",
        "--no-async-scheduling",
        "drafts only what pays; without drafts asynchronous scheduling is 1.28 times (1 request) "
        "to 1.60 times (256) as fast (Qwen3-8B's size on an H200, see docs/engines/vllm.md)",
        ("budget",),
    ),
    "adaptive": Mode(
        "vLLM cuts drafts by their confidence and its measured costs",
        "enable_adaptive_verification is true",
        '"enable_adaptive_verification": true in --speculative-config',
        "15 to 22 % faster than fixed with a draft model (vllm#52228); needs full CUDA graphs, no "
        "LoRA, no pipeline parallelism",
        ("budget", *PRICE_KEYS),
    ),
}  # the best known first
NO_TRITON = "it needs Triton, which was not found"
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
V1_CLASS = "ngramkit.engines.vllm.Proposer"  # of Model Runner V1
V1_SETTING = f'{{"method": "custom_class", "model": "{V1_CLASS}", ...}}'


def choose_mode(*, adaptive: bool, asynchronous: bool) -> str:
    """Return which of MODES follows from adaptive verification and asynchronous scheduling."""
    if adaptive:
        return "adaptive"
    return "fixed" if asynchronous else "trimmed"


def why_version_is_refused(version: str | None) -> str | None:
    if version is not None and version.partition("+")[0] not in TESTED_VERSIONS:
        return f"it was tested with vLLM {', '.join(TESTED_VERSIONS)}, got {version}"
    return None


def why_not_v2(version: str | None) -> str | None:
    """Return why an installed vLLM would not draft in Model Runner V2; None if it would.

    `version`: None if vLLM is not installed here. Options of a server may forbid it too.
    """
    if (why := why_version_is_refused(version)) is not None:
        return why
    if os.environ.get(RUNNER_VARIABLE, "").strip() == "0":
        return f"{RUNNER_VARIABLE}=0 asks for Model Runner V1"
    named = os.environ.get("VLLM_PLUGINS")
    if named is not None and "ngramkit" not in named.split(","):
        got = visible(named, 60) or "nothing"
        return f"VLLM_PLUGINS must name ngramkit, got {got}; vLLM's own n-gram drafts instead"
    return None


def why_not_v2_before_start(version: str | None) -> str | None:
    """Return the same for a vLLM that does not run yet, which would look for Triton."""
    why = why_not_v2(version)
    return NO_TRITON if why is None and version and not _has_triton(version) else why


def is_cpu_build(version: str | None) -> bool:
    return "cpu" in (version or "").partition("+")[2]


def _has_triton(version: str) -> bool:
    """Look for Triton as vLLM does, but not for the driver of a GPU."""
    if is_cpu_build(version):
        return any(each.name == "cpu" for each in entry_points(group="triton.backends"))
    return find_spec("triton") is not None
