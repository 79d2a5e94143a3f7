import re

import numpy as np
import pytest
from attacks.crafted import craft, sign
from hypothesis import given, settings, strategies as st
from twins.kernels import suffix_array

from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.builders import datastore as module
from ngramkit.builders.datastore import build_datastore, possible_plans
from ngramkit.builders.frozen import build_frozen
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.datastore import Datastore
from ngramkit.kernels.suffix import sort
from ngramkit.kernels.suffix.sort import sort_shard


def spelled(shard, separator):
    """The shard's documents, as lists."""
    found, document = [], []
    for token in shard.tokens.tolist():
        if token == separator:
            found.append(document)
            document = []
        else:
            document.append(token)
    assert not document
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.sampled_from([7, 0xFFFF, 0x10000, 200_000]),
    st.booleans(),
)
def test_a_shard_is_sorted_as_the_naive_twin_sorts(values, vocabulary, wide):
    scale = (vocabulary - 1) // 6
    tokens = np.array([*(v * scale for v in values), vocabulary])
    arrays = sort_shard(
        tokens.astype(np.uint16 if vocabulary <= 0xFFFF else np.uint32), vocabulary, wide=wide
    )
    assert arrays["suffix_array"].dtype == np.int32
    assert arrays["suffix_array"].tolist() == suffix_array(tokens.tolist())
    below = [sum(token < t for token in tokens.tolist()) for t in (0, 1, scale, vocabulary + 1)]
    assert arrays["first_token"][[0, 1, scale, vocabulary + 1]].tolist() == below
    assert len(arrays["first_token"]) == vocabulary + 2


def test_the_bytes_of_positions_are_not_copied():
    arrays = sort_shard(np.array([1, 2, 1, 3], np.uint16), 3)
    buffer = arrays["suffix_array"].base
    assert buffer is not None
    assert np.shares_memory(arrays["suffix_array"], np.asarray(buffer))


@pytest.mark.parametrize("vocabulary", [40, 70_000])
def test_documents_of_every_kind_come_back_whole(tmp_path, token_store, vocabulary):
    top = vocabulary - 1
    documents = [[1, 2, 3], [], [top], [1, 2, 3], [], [], [5] * 9, [top, 0]]
    built = build_datastore(token_store(documents, vocabulary), tmp_path / "d")
    [shard] = built.shards
    assert spelled(shard, vocabulary) == documents
    assert shard.tokens.dtype == (np.uint16 if vocabulary <= 0xFFFF else np.uint32)
    assert shard.suffix_array.tolist() == suffix_array(shard.tokens.tolist())
    assert built.manifest.counts == {"documents": 8, "tokens": 18}
    assert "counts" in list(verify_checksums_and_values(built))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=25), st.integers(2, 40))
def test_shards_hold_whole_documents_and_long_ones_are_cut(lengths, fill):
    ends = np.cumsum(np.array(lengths) + 1)
    pieces = list(module.shard_spans(ends, fill))
    assert pieces[0].begin == 0
    assert pieces[-1].end == ends[-1]
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        assert following is None or following.begin == piece.end
        assert 0 < piece.end - piece.begin + piece.cut <= fill + fill // 8
        assert piece.cut == (piece.end not in ends)
        if piece.cut:
            inside = ends[(ends > piece.begin) & (ends < piece.end)]
            assert len(inside) == 0


def test_many_shards_over_many_token_shards_hold_every_document(tmp_path, token_store):
    generator = np.random.default_rng(3)
    documents = [generator.integers(0, 50, n).tolist() for n in generator.integers(0, 20, 120)]
    store = token_store(documents, 50, per_shard=7)
    built = build_datastore(store, tmp_path / "d", shard_tokens=100, workers=3)
    assert len(built.shards) > 5
    assert [d for shard in built.shards for d in spelled(shard, 50)] == documents
    for shard in built.shards:
        assert shard.suffix_array.tolist() == suffix_array(shard.tokens.tolist())
    list(verify_checksums_and_values(built))


def test_a_document_longer_than_a_shard_is_cut_into_pieces(tmp_path, token_store):
    long = list(range(40)) * 3
    built = build_datastore(token_store([[1], long, [2]], 50), tmp_path / "d", shard_tokens=50)
    pieces = [d for shard in built.shards for d in spelled(shard, 50)]
    assert [t for piece in pieces for t in piece] == [1, *long, 2]
    assert len(pieces) > 3
    list(verify_checksums_and_values(built))


@pytest.mark.parametrize("documents", [[], [[]], [[], [], []]])
def test_nothing_to_index_is_an_error(tmp_path, token_store, documents):
    with pytest.raises(InputError, match="has no tokens"):
        build_datastore(token_store(documents, 10), tmp_path / "d")
    assert not list(tmp_path.glob("d*"))


def test_a_shard_below_two_tokens_is_refused(tmp_path, token_store):
    with pytest.raises(UsageError, match="shard_tokens must be at least 2"):
        build_datastore(token_store([[1, 2]], 10), tmp_path / "d", shard_tokens=1)


def test_workers_do_not_change_the_bytes_and_a_second_build_is_free(tmp_path, token_store):
    generator = np.random.default_rng(1)
    documents = [generator.integers(0, 50, 30).tolist() for _ in range(40)]
    store = token_store(documents, 50)
    for name, workers in (("a", 1), ("b", 4)):
        build_datastore(store, tmp_path / name, shard_tokens=200, workers=workers)
    files = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()}
    assert files == {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}

    stamp = (tmp_path / "a" / "manifest.json").stat().st_mtime_ns
    build_datastore(store, tmp_path / "a", shard_tokens=200)
    assert (tmp_path / "a" / "manifest.json").stat().st_mtime_ns == stamp
    with pytest.raises(UsageError, match="exists"):
        build_datastore(store, tmp_path / "a", shard_tokens=300)
    build_datastore(store, tmp_path / "a", shard_tokens=300, force=True)


def test_finished_shards_are_kept_over_a_failure(tmp_path, token_store, monkeypatch):
    documents = [[i % 7] * 30 for i in range(40)]
    store = token_store(documents, 50)
    whole = build_datastore(store, tmp_path / "whole", shard_tokens=200, workers=1)
    real, sorted_shards = sort.sort_shard, []

    def failing(tokens, separator):
        if len(sorted_shards) == 3:
            raise MemoryError
        sorted_shards.append(len(tokens))
        return real(tokens, separator)

    monkeypatch.setattr(sort, "sort_shard", failing)
    with pytest.raises(MemoryError) as failed:
        build_datastore(store, tmp_path / "d", shard_tokens=200, workers=1)
    assert [note.split(":")[0] for note in failed.value.__notes__] == [
        f"kept in {tmp_path}/d.partial"
    ]
    assert not (tmp_path / "d").exists()
    sorted_shards.clear()
    monkeypatch.setattr(sort, "sort_shard", lambda t, s: sorted_shards.append(1) or real(t, s))
    build_datastore(store, tmp_path / "d", shard_tokens=200, workers=1)
    assert len(sorted_shards) == len(whole.shards) - 3
    assert {p.name: p.read_bytes() for p in (tmp_path / "d").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir()
    }


@pytest.mark.parametrize(
    ("build", "step"),
    [(build_datastore, "datastore._write_suffix_arrays"), (build_frozen, "frozen._pieces")],
)
def test_what_ends_a_build_from_text_is_told_where_its_tokens_are(
    build, step, tmp_path, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(f"ngramkit.builders.{step}", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            build(["some text of a few words"], "out", model="demo")
    told = re.fullmatch(r"the tokens are kept in (\S+): .*", stopped.value.__notes__[-1])
    assert (tmp_path / told[1] / "manifest.json").exists()
    assert build(told[1], "out").manifest.counts["documents"] == 1


def test_the_default_shard_follows_memory_in_powers_of_two():
    def tokens_per_shard(memory, workers):
        plans = possible_plans("store", 1 << 40, None, memory, workers)
        return plans[0]["parameters"]["shard_tokens"]

    assert tokens_per_shard(16 << 30, 2) == 1 << 27
    assert tokens_per_shard(3 << 30, 2) == 1 << 26
    assert tokens_per_shard((3 << 30) + 12345, 2) == 1 << 26
    assert tokens_per_shard(1, 64) == 1 << 16


def damage(path, array, change):
    """Writes a datastore's only shard again with one array changed, and a manifest that fits."""
    craft(path, lambda arrays: arrays.update({array: change(arrays[array])}))


def swapped(values):
    values[[3, 4]] = values[[4, 3]]
    return values


def with_value(index, value):
    def change(values):
        values[index] = value
        return values

    return change


@pytest.mark.parametrize(
    ("array", "change", "breach"),
    [
        ("suffix_array", swapped, "out of order"),
        ("suffix_array", with_value(2, 1000), "not a position"),
        ("suffix_array", with_value(2, -1), "not a position"),
        ("suffix_array", lambda v: np.repeat(v[:1], len(v)), "not a position"),
        ("suffix_array", lambda v: v[1:], "another length"),
        ("suffix_array", lambda v: v.astype(np.float32), "no 'suffix_array'"),
        ("first_token", with_value(2, 0), "miscounts"),
        ("first_token", lambda v: v[1:], "first_token"),
        ("tokens", with_value(0, 21), "outside the vocabulary"),
        ("tokens", with_value(-1, 3), "end with a separator"),
        ("tokens", lambda v: v.astype(np.uint32), "ids are not uint16"),
    ],
)
def test_check_names_the_breach(tmp_path, token_store, array, change, breach):
    path = tmp_path / "d"
    build_datastore(token_store([[1, 2, 3, 1, 2], [2, 2, 3]], 20), path)
    list(verify_checksums_and_values(Datastore.open(path)))
    damage(path, array, change)
    with pytest.raises(ArtifactError, match=breach):
        Datastore.open(path)


def test_check_compares_with_the_counts(tmp_path, token_store):
    build_datastore(token_store([[1, 2, 3]], 20), tmp_path / "d")
    path = tmp_path / "d" / "manifest.json"
    whole = path.read_text()
    for count in ("tokens", "documents"):
        path.write_text(whole)
        sign(path.parent, lambda body, count=count: body["counts"].update({count: 4}))
        with pytest.raises(ArtifactError, match=count):
            Datastore.open(tmp_path / "d")


def test_another_amount_of_free_memory_does_not_undo_a_build(tmp_path, token_store, monkeypatch):
    generator = np.random.default_rng(1)
    store = token_store([generator.integers(0, 50, 40_000) for _ in range(4)], 50)
    path, little, plenty = tmp_path / "d", 1, 1 << 34
    real = sort.sort_shard

    def interrupted(tokens, separator):
        if list(path.with_name("d.partial").glob("shard-*")):
            raise KeyboardInterrupt
        return real(tokens, separator)

    monkeypatch.setattr(sort, "sort_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_datastore(store, path, memory=little, workers=1)
    monkeypatch.setattr(sort, "sort_shard", real)
    assert len(build_datastore(store, path, memory=plenty).shards) == 4
    assert len(build_datastore(store, path, memory=plenty).shards) == 4
    assert (
        len(build_datastore(store, path, memory=plenty, shard_tokens=1 << 20, force=True).shards)
        == 1
    )
    assert len(build_datastore(store, path, memory=little).shards) == 1
