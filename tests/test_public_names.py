"""What programs use: the package's own example runs, and every public name is there."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import numpy as np

import ngramkit


def test_the_example_of_the_package_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = next(part for part in ngramkit.__doc__.split("\n\n") if part.startswith("    "))
    names: dict = {"ngramkit": ngramkit}
    small = textwrap.dedent(block).replace('"demo")', '"demo", limit=3)')
    exec(small, names)
    drafter = names["drafter"]
    drafter.start(np.array([5, 6], np.int32))
    drafter.draft(8).check()
    drafter.accept(np.array([7], np.int32))
    drafter.finish()
    assert (
        ngramkit.open_artifact("artifacts/mine").manifest.build == names["datastore"].manifest.build
    )


def test_every_public_name_is_there():
    for name in ngramkit.__all__:
        assert getattr(ngramkit, name) is not None
    assert set(ngramkit.__all__) <= set(dir(ngramkit))


def test_a_module_with_the_name_of_a_public_function_is_callable():
    """Its import puts the module in the function's place."""
    modules = {path.stem for path in Path(ngramkit.__file__).parent.iterdir()}
    for name in modules & set(ngramkit.__all__):
        assert callable(importlib.import_module(f"ngramkit.{name}"))
