"""The frozen table against a Counter, over vocabularies, lengths, memories and workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from twins import cacheback as reference_cacheback

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders import frozen, windows
from ngramkit.builders.frozen import FrozenParameters, build_frozen, count_pieces, whole_table
from ngramkit.builders.windows import Windows
from ngramkit.formats.artifact import verify_checksums_and_values

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VOCABULARIES = [2, 3, 1000, 65535, 65536, 128256, 1 << 20]


def as_dict(leaders, counts, sizes, followers, follower_counts):
    ends = np.cumsum(sizes)
    return {
        tuple(leader.tolist()): (
            int(count),
            [
                (tuple(f.tolist()), int(c))
                for f, c in zip(followers[e - n : e], follower_counts[e - n : e], strict=True)
            ],
        )
        for leader, count, n, e in zip(leaders, counts, sizes, ends, strict=True)
    }


@st.composite
def corpora(draw):
    vocabulary = draw(st.sampled_from(VOCABULARIES))
    ids = st.integers(0, vocabulary - 1)
    used = [*draw(st.lists(ids, min_size=1, max_size=4)), vocabulary - 1]
    document = st.lists(st.sampled_from(used), max_size=40)
    return vocabulary, draw(st.lists(document, min_size=1, max_size=6))


@QUICK
@given(
    corpora(),
    st.integers(1, 4),
    st.integers(1, 8),
    st.sampled_from([1, 2, 1 << 20]),
    st.sampled_from([1, 2, 128]),
    st.sampled_from([1, 2000, 20_000, 1 << 30]),
    st.integers(1, 3),
    st.integers(1, 6),
)
def test_equals_a_counter_in_any_memory(
    token_store, corpus, leader_len, follower_len, leaders, followers, memory, workers, per_shard
):
    vocabulary, documents = corpus
    store = token_store(documents, vocabulary, per_shard=per_shard)
    lengths = leader_len, leaders, follower_len, followers
    expected = reference_cacheback.frozen_table(documents, *lengths)
    wanted = FrozenParameters(leader_len, leaders, follower_len, followers)
    made = Windows(store, wanted.length, memory, workers)
    if not expected:
        with pytest.raises(InputError, match="no document has"):
            whole_table(count_pieces(made, wanted), wanted)
        return
    table = whole_table(count_pieces(made, wanted), wanted)
    found = as_dict(
        table.leaders, table.counts, table.sizes, table.followers, table.follower_counts
    )
    assert found == expected
    assert list(found) == list(expected)


@QUICK
@given(corpora(), st.integers(2, 7), st.sampled_from([1, 5000, 1 << 30]))
def test_runs_are_all_windows_in_order(token_store, corpus, length, memory):
    vocabulary, documents = corpus
    made = Windows(token_store(documents, vocabulary), length, memory, 2)
    found = []
    for runs in made.runs():
        part = runs.partition
        rows = windows_of(runs, made)
        assert sum(runs.counts) == part.windows
        found += list(zip(map(tuple, rows.tolist()), runs.counts.tolist(), strict=True))
    expected = reference_cacheback.frozen_table(documents, length - 1, 1 << 30, 1, 1 << 30)
    flat = {(*leader, *f): n for leader, (_, fs) in expected.items() for f, n in fs}
    assert found == sorted(flat.items())


def windows_of(runs, made):
    from ngramkit.kernels.counting import unpack_windows

    prefix = np.array(runs.partition.prefix, np.int64)
    rows, base = np.arange(len(runs.keys)), np.uint64(runs.partition.low)
    return unpack_windows(runs.keys, rows, made.bits, base, prefix, made.length)


def test_the_artifact_holds_the_table_and_finds_its_leaders(token_store, tmp_path):
    documents = [[1, 2, 3, 1, 2, 3, 1, 2, 4], [5], [], [1, 2, 3]]
    store = token_store(documents, 10)
    table = build_frozen(store, tmp_path / "t", leader_len=1, follower_len=2, followers=1)
    sizes = np.diff(table.follower_offsets.astype(np.int64))
    found = as_dict(
        table.leaders, table.leader_counts, sizes, table.followers, table.follower_counts
    )
    assert found == {
        (1,): (4, [((2, 3), 3)]),
        (2,): (2, [((3, 1), 2)]),
        (3,): (2, [((1, 2), 2)]),
    }
    assert table.followers[table.lookup([2])].tolist() == [[3, 1]]
    assert table.find([4]) == -1
    assert table.find([1, 2]) == -1
    assert table.find([-1]) == -1
    assert table.manifest.counts == {"documents": 4, "tokens": 13, "leaders": 3, "followers": 3}
    assert len(list(verify_checksums_and_values(table))) == 7


def test_memory_and_workers_do_not_change_a_byte(token_store, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    documents = [random.integers(0, 9, 500).tolist() for _ in range(8)]
    store = token_store(documents, 70_000, per_shard=3)
    monkeypatch.setattr(frozen, "MIN_MEMORY", 1)
    monkeypatch.setattr(windows, "CACHED_ROWS", 100)
    made = [
        build_frozen(store, tmp_path / str(i), leader_len=2, leaders=40, memory=m, workers=w)
        for i, (m, w) in enumerate([(1 << 30, 1), (1 << 14, 3), (1 << 18, 2)])
    ]
    files = [{f.name: f.read_bytes() for f in table.path.iterdir()} for table in made]
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"leader_len": 0},
        {"leader_len": 5},
        {"follower_len": 0},
        {"follower_len": 9},
        {"leaders": 0},
        {"followers": 0},
        {"memory": -1},
    ],
)
def test_refuses_what_makes_no_table(token_store, tmp_path, wrong):
    with pytest.raises(UsageError):
        build_frozen(token_store([[1] * 20], 4), tmp_path / "t", **wrong)
    assert not list(tmp_path.glob("t*"))


def test_says_that_it_is_up_to_date_and_refuses_to_overwrite(token_store, tmp_path):
    store = token_store([[1, 2, 3, 4, 5]], 9)
    build_frozen(store, tmp_path / "t")
    again = build_frozen(store, tmp_path / "t")
    assert again.manifest.counts["leaders"] == 2
    with pytest.raises(UsageError, match="exists"):
        build_frozen(store, tmp_path / "t", follower_len=2)
    assert build_frozen(store, tmp_path / "t", follower_len=2, force=True).follower_len == 2


def test_an_option_of_text_is_refused_for_tokens(token_store, tmp_path):
    with pytest.raises(UsageError, match="split"):
        build_frozen(token_store([[1, 2, 3, 4]], 9), tmp_path / "t", split="train")
    with pytest.raises(TypeError, match="leeders"):
        build_frozen("python-stdlib", tmp_path / "t", leeders=3)
