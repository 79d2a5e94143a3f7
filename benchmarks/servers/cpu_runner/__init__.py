"""What vLLM's Model Runner V2 lacks on a CPU; `install` writes it to a folder for PYTHONPATH.

V2 needs Triton with a backend for the device. The backend "cpu" compiles nothing: with
TRITON_INTERPRET=1 kernels run in Triton's interpreter, on tensors in host memory. The general
plugin `patches` lets vLLM schedule asynchronously on a CPU. V1 must run without that folder,
because vLLM assumes that any backend "cpu" compiles.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.servers.environment import add_metadata

TRITON = "3.8.0"  # the interpreter of 3.9.0 fails at vLLM's own n-gram kernel
PACKAGE = "v2_on_cpu"
ENTRY_POINTS = f"""[triton.backends]
cpu = {PACKAGE}

[vllm.general_plugins]
v2_on_cpu = {PACKAGE}.patches:plugin
"""


def install(folder: Path) -> Path:
    """Copy this package's modules to `folder`, with their entry points; return it."""
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    for name in ("compiler.py", "driver.py", "patches.py"):
        shutil.copy(Path(__file__).parent / name, package)
    (package / "__init__.py").write_text("")
    add_metadata(folder, PACKAGE.replace("_", "-"), "1.0", ENTRY_POINTS)
    return folder


def cpu_variables(environment: Path, runner: Path | None) -> dict[str, str]:
    """Return the variables of a process of vLLM's; `runner`: the folder that V2 needs, else V1."""
    variables = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "LD_PRELOAD": str(environment / "lib" / "libiomp5.so"),
        "VLLM_USE_V2_MODEL_RUNNER": "0" if runner is None else "1",
    }
    if runner is not None:
        variables |= {"TRITON_INTERPRET": "1", "PYTHONPATH": str(runner)}
    return {**os.environ, **variables}
