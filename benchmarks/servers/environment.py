"""Environments of real engines: a folder with an engine's own packages, then ngramkit."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def folder_and_version(doc: str | None, version: str, words: list[str] | None) -> tuple[Path, str]:
    """Parse an installer's command line `words`, None: the process's; `version` is its default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", default=version)
    given = parser.parse_args(words)
    return given.folder, given.version


def make(folder: Path) -> Path:
    """Make an empty environment in `folder`; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def add_ngramkit(python: Path) -> str:
    """Install this repository; return what came with it.

    Raises SystemExit where a package that was there is another version now.
    """
    before = packages(python)
    pip(python, "install", "-q", str(ROOT))
    after = packages(python)
    replaced = {name: (v, after.get(name)) for name, v in before.items() if after.get(name) != v}
    replaced.pop("ngramkit", None)
    if replaced:
        raise SystemExit(f"installing ngramkit replaced {replaced}")
    return f"ngramkit replaced nothing and added: {' '.join(sorted(set(after) - set(before)))}"


def requirements(wheel: Path, skipped: re.Pattern[str]) -> list[str]:
    """Return what the wheel requires without extras, but for names that `skipped` matches."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if "Requires-Dist: " in line]
    plain = [line for line in required if "extra ==" not in line and not skipped.match(line)]
    return [line.replace("+cpu", "") for line in plain]  # indexes of CPU builds name them so


def download(python: Path, requirement: str, folder: Path) -> Path:
    pip(python, "download", "-q", "--no-deps", "--dest", str(folder), requirement)
    return next(folder.glob(f"{requirement.partition('==')[0].replace('-', '_')}-*.whl"))


def packages(python: Path) -> dict[str, str]:
    listed = pip(python, "list", "--format=json")
    return {each["name"]: each["version"] for each in json.loads(listed)}


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    printed = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return Path(printed.stdout.strip())


def pip(python: Path, *words: str) -> str:
    command: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def add_metadata(site: Path, name: str, version: str, entry_points: str = "") -> None:
    """Let `site` say that it holds the distribution `name`."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (folder / "entry_points.txt").write_text(entry_points)
