"""Pruned artifacts: small enough, whole, of the corpus's own words, those that are wanted."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from reporters import Notes

from ngramkit.basics.errors import UsageError
from ngramkit.builders import prune_by_worth as pruning
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.prune_by_worth import HEADER_BYTES, prune_artifact, prune_table
from ngramkit.formats.build_command import build_command
from ngramkit.formats.card import artifact_card
from ngramkit.formats.opening import verify_artifact

VOCABULARY = 50
EMPTY = 8 * (VOCABULARY + 2) + HEADER_BYTES
draw = np.random.default_rng(0)
COMMON = [draw.integers(0, VOCABULARY, 24).tolist() for _ in range(4)]
RARE = [draw.integers(0, VOCABULARY, 30).tolist() for _ in range(300)]
# Every fifth document is one of four; the others stand once.
DOCUMENTS = [COMMON[i // 5 % 4] if i % 5 == 0 else RARE[i] for i in range(300)]


@pytest.fixture(scope="module")
def datastore(token_store, tmp_path_factory):
    store = token_store([*DOCUMENTS, [], [3] * 200], VOCABULARY)
    return build_datastore(store, tmp_path_factory.mktemp("whole") / "d", shard_tokens=4000)


@pytest.fixture(scope="module")
def frozen(token_store, tmp_path_factory):
    store = token_store(DOCUMENTS, VOCABULARY)
    return build_frozen(store, tmp_path_factory.mktemp("whole") / "f", follower_len=2)


def documents(artifact):
    """What stands between separators, shard by shard."""
    found = []
    for shard in artifact.shards:
        ends = np.flatnonzero(shard.tokens == artifact.separator)
        found += [part.tolist() for part in np.split(shard.tokens, ends + 1)[:-1]]
    return [document[:-1] for document in found]


@pytest.mark.parametrize("tokens", [60, 200, 900, 5000])
def test_a_pruned_datastore_is_whole_and_of_the_corpus_s_own_words(datastore, tmp_path, tokens):
    size = EMPTY + 6 * tokens
    pruned = prune_artifact(datastore, tmp_path / "p", size)
    assert size - HEADER_BYTES - 6 * 66 <= pruned.manifest.bytes <= size
    assert list(verify_artifact(pruned.path))
    whole = ["".join(map(chr, document)) for document in documents(datastore)]
    for kept in documents(pruned):
        assert any("".join(map(chr, kept)) in text for text in whole)


def test_what_is_common_is_kept_before_what_stands_once(datastore, tmp_path, monkeypatch):
    monkeypatch.setattr(pruning, "TRAINED_ONE_IN", 2)  # enough of so small a corpus
    pruned = prune_artifact(datastore, tmp_path / "p", EMPTY + 6 * 110)
    held = [tuple(document) for document in documents(pruned)]
    assert set(map(tuple, COMMON)) <= set(held)


def test_answers_say_what_is_wanted(datastore, frozen, tmp_path):
    wanted = [RARE[7], RARE[11]]
    arrays = [np.array(answer, np.int32) for answer in wanted]
    pruned = prune_artifact(datastore, tmp_path / "d", EMPTY + 6 * 110, answers=arrays)
    assert all(answer in documents(pruned) for answer in wanted)
    assert "answers" in pruned.manifest.corpus["pruned"]
    table = prune_artifact(frozen, tmp_path / "f", 2000, answers=arrays)
    without = prune_artifact(frozen, tmp_path / "g", 2000)
    assert hits(table, wanted) > hits(without, wanted)


def hits(table, texts):
    """How many windows of the texts the table still knows."""
    count = 0
    for text in texts:
        for i in range(len(text) - 2):
            span = table.lookup(text[i : i + 1])
            count += text[i + 1 : i + 3] in table.followers[span].tolist()
    return count


def test_the_same_bytes_again_and_nothing_done_twice(datastore, tmp_path):
    first = prune_artifact(datastore, tmp_path / "a", EMPTY + 3000)
    second = prune_artifact(datastore, tmp_path / "b", EMPTY + 3000)
    assert first.manifest == second.manifest
    before = (first.path / "manifest.json").stat().st_mtime_ns
    assert prune_artifact(datastore, tmp_path / "a", EMPTY + 3000).manifest == first.manifest
    assert (first.path / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="exists"):
        prune_artifact(datastore, tmp_path / "a", EMPTY + 2000)


def test_several_shards(datastore, tmp_path, monkeypatch):
    monkeypatch.setattr("ngramkit.builders.prune_by_worth.MAX_SHARD_TOKENS", 700)
    pruned = prune_artifact(datastore, tmp_path / "p", 4 * EMPTY + 6 * 1500)
    assert len(pruned.shards) > 2
    assert max(len(shard.tokens) for shard in pruned.shards) <= 700 + pruning.PASSAGE_TOKENS
    assert pruned.manifest.bytes <= 4 * EMPTY + 6 * 1500
    assert list(verify_artifact(pruned.path))


def test_all_is_kept_where_it_fits(datastore, frozen, tmp_path):
    pruned = prune_artifact(datastore, tmp_path / "d", 1 << 20)
    expected = [d for d in documents(datastore) if d]
    assert documents(pruned) == expected
    assert pruned.manifest.counts["documents"] == len(expected)
    table = prune_artifact(frozen, tmp_path / "f", 1 << 20)
    for name, array in frozen.table.items():
        assert np.array_equal(table.table[name], array), name


@pytest.mark.parametrize("size", [1200, 2000, 4000])
def test_a_pruned_table_keeps_the_most_frequent(frozen, tmp_path, size):
    table = prune_artifact(frozen, tmp_path / "p", size)
    assert table.manifest.bytes <= size
    assert list(verify_artifact(table.path))
    least = int(table.follower_counts.min())
    left_out = int(frozen.follower_counts.sum()) - int(table.follower_counts.sum())
    assert left_out > 0
    # Nothing as frequent as four times the least that was kept is left out, leaders' rows or not.
    kept = {tuple(r) for r in table.leaders.tolist()}
    often = frozen.follower_counts >= 4 * least
    owner = np.repeat(np.arange(len(frozen.leaders)), np.diff(frozen.follower_offsets.astype(int)))
    assert {tuple(r) for r in frozen.leaders[owner[often]].tolist()} <= kept


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_leader_without_followers_is_left_out(frozen, place):
    at = place % len(frozen.leaders) + 1
    offsets = np.insert(frozen.follower_offsets, at, frozen.follower_offsets[at])
    more = SimpleNamespace(
        leaders=np.insert(frozen.leaders, at, frozen.leaders[0], axis=0),
        leader_counts=np.insert(frozen.leader_counts, at, 1),
        follower_offsets=offsets,
        followers=frozen.followers,
        follower_counts=frozen.follower_counts,
        leader_len=frozen.leader_len,
        follower_len=frozen.follower_len,
    )
    for name, array in prune_table(frozen, 2000).items():
        np.testing.assert_array_equal(prune_table(more, 2000)[name], array, name)


def test_the_training_split_is_bounded_and_kept_last(datastore, monkeypatch):
    monkeypatch.setattr(pruning, "MAX_TRAINED_TOKENS", 100)
    whole = pruning.choose_passages(datastore.shards, VOCABULARY, 1 << 20)
    assert 0 < whole.lengths[whole.training].sum() <= 100
    fewer = pruning.choose_passages(datastore.shards, VOCABULARY, whole.size - 200)
    assert not fewer.training.any()


def test_what_cannot_be_pruned(datastore, frozen, token_store, tmp_path):
    store = token_store(DOCUMENTS, VOCABULARY)
    with pytest.raises(UsageError, match="a token store"):
        prune_artifact(store, tmp_path / "p", 1 << 20)
    for artifact in (datastore, frozen):
        with pytest.raises(UsageError, match="cannot prune") as error:
            prune_artifact(artifact, tmp_path / "p", 1000)
        assert error.value.option == ("bytes",)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["datastore", "frozen"])
def test_the_size_that_a_refusal_names_is_enough(request, tmp_path, kind):
    artifact = request.getfixturevalue(kind)
    for size in (1, HEADER_BYTES + 1, EMPTY + 1 if kind == "datastore" else HEADER_BYTES + 20):
        with pytest.raises(UsageError, match="cannot prune") as error:
            prune_artifact(artifact, tmp_path / "p", size)
        least = int(re.sub(r"\D", "", error.value.hint))
        assert least > size
    pruned = prune_artifact(artifact, tmp_path / "p", least)
    assert 0 < pruned.manifest.bytes <= least


def test_the_card_says_how_it_was_made(datastore, tmp_path):
    pruned = prune_artifact(datastore, tmp_path / "p", EMPTY + 3000)
    text = artifact_card(pruned.manifest)
    assert f"to {EMPTY + 3000} bytes of {datastore.manifest.bytes}, by its own text" in text
    assert build_command(pruned.manifest).endswith(
        f"--out whole && ngramkit prune whole --bytes {EMPTY + 3000} --out pruned"
    )
    again = prune_artifact(pruned, tmp_path / "q", EMPTY + 1000)
    assert build_command(again.manifest) == ""
    assert again.manifest.corpus["pruned"]["of"]["pruned"] == pruned.manifest.corpus["pruned"]
    assert pruning.FROZEN_RULE not in text


def test_an_artifact_that_fits_is_kept_whole_and_that_is_said(datastore, frozen, tmp_path):
    notes = Notes()
    for name, artifact in (("d", datastore), ("f", frozen)):
        whole = prune_artifact(artifact, tmp_path / name, 1 << 20, reporter=notes)
        assert notes.lines.pop().startswith("nothing was pruned")
        assert whole.manifest.corpus["pruned"]["of"]["build"] == artifact.manifest.build
    prune_artifact(datastore, tmp_path / "p", EMPTY + 6 * 200, reporter=notes)
    assert not notes.lines
