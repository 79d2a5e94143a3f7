"""Installing ngramkit behind an engine replaces none of the engine's packages."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ngramkit.builders.datastore import build_datastore
from ngramkit.engines.config import ENGINES

ROOT = Path(__file__).parents[2]
TEXT = [0, 1, 2, 3, 4, 5, 6, 7] * 3
PACKAGES = Path(__file__).parent / "packages"
ADAPTERS = [name.replace("-", "_") for name in ENGINES]
ABSENT = ("torch", "transformers", "tokenizers", "datasets", "pyarrow", "huggingface_hub", "typer")


def engine_packages(path):
    """Return the version of every package that the engine's own install brings."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), re.M)
    return {canonicalize_name(name): version for name, version in lines}


def replaced(requirements, packages):
    """Return each requirement, direct or of what is installed anew, that the packages do not meet.

    What the engine brings is settled; what it lacks is taken as it is installed here.
    """
    refused, seen, todo = [], set(), [("ngramkit", line) for line in requirements]
    while todo:
        asker, line = todo.pop()
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name in packages:
            if not requirement.specifier.contains(packages[name], prereleases=True):
                refused.append(f"{asker}: {line} (the engine has {packages[name]})")
        elif name not in seen:
            seen.add(name)
            todo += [(name, line) for line in importlib.metadata.requires(name) or ()]
    return sorted(refused)


@pytest.mark.parametrize("path", sorted(PACKAGES.glob("*.txt")), ids=lambda path: path.stem)
def test_an_engine_keeps_every_package(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = engine_packages(path)
    assert {"torch", "numba", "numpy", "transformers"} <= set(packages)
    assert replaced(project["dependencies"], packages) == []


def test_a_ceiling_below_what_an_engine_has_is_found():
    packages = engine_packages(PACKAGES / "vllm-0.33.0.txt")
    torch = packages["torch"]
    found = replaced([f"torch<{torch}", "datasets>=4", "numpy>=2"], packages)
    assert found == [f"ngramkit: torch<{torch} (the engine has {torch})"]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_drafts_without_what_an_engine_may_lack(adapter, token_store, tmp_path):
    build_datastore(token_store([TEXT], vocabulary=12), tmp_path / "chat")
    code = (
        f"import sys; sys.modules |= dict.fromkeys({ABSENT})\n"
        f"import ngramkit.engines.{adapter}\n"
        "from ngramkit.engines.batch import BatchDrafter\n"
        "from ngramkit.engines.config import DraftConfig\n"
        f"config = DraftConfig(datastores=({str(tmp_path / 'chat')!r},), min_probability=0.01)\n"
        "drafter = BatchDrafter.open(config, vocabulary=12)\n"
        f"[chain] = drafter.chain_batch([{TEXT[:4]}], [3])\n"
        f"assert chain.token_ids.tolist() == {TEXT[4:7]}, chain"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
