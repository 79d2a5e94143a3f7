"""Fixtures that several parts share. Nothing here or below touches the network beyond loopback."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path

import environment  # noqa: F401 (before anything imports numba or torch)
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore

# No test fails because the machine is slow, or by chance: its examples are always the same.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz", settings.get_profile("suite"), derandomize=False, max_examples=200
)
settings.load_profile("fuzz" if "NGRAMKIT_FUZZ" in os.environ else "suite")
if "NGRAMKIT_FUZZ" not in os.environ:
    # Else examples hold constants of the modules that tests before this one happened to import.
    providers._get_local_constants = lambda: providers._local_constants

os.fsync = lambda file: None  # no test cuts the power

TESTS = Path(__file__).parent
# Files that take longest, begun first, so that no process ends long after the others.
LONGEST = (
    "attacks/test_kills.py", "attacks/test_mutated_artifacts.py", "decode/test_lossless_matrix.py",
    "test_warming.py", "test_printed_commands.py", "ggufs/test_real_model.py",
    "corpus/test_hub_corpora.py", "test_examples.py",
)  # fmt: skip


gc.set_threshold(100_000, 50, 100)  # a tenth of the suite's time was garbage collection


def pytest_collection_finish():
    """Spare the collector the modules, which stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.relative_to(TESTS).as_posix()
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def own_folder(tmp_path_factory):
    """No test works in the checkout: what one left in artifacts/ would be taken by default."""
    with contextlib.chdir(tmp_path_factory.mktemp("working")):
        yield


@pytest.fixture(scope="session")
def token_store(tmp_path_factory):
    """token_store(documents, vocabulary, per_shard=..., eos=...) -> TokenStore, without text.

    `record` is a TokenizerRecord to use instead of one made up for `vocabulary`.
    """

    def build(documents, vocabulary=0, *, per_shard=1000, eos=None, record=None, corpus=None):
        made_up = TokenizerRecord(f"none-{vocabulary}", vocabulary, f"f{vocabulary}", eos)
        record = record or made_up
        vocabulary = record.vocabulary
        path = tmp_path_factory.mktemp("tokens") / "store"
        plan = {"documents": [list(map(int, d)) for d in documents], "per_shard": per_shard}
        with ArtifactWriter(path, "tokens", plan) as writer:
            for i, begin in enumerate(range(0, max(len(documents), 1), per_shard)):
                held = documents[begin : begin + per_shard]
                ends = np.cumsum([0, *map(len, held)]).astype(np.uint64)
                tokens = np.array([t for d in held for t in d], token_dtype(vocabulary))
                writer.write(f"shard-{i:05d}.safetensors", {"tokens": tokens, "documents": ends})
            counts = {"documents": len(documents), "tokens": sum(map(len, documents))}
            writer.commit(
                record, parameters={}, corpus={"id": "made-up", **(corpus or {})}, counts=counts
            )
        return TokenStore.open(path)

    return build


@pytest.fixture(scope="session")
def hub():
    """A Hub on loopback with small datasets in the real layouts; see hub_standin.py."""
    from hub_datasets import add_all
    from hub_standin import HubStandIn

    with HubStandIn() as standin:
        add_all(standin)
        yield standin


@pytest.fixture
def ngramkit_cli(tmp_path):
    """ngramkit_cli(["tokenize", ...], ..., env={}) -> results, one per command line.

    All run in one process of their own, in a folder of their own: start-up is paid once.
    """
    from command_lines import run_all

    return lambda *lines, env=None: run_all(lines, tmp_path, env or {})


def pytest_sessionfinish():
    import attacks

    attacks.leave()
