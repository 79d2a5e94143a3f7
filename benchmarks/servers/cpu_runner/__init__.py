"""What vLLM's Model Runner V2 lacks on a CPU; `install` writes it to a folder for PYTHONPATH.

V2 needs Triton with a backend for the device. The backend "cpu" compiles nothing: with
TRITON_INTERPRET=1 kernels run in Triton's interpreter, on tensors in host memory. The general
plugin `patches` lets vLLM schedule asynchronously on a CPU. V1 must run without that folder,
because vLLM assumes that any backend "cpu" compiles.
"""

from __future__ import annotations

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
