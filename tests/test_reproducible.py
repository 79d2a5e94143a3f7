"""Same inputs, same bytes: in any folder, with any number of workers."""

from __future__ import annotations

import pytest

import ngramkit
from ngramkit.corpus.open import open_corpus


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Two folders of artifacts of the same corpus, built with different means."""
    found = []
    for workers, memory in [(1, 1 << 30), (3, 1 << 28)]:
        out = tmp_path_factory.mktemp("build")
        corpus = open_corpus("python-stdlib", limit=60)
        store = ngramkit.tokenize(corpus, "demo", out / "tokens", workers=workers)
        ngramkit.build_datastore(
            store, out / "datastore", shard_tokens=50_000, workers=workers, memory=memory
        )
        ngramkit.build_frozen(store, out / "frozen", leaders=900, followers=9, memory=memory)
        found.append(out)
    return found


@pytest.mark.parametrize("kind", ["tokens", "datastore", "frozen"])
def test_two_builds_are_equal_to_the_byte(builds, kind):
    one, other = (
        {path.name: path.read_bytes() for path in (out / kind).iterdir()} for out in builds
    )
    assert one == other
    assert {"manifest.json", "README.md"} < set(one)


def test_the_datastore_had_shards_to_sort_in_parallel(builds):
    assert len(ngramkit.open_artifact(builds[0] / "datastore").manifest.files) > 2


def test_the_seed_and_nothing_else_changes_a_sample(tmp_path):
    def tokens(name, **options):
        corpus = open_corpus("python-stdlib", sample=0.05, **options)
        store = ngramkit.tokenize(corpus, "demo", tmp_path / name)
        return [document.tolist() for document in store.documents()]

    assert tokens("one") == tokens("again")
    assert tokens("one") != tokens("other", seed=1)
