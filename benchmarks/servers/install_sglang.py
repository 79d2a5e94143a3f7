"""An environment in which a real SGLang serves on a CPU, from the package index only.

    python -m benchmarks.servers.install_sglang FOLDER [--version 0.5.23]

SGLang's released wheel is Python, and its kernels are packages for GPUs. The packages that it
imports on a CPU are installed first, with the torch that it pins (the CPU build if the index has
one). `benchmarks.servers.sglang_kernels`, written in torch, replaces its kernels. Then ngramkit is
installed, which must change no other package. 8 GB if torch comes with CUDA.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from benchmarks.servers.environment import (
    add_metadata,
    add_ngramkit,
    download,
    folder_and_version,
    make,
    pip,
    requirements,
    site_packages,
)

STAND_IN = Path(__file__).with_name("sglang_kernels.py")
# Kernels and tools for GPUs, and sound.
SKIPPED = re.compile(
    r"(cuda-python|flash-attn|flashinfer|humming|nvidia-cutlass|nvidia-mathdx|nvshmem4py|quack"
    r"|sgl-|sglang-kernel|tilelang|torch_memory_saver|torchaudio|torchcodec)"
)


def main(words: list[str] | None = None) -> None:
    """Make the environment, and say which packages ngramkit added to it."""
    folder, version = folder_and_version(__doc__, "0.5.23", words)
    python = folder / "bin" / "python"
    if not python.exists():
        install_sglang(make(folder), version)
    place_kernels(site_packages(python))
    print(f"SGLang {version} in {folder}; {add_ngramkit(python)}")


def install_sglang(python: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel = download(python, f"sglang=={version}", Path(scratch))
        pip(python, "install", "-q", *requirements(wheel, SKIPPED))
        pip(python, "install", "-q", "--no-deps", str(wheel))


def place_kernels(site: Path) -> None:
    """Put the stand-in where SGLang imports its kernels from, as a plugin of SGLang's too."""
    package = site / "sgl_kernel"
    package.mkdir(exist_ok=True)
    shutil.copyfile(STAND_IN, package / "__init__.py")
    entry = "[sglang.srt.plugins]\nsgl_kernel = sgl_kernel:plugin\n"
    add_metadata(site, "sgl-kernel-stand-in", "0", entry)


if __name__ == "__main__":
    main()
