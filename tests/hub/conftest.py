"""Command lines against the stand-in of the Hub, and artifacts to push and pull."""

from __future__ import annotations

import hub_writing  # noqa: F401 (its endpoints)
import pytest
from command_lines import run_here
from hub_datasets import TEXT
from hub_standin import TOKEN

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """A datastore of three shards and a frozen table, for the embedded tokenizer."""
    folder = tmp_path_factory.mktemp("artifacts")
    for i in range(8):
        (folder / f"{i}.txt").write_text(TEXT * (i + 1))
    store = tokenize(open_corpus(str(folder / "*.txt")), "demo", folder / "tokens")
    return {
        "datastore": build_datastore(store, folder / "datastore", shard_tokens=300).path,
        "frozen": build_frozen(store, folder / "frozen").path,
    }


@pytest.fixture
def shared(hub, tmp_path, monkeypatch):
    """Return shared(*lines, token=TOKEN), which runs command lines against the stand-in."""
    from huggingface_hub import constants

    home = tmp_path / "home"
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    url = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HOME", str(home))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.chdir(tmp_path)

    def run(*lines, token=TOKEN):
        if token is None:
            monkeypatch.delenv("HF_TOKEN", raising=False)
        else:
            monkeypatch.setenv("HF_TOKEN", token)
        return [one(list(map(str, line))) for line in lines]

    def one(line):
        return run_here(line)

    def forget():
        hub.faults.clear()
        for key in [key for key in hub.repositories if key[1].startswith("acme/our-")]:
            del hub.repositories[key]
        hub.blobs.clear()

    forget()  # what a test without this fixture has left
    yield run
    forget()
