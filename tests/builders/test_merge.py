"""Merged artifacts against artifacts of the joined corpus."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge
from ngramkit.builders.prune_by_worth import prune_artifact
from ngramkit.builders.tokens import tokenize
from ngramkit.formats.artifact import verify_checksums_and_values

draw = np.random.default_rng(0)
CORPORA = [
    [draw.integers(0, 6, draw.integers(0, 12)).tolist() for _ in range(n)] for n in (20, 30, 5)
]
JOINED = [document for corpus in CORPORA for document in corpus]


def spelled(store):
    return [shard.tokens.tolist() for shard in store.shards]


def test_datastores_stand_side_by_side(tmp_path, token_store):
    parts = [
        build_datastore(token_store(c, 6), tmp_path / str(i), shard_tokens=70)
        for i, c in enumerate(CORPORA)
    ]
    merged = merge(parts, tmp_path / "c")
    assert spelled(merged) == [tokens for part in parts for tokens in spelled(part)]
    assert merged.manifest.counts == {
        "documents": len(JOINED), "tokens": sum(map(len, JOINED)),
    }  # fmt: skip
    assert list(verify_checksums_and_values(merged))
    assert merged.manifest.corpus["id"] == "made-up + made-up + made-up"


def test_frozen_tables_that_kept_everything_add_up_exactly(tmp_path, token_store):
    parts = [build_frozen(token_store(c, 6), tmp_path / str(i)) for i, c in enumerate(CORPORA)]
    whole = build_frozen(token_store(JOINED, 6), tmp_path / "whole")
    merged = merge(parts, tmp_path / "c")
    assert list(verify_checksums_and_values(merged))
    for name, array in whole.table.items():
        assert np.array_equal(merged.table[name], array), name
        assert merged.table[name].dtype == array.dtype


def test_the_most_frequent_survive(tmp_path, token_store):
    cut = {"leader_len": 2, "leaders": 8, "follower_len": 1, "followers": 2}
    parts = [
        build_frozen(token_store(c, 6), tmp_path / str(i), **cut) for i, c in enumerate(CORPORA[:2])
    ]
    merged = merge(parts, tmp_path / "c")
    assert list(verify_checksums_and_values(merged))
    leaders, pairs = Counter(), Counter()
    for part in parts:
        for row, (leader, count) in enumerate(zip(part.leaders, part.leader_counts, strict=True)):
            leaders[tuple(leader.tolist())] += int(count)
            for at in range(int(part.follower_offsets[row]), int(part.follower_offsets[row + 1])):
                pair = (tuple(leader.tolist()), int(part.followers[at, 0]))
                pairs[pair] += int(part.follower_counts[at])
    best = sorted(sorted(leaders, key=lambda leader: (-leaders[leader], leader))[:8])
    assert merged.leaders.tolist() == [list(leader) for leader in best]
    for row, leader in enumerate(best):
        wanted = sorted(
            ((token, count) for (of, token), count in pairs.items() if of == leader),
            key=lambda pair: (-pair[1], pair[0]),
        )[:2]
        span = merged.lookup(leader)
        found = zip(merged.followers[span, 0].tolist(), merged.follower_counts[span], strict=True)
        assert list(found) == wanted
        assert merged.leader_counts[row] == leaders[leader]


def test_merging_again_is_up_to_date_and_the_same_bytes(tmp_path, token_store):
    parts = [build_frozen(token_store(c, 6), tmp_path / str(i)) for i, c in enumerate(CORPORA)]
    first = merge(parts, tmp_path / "c").manifest
    assert merge(parts, tmp_path / "c").manifest == first
    assert merge(parts, tmp_path / "d").manifest.files == first.files


@pytest.mark.parametrize("build", [build_datastore, build_frozen])
def test_text_in_several_parts_is_reported(tmp_path, token_store, build):
    origins = [{"id": "x", "sha256": "1"}, {"id": "y", "sha256": "2"}, {}]
    stores = (token_store(c, 6, corpus=o) for c, o in zip(CORPORA, origins, strict=True))
    a, b, c = (build(store, tmp_path / name) for store, name in zip(stores, "abc", strict=True))
    notes = []
    reporter = Reporter()
    reporter.note = notes.append
    both = merge([a, b], tmp_path / "both", reporter=reporter)
    merge([both, c], tmp_path / "all", reporter=reporter)
    assert not notes
    merge([both, a], tmp_path / "again", reporter=reporter)
    pruned = prune_artifact(b, tmp_path / "pruned", b.manifest.bytes + (1 << 20))
    merge([pruned, b], tmp_path / "other", reporter=reporter)
    assert notes == [
        f"{corpus} is in several of the artifacts, so its text counts repeatedly" for corpus in "xy"
    ]


def test_what_cannot_be_merged_is_refused(tmp_path, token_store):
    one, two = (token_store(corpus, 6) for corpus in CORPORA[:2])
    other = build_datastore(token_store(CORPORA[0], 7), tmp_path / "o")
    a = build_datastore(one, tmp_path / "a")
    f, g = build_frozen(one, tmp_path / "f"), build_frozen(two, tmp_path / "g", leader_len=2)
    for parts, why in [
        ([a], "only one"), ([a, a], "itself"), ([a, f], "frozen-table"),
        ([f, g], "different lengths"), ([one, two], "a token store"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=why):
            merge(parts, tmp_path / "c")
    with pytest.raises(ArtifactError, match="tokenizer"):
        merge([a, other], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_progress_counts_no_tokens_where_shards_are_copied(tmp_path, token_store):
    said = []

    class Listening(Reporter):
        def advance(self, amount, **counts):
            said.append(counts)

    parts = [build_datastore(token_store(c, 6), tmp_path / str(i)) for i, c in enumerate(CORPORA)]
    merge(parts, tmp_path / "c", reporter=Listening())
    assert [{"shards": n} for n in (1, 2, 3)] == [counts for counts in said if counts][:3]


@pytest.mark.parametrize("build", [build_datastore, build_frozen])
def test_a_merge_records_that_no_part_has_ends_of_documents(tmp_path, build):
    made = []
    for number, eos in enumerate((False, False, True)):
        (tmp_path / f"{number}.txt").write_text(f"text {number} of some words")
        tokens = tokenize(tmp_path / f"{number}.txt", "demo", tmp_path / f"t{number}", eos=eos)
        made.append(build(tokens, tmp_path / f"a{number}"))
    alike = merge(made[:2], tmp_path / "alike").manifest.parameters
    mixed = merge(made[1:], tmp_path / "mixed").manifest.parameters
    assert alike["eos"] is False
    assert "eos" not in mixed
