"""Builds whose tasks share no memory give the bytes of a build on one machine, and resume."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from elsewhere import Elsewhere, contents
from hypothesis import HealthCheck, given, settings, strategies as st

from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.basics.progress import Reporter
from ngramkit.builders import frozen
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge, most_frequent_followers_of_rows, sum_rows
from ngramkit.builders.tasks import Local, require_shared
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.resumable_writer import ArtifactWriter

QUICK = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def documents(seed, count=40, ids=6, longest=30):
    draw = np.random.default_rng(seed)
    return [draw.integers(0, ids, draw.integers(0, longest)).tolist() for _ in range(count)]


class Listening(Reporter):
    def __init__(self):
        self.counts, self.notes = [], []

    def advance(self, amount, **counts):
        self.counts.append(counts)

    def note(self, text):
        self.notes.append(text)


@pytest.mark.parametrize("per_shard", [1, 7, 1000])
@pytest.mark.parametrize("fill", [20, 90])
def test_a_datastore_has_the_same_bytes(tmp_path, token_store, per_shard, fill):
    store = token_store([*documents(1, 15), [3] * 100, []], 6, per_shard=per_shard)
    here = build_datastore(store, tmp_path / "here", shard_tokens=fill)
    there = build_datastore(store, tmp_path / "there", shard_tokens=fill, executor=Elsewhere())
    assert contents(there.path) == contents(here.path)
    assert list(verify_checksums_and_values(there))


@st.composite
def tables(draw):
    vocabulary = draw(st.sampled_from([2, 1000, 65536, 1 << 20]))
    used = [*draw(st.lists(st.integers(0, vocabulary - 1), max_size=3)), vocabulary - 1]
    corpus = draw(st.lists(st.lists(st.sampled_from(used), max_size=30), min_size=1, max_size=5))
    options = {
        "leader_len": draw(st.integers(1, 4)),
        "leaders": draw(st.sampled_from([1, 2, 1 << 20])),
        "follower_len": draw(st.integers(1, 8)),
        "followers": draw(st.sampled_from([1, 2, 128])),
    }
    return vocabulary, corpus, options


@QUICK
@given(tables(), st.sampled_from([4000, 40_000, 1 << 20]), st.integers(1, 6))
def test_a_frozen_table_has_the_same_bytes(tmp_path_factory, token_store, made, memory, per_shard):
    vocabulary, corpus, options = made
    store, out = token_store(corpus, vocabulary, per_shard=per_shard), tmp_path_factory.mktemp("t")
    try:
        here = build_frozen(store, out / "here", **options)
    except InputError:
        with pytest.raises(InputError, match="no document has"):
            build_frozen(store, out / "there", executor=Elsewhere(), **options)
        return
    with mock.patch.object(frozen, "MIN_MEMORY", 1):
        elsewhere = {"executor": Elsewhere(memory), "memory": memory}
        there = build_frozen(store, out / "there", **elsewhere, **options)
    assert contents(there.path) == contents(here.path)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70_000), st.integers(1, 9))))
def test_sums_and_best_followers_are_those_of_a_dict(rows):
    sums = {}
    for leader, follower, count in rows:
        sums[leader, follower] = sums.get((leader, follower), 0) + count
    ids = np.array([row[:2] for row in rows], np.uint32).reshape(-1, 2)
    found, counts = sum_rows(ids, np.array([row[2] for row in rows], np.int64))
    assert list(zip(map(tuple, found.tolist()), counts.tolist(), strict=True)) == sorted(
        sums.items()
    )
    piece = most_frequent_followers_of_rows(found, counts, 1, 2)
    best = {leader: sorted((-n, f) for (at, f), n in sums.items() if at == leader)
            for leader in sorted({leader for leader, _ in sums})}  # fmt: skip
    assert piece.leaders[:, 0].tolist() == list(best)
    assert piece.counts.tolist() == [-sum(n for n, _ in each) for each in best.values()]
    assert piece.sizes.tolist() == [min(len(each), 2) for each in best.values()]
    kept = [pair for each in best.values() for pair in each[:2]]
    assert piece.followers[:, 0].tolist() == [follower for _, follower in kept]
    assert piece.follower_counts.tolist() == [-n for n, _ in kept]


def test_merged_datastores_have_the_same_bytes(tmp_path, token_store):
    parts = [
        build_datastore(token_store(documents(n), 6), tmp_path / str(n), shard_tokens=90)
        for n in range(2)
    ]
    here, there = (
        merge(parts, tmp_path / type(executor).__name__, executor=executor)
        for executor in (Local(2), Elsewhere())
    )
    assert contents(there.path) == contents(here.path)


def builds(texts, token_store):
    """name -> build(out, executor), each of several tasks."""
    corpus = open_corpus(str(texts / "a"), sample=0.9)
    store = token_store(documents(5), 6, per_shard=5)
    return {
        "tokens": lambda out, run: tokenize(corpus, "demo", out, shard_tokens=40, executor=run),
        "datastore": lambda out, run: build_datastore(store, out, shard_tokens=40, executor=run),
        "frozen": lambda out, run: build_frozen(store, out, executor=run),
    }


@pytest.mark.parametrize("kind", ["tokens", "datastore", "frozen"])
def test_a_resumed_build_keeps_finished_tasks(texts, tmp_path, token_store, kind):
    build = builds(texts, token_store)[kind]
    whole = build(tmp_path / "whole", run := Elsewhere())
    for after in range(len(run.ran)):
        out, killed = tmp_path / f"killed-{after}", Elsewhere(1, dies_after=after)
        with pytest.raises(KeyboardInterrupt):
            build(out, killed)
        again = Elsewhere(2)
        assert contents(build(out, again).path) == contents(whole.path)
        assert not set(killed.ran) & set(again.ran)
        assert sorted(killed.ran + again.ran) == sorted(run.ran)


def test_tokens_begun_here_go_on_elsewhere(texts, tmp_path, monkeypatch):
    corpus = open_corpus(str(texts / "a"), licenses=["mit"])
    whole = contents(tokenize(corpus, "demo", tmp_path / "whole", shard_tokens=40).path)
    write, written = ArtifactWriter.write, []

    def dying(self, name, *given, **facts):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(name)
        write(self, name, *given, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactWriter, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            tokenize(corpus, "demo", tmp_path / "out", shard_tokens=40)
    before = {name: (tmp_path / "out.partial" / name).stat().st_ino for name in written}
    store = tokenize(corpus, "demo", tmp_path / "out", shard_tokens=40, executor=Elsewhere())
    assert contents(store.path) == whole
    assert before == {name: (store.path / name).stat().st_ino for name in written}


@pytest.mark.parametrize("kind", ["tokens", "datastore"])
@pytest.mark.parametrize("after", [2, 9])
def test_each_executor_resumes_the_builds_of_the_other(texts, tmp_path, token_store, kind, after):
    build = builds(texts, token_store)[kind]
    whole = contents(build(tmp_path / "whole", "local").path)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out", Elsewhere(dies_after=after))
    assert contents(build(tmp_path / "out", "local").path) == whole


def test_counting_in_other_groups_starts_over(tmp_path, token_store):
    store = token_store(documents(7), 6)
    whole = build_frozen(store, tmp_path / "whole")
    killed = Elsewhere(dies_after=9)
    with mock.patch.object(frozen, "MIN_MEMORY", 1):
        with pytest.raises(KeyboardInterrupt):
            build_frozen(store, tmp_path / "out", memory=3000, executor=killed)
        build = build_frozen(store, tmp_path / "out", memory=9000, executor=Elsewhere())
    assert contents(build.path) == contents(whole.path)


def test_the_bar_counts_tasks_and_retries(tmp_path, token_store):
    listening, executor = Listening(), Elsewhere(4)
    store = token_store(documents(1), 6)
    build_datastore(store, tmp_path / "d", shard_tokens=60, executor=executor, reporter=listening)
    last = listening.counts[-1]
    assert executor.retries
    assert last == {
        "tokens": store.manifest.counts["tokens"] + 40,
        "tasks": len(executor.ran),
        "retries": executor.retries,
    }


def test_tokens_replaced_in_the_meantime_are_noticed(tmp_path):
    store = tokenize(iter(["alpha beta gamma delta"] * 9), "demo", tmp_path / "s", name="a")
    tokenize(iter(["one two three four five"] * 5), "demo", tmp_path / "s", name="b", force=True)
    for number, executor in enumerate([Local(1), Elsewhere()]):
        with pytest.raises(ArtifactError, match="it was replaced after it was opened"):
            build_datastore(store, tmp_path / f"d{number}", executor=executor)
    with pytest.raises(ArtifactError, match="it was replaced after it was opened"):
        build_frozen(store, tmp_path / "f", executor=Elsewhere())
    assert not list(tmp_path.glob("[df]*"))


def test_a_node_without_the_files_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone on ") as error:
        require_shared(tmp_path / "gone")
    assert "every node" in error.value.hint
