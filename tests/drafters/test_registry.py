import inspect
import shutil
from pkgutil import resolve_name

import numpy as np
import pytest

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.options import MAX_DEPTH, MAX_OCCURRENCES, RestOptions
from ngramkit.drafters.registry import DRAFTERS, drafter_entry
from ngramkit.drafters.rest import Rest
from ngramkit.kernels.blend.counts import MAX_READ_OCCURRENCES
from ngramkit.kernels.suffix.draft_tree import MAX_DEPTHS


def test_every_entry_names_a_class():
    for entry in DRAFTERS.values():
        drafter = resolve_name(entry.home)
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
    assert "Did you mean cacheback?" in caught.value.hint


def test_rest_needs_a_datastore_cacheback_nothing():
    with pytest.raises(UsageError, match="needs a datastore"):
        load_drafter("rest")
    load_drafter("cacheback")


def test_artifacts_by_kind_are_those_by_role(token_store, tmp_path):
    datastore = build_datastore(token_store([[1, 2, 3, 1, 2, 4]], 10), tmp_path / "datastore")
    prompt, drafts = np.array([1, 2], np.int32), []
    for given in ({"datastores": [datastore]}, {"artifacts": [datastore.path]}):
        drafter = load_drafter("rest", **given)
        drafter.start(prompt)
        drafts.append(drafter.draft(8).token_ids.tolist())
    assert drafts[0] == drafts[1] != []
    with pytest.raises(UsageError, match="artifacts must be"):
        load_drafter("rest", [datastore], datastores=[datastore])


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


def test_a_datastore_given_twice_is_refused(token_store, tmp_path):
    path = tmp_path / "d"
    opened = build_datastore(token_store([[1, 2, 3]], 10), path)
    for again in (path, opened, shutil.copytree(path, tmp_path / "copy")):
        with pytest.raises(UsageError, match=r"datastores must differ, got .* twice"):
            load_drafter("rest", datastores=[path, again])
    other = build_datastore(token_store([[1, 2, 4]], 10), tmp_path / "other")
    load_drafter("rest", datastores=[path, other])


def test_options_are_the_constructors_own():
    for name, entry in DRAFTERS.items():
        home = resolve_name(entry.home)
        parameters = inspect.signature(home).parameters
        assert set(entry.sources) <= set(parameters), name
        for option in drafter_entry(name).options.listed():
            option.check(option.default)
            assert option.help
    rest = {option.name: option for option in drafter_entry("rest").options.listed()}
    assert list(rest) == ["max_match", "min_match", "continuation"]
    assert rest["continuation"].bounds == "1 to 31"
    assert rest["max_match"].bounds == "at least 1"
    assert drafter_entry("cacheback").options.listed()[2].bounds == "1 to 1,073,741,824"
    assert (rest["max_match"].type, rest["max_match"].default) == (int, 16)
    assert drafter_entry("none").options.listed() == []
    assert (MAX_DEPTH, MAX_OCCURRENCES) == (MAX_DEPTHS - 1, MAX_READ_OCCURRENCES)


def test_an_options_text_is_read_as_its_type():
    cacheback = {option.name: option for option in drafter_entry("cacheback").options.listed()}
    assert cacheback["keep"].read("yes") is True
    assert cacheback["leaders"].read("77") == 77
    least = {option.name: option for option in drafter_entry("ssd").options.listed()}["least_score"]
    assert least.read("0.25") == 0.25
    for option, text in ((cacheback["keep"], "7"), (cacheback["leaders"], "x"), (least, "nan")):
        with pytest.raises(UsageError, match=f"{option.name} must be"):
            option.read(text)


def test_a_value_out_of_bounds_or_of_another_type_says_so(token_store, tmp_path):
    datastore = build_datastore(token_store([[1, 2, 3]], 10), tmp_path / "datastore")
    for value, message in ((32, "1 to 31, got 32"), (0, "1 to 31, got 0"), (2.5, "a whole number")):
        with pytest.raises(UsageError, match=f"continuation must be {message}"):
            Rest([datastore], options=RestOptions(continuation=value))
    with pytest.raises(UsageError, match="min_match must be 1 to max_match"):
        load_drafter("rest", datastores=[datastore], min_match=9, max_match=8)
    with pytest.raises(TypeError, match=r"'max_mach'.*max_match"):
        load_drafter("rest", datastores=[datastore], max_mach=8)
    with pytest.raises(TypeError, match="'datastore'"):
        load_drafter("rest", datastore=datastore)
    for rows in (0, True, 2.0):
        with pytest.raises(UsageError, match="width must be"):
            load_drafter("context", width=rows)


def test_a_path_of_another_kind_is_refused(token_store):
    store = token_store([[1, 2, 3]], 10)
    with pytest.raises(ArtifactError, match="tokens"):
        load_drafter("rest", datastores=[store.path])
