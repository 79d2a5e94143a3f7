import numpy as np
import pytest

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters import DRAFTERS, drafter_entry, load_drafter
from ngramkit.errors import ArtifactError, UsageError


def test_every_entry_names_a_class():
    import importlib

    for entry in DRAFTERS.values():
        drafter = getattr(importlib.import_module(entry.home), entry.class_name)
        for method in ("start", "draft", "accept", "finish"):
            assert callable(getattr(drafter, method))


def test_none_never_drafts():
    drafter = load_drafter("none")
    drafter.start(np.array([1, 2], np.int32))
    drafter.accept(np.array([3], np.int32))
    assert len(drafter.draft(64)) == 0


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageError, match="cachback") as caught:
        drafter_entry("cachback")
    assert "did you mean cacheback?" in caught.value.hint


def test_rest_needs_a_datastore_cacheback_nothing():
    with pytest.raises(UsageError, match="needs a datastore"):
        load_drafter("rest")
    load_drafter("cacheback")


def test_artifacts_by_path_or_opened(token_store, tmp_path):
    store = token_store([[1, 2, 3, 1, 2, 4]], 10)
    datastore = build_datastore(store, tmp_path / "datastore")
    for given in (datastore, tmp_path / "datastore", str(tmp_path / "datastore")):
        drafter = load_drafter("rest", datastores=[given], max_match=4)
        drafter.start(np.array([9, 1, 2], np.int32))
        assert {3, 4} <= set(drafter.draft(8).token_ids.tolist())


def test_two_tokenizers_do_not_mix(token_store, tmp_path):
    paths = []
    for vocabulary in (10, 20):
        paths.append(tmp_path / str(vocabulary))
        build_datastore(token_store([[1, 2, 3]], vocabulary), paths[-1])
    with pytest.raises(ArtifactError, match="tokenizer"):
        load_drafter("rest", datastores=paths)


def test_a_path_of_another_kind_is_refused(token_store):
    store = token_store([[1, 2, 3]], 10)
    with pytest.raises(ArtifactError, match="tokens"):
        load_drafter("rest", datastores=[store.path])
