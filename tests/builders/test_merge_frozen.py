"""Frozen tables merged by ranges of leaders: the same table however it is cut, and by whomever."""

from __future__ import annotations

import shutil
from unittest import mock

import numpy as np
import pytest
from elsewhere import Elsewhere, contents
from hypothesis import HealthCheck, given, settings, strategies as st
from reporters import Notes
from twins import kernels as reference

from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.builders import frozen
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import TableFile, add_leaders, merge, row_bytes
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.resumable_writer import ArtifactWriter

QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def spelled(table):
    """{leader: (count, [(follower, count), ...])} in order."""
    ends = table.follower_offsets.tolist()
    pairs = list(zip(map(tuple, table.followers.tolist()), table.follower_counts.tolist(),
                     strict=True))  # fmt: skip
    return {
        tuple(leader): (count, pairs[ends[row] : ends[row + 1]])
        for row, (leader, count) in enumerate(
            zip(table.leaders.tolist(), table.leader_counts.tolist(), strict=True)
        )
    }


@st.composite
def corpora(draw):
    """Two or three corpora, and how tables of them are cut down: of each, so that counts differ."""
    vocabulary = draw(st.sampled_from([2, 1000, 65536, 1 << 20]))
    used = [*draw(st.lists(st.integers(0, vocabulary - 1), max_size=3)), vocabulary - 1]
    document = st.lists(st.sampled_from(used), min_size=12, max_size=30)
    corpus = st.lists(document, min_size=1, max_size=4)
    made = draw(st.lists(corpus, min_size=2, max_size=3, unique_by=repr))
    lengths = {"leader_len": draw(st.integers(1, 4)), "follower_len": draw(st.integers(1, 8))}
    cuts = st.fixed_dictionaries(
        {"leaders": st.sampled_from([1, 2, 5, 1 << 20]), "followers": st.sampled_from([1, 2, 128])}
    )
    return vocabulary, [(each, {**lengths, **draw(cuts)}) for each in made]


def test_a_merge_of_tables_of_sessions_is_limited(token_store, tmp_path):
    facts = {"id": "projects", "format": "sessions"}
    stores = [token_store([[n, 1, 2, 3, 4]], 6, corpus=facts) for n in range(2)]
    parts = [build_frozen(each, tmp_path / str(n), leaders=2) for n, each in enumerate(stores)]
    merged = merge(parts, tmp_path / "merged")
    assert (merged.parameter("leaders"), len(merged.leaders)) == (2, 2)


@QUICK
@given(corpora())
def test_any_ranges_give_the_table_of_the_definition(tmp_path_factory, token_store, made):
    vocabulary, parts = made
    out = tmp_path_factory.mktemp("merged")
    tables = [
        build_frozen(token_store(corpus, vocabulary), out / str(number), **cut)
        for number, (corpus, cut) in enumerate(parts)
    ]
    most = [max(cut[name] for _, cut in parts) for name in ("leaders", "followers")]
    wanted = reference.merged_tables(
        [{leader: (count, dict(pairs)) for leader, (count, pairs) in spelled(table).items()}
         for table in tables], *most
    )  # fmt: skip
    rows = sum(len(table.followers) for table in tables)
    length = tables[0].leader_len + tables[0].follower_len
    bytes_of = []
    with mock.patch.object(frozen, "MIN_MEMORY", 1):
        for ranges, executor in ((1, "local"), (2, Elsewhere(2)), (5, "local"), (5, Elsewhere(5))):
            memory = -(-rows // ranges) * row_bytes(vocabulary, length)
            merged = merge(tables, out / f"m{len(bytes_of)}", memory=memory, executor=executor)
            bytes_of.append(contents(merged.path))
    assert list(verify_checksums_and_values(merged))
    assert list(spelled(merged).items()) == list(wanted.items())
    assert all(each == bytes_of[0] for each in bytes_of)


@pytest.fixture
def tables(tmp_path, token_store):
    draw = np.random.default_rng(4)
    corpora = [[draw.integers(0, 40, 300).tolist()] for _ in range(3)]
    return [
        build_frozen(token_store(corpus, 40), tmp_path / f"t{i}", leader_len=2, follower_len=2)
        for i, corpus in enumerate(corpora)
    ]


@pytest.mark.parametrize("most", [400, 180])
def test_ranges_are_said_and_resumed(tmp_path, tables, most):
    whole, notes, memory = merge(tables, tmp_path / "whole"), Notes(), most * row_bytes(40, 4)
    with mock.patch.object(frozen, "MIN_MEMORY", 1):
        merge(tables, tmp_path / "ray", memory=memory, executor=(run := Elsewhere()),
              reporter=notes)  # fmt: skip
        assert len(run.ran) == -(-sum(len(t.followers) for t in tables) // most)
        assert notes.lines == [f"added in {len(run.ran)} ranges of leaders, 0 MiB each"]
        for after in range(len(run.ran)):
            killed, again = Elsewhere(1, dies_after=after), Elsewhere(2)
            out = tmp_path / f"killed-{after}"
            with pytest.raises(KeyboardInterrupt):
                merge(tables, out, memory=memory, executor=killed)
            merged = merge(tables, out, memory=memory, executor=again)
            assert sorted(killed.ran + again.ran) == sorted(run.ran)
            assert contents(merged.path) == contents(whole.path)


def test_another_memory_starts_the_ranges_over(tmp_path, tables):
    whole = merge(tables, tmp_path / "whole")
    with mock.patch.object(frozen, "MIN_MEMORY", 1):
        with pytest.raises(KeyboardInterrupt):
            merge(tables, tmp_path / "out", memory=20_000, executor=Elsewhere(dies_after=2))
        merged = merge(tables, tmp_path / "out", memory=60_000, executor=Elsewhere())
    assert contents(merged.path) == contents(whole.path)


def test_a_node_that_sees_another_table_refuses_it(tmp_path, tables):
    wanted = frozen.FrozenParameters(2, 100, 2, 100)
    parts = [TableFile(str(t.path), t.manifest.files["table.safetensors"].sha256) for t in tables]
    other = tables[1].path
    shutil.rmtree(other)
    shutil.copytree(tables[2].path, other)
    with pytest.raises(ArtifactError, match="not the table that was opened before"):
        add_leaders(parts, (None, None), wanted, str(tmp_path), "piece")
    with (other / "table.safetensors").open("ab") as file:
        file.write(b"more")
    parts[1] = parts[2]._replace(folder=str(other))
    with pytest.raises(ArtifactError, match="the manifest lists"):
        add_leaders(parts, (None, None), wanted, str(tmp_path), "piece")


def test_tables_without_a_leader_give_none(tmp_path, tables):
    made = []
    for number in range(2):
        with ArtifactWriter(tmp_path / f"e{number}", "frozen-table", {"number": number}) as writer:
            writer.write(
                "table.safetensors",
                {name: array[:1] if name == "follower_offsets" else array[:0]
                 for name, array in tables[0].table.items()},
            )  # fmt: skip
            path = writer.commit(
                tables[0].tokenizer, parameters=tables[0].manifest.parameters, corpus={},
                counts={"leaders": 0, "followers": 0},
            )  # fmt: skip
        made.append(FrozenTable.open(path))
    with pytest.raises(InputError, match="leaders"):
        merge(made, tmp_path / "out")
    assert spelled(merge([made[0], tables[0]], tmp_path / "one")) == spelled(tables[0])


def test_memory_is_for_frozen_tables(tmp_path, tables, token_store):
    from ngramkit.builders.datastore import build_datastore

    with pytest.raises(UsageError, match="memory must be at least 1"):
        merge(tables, tmp_path / "out", memory=0)
    stores = [build_datastore(token_store([[n]], 6), tmp_path / f"d{n}") for n in range(2)]
    with pytest.raises(UsageError, match="memory"):
        merge(stores, tmp_path / "out", memory=1 << 20)
    assert not (tmp_path / "out").exists()
