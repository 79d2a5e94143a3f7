"""llama.cpp's n-gram cache: golden bytes, round trips, counts against a naive twin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_up import ngrams, random_documents

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge
from ngramkit.drafters.blend import Blend
from ngramkit.exchange.llama_cpp import import_cache, read_cache, write_cache
from ngramkit.exchange.ngrams import Ngrams, datastore_ngrams, frozen_ngrams
from ngramkit.formats.artifact import verify_checksums_and_values

GOLDEN = bytes.fromhex(
    "07000000 08000000 ffffffff ffffffff 02000000 09000000 03000000 05000000 01000000"
)


def as_dict(cache):
    return {
        tuple(key[key >= 0].tolist()): dict(cache.pairs[a:b].tolist())
        for key, a, b in zip(cache.keys, cache.offsets[:-1], cache.offsets[1:], strict=True)
    }


def counted(documents, order):
    found: dict[tuple[int, ...], Counter[int]] = {}
    for ids in documents:
        for i in range(len(ids) - order):
            found.setdefault(tuple(ids[i : i + order]), Counter())[ids[i + order]] += 1
    return {key: dict(counts) for key, counts in found.items()}


def test_golden_bytes(tmp_path):
    path = tmp_path / "static.bin"
    written = write_cache(path, [ngrams((7, 8, 5, 1), (7, 8, 9, 3))])
    assert path.read_bytes() == GOLDEN
    assert written == {"ngrams": 1, "pairs": 2, "bytes": 36}
    assert as_dict(read_cache(path)) == {(7, 8): {9: 3, 5: 1}}


def test_pairs_whose_scaled_count_is_zero_are_not_reported(tmp_path):
    path = tmp_path / "static.bin"
    written = write_cache(path, [ngrams((7, 8, 5, 1), (7, 8, 6, 1), (7, 8, 9, 100_000))])
    assert written["pairs"] == len(read_cache(path).pairs) == 2


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_written_cache_is_read_back(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cache") / "cache.bin"
    token = st.integers(0, 5)
    pieces, wanted = [], {}
    for order in (1, 2, 3, 4):
        row = st.tuples(*[token] * (order + 1), st.integers(1, 9))
        rows = data.draw(st.lists(row, max_size=12))
        if rows:
            pieces.append(ngrams(*rows))
            for *ids, count in rows:
                pairs = wanted.setdefault(tuple(ids[:-1]), Counter())
                pairs[ids[-1]] += count
    write_cache(path, pieces)
    if pieces:
        assert as_dict(read_cache(path)) == wanted
        assert sorted(set(read_cache(path).orders.tolist())) == sorted({len(k) for k in wanted})


def test_pairs_are_sorted_by_count_then_by_token(tmp_path):
    write_cache(tmp_path / "c", [ngrams((1, 2, 4, 5), (1, 2, 3, 5), (1, 2, 9, 6), (0, 2, 1, 1))])
    assert read_cache(tmp_path / "c").pairs.tolist() == [[1, 1], [9, 6], [3, 5], [4, 5]]


@pytest.mark.parametrize("shard_tokens", [None, 40])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_a_datastores_counts_are_exact(tmp_path, token_store, order, shard_tokens):
    documents = random_documents(vocabulary=7, documents=25, longest=12)
    store = build_datastore(token_store(documents, 7), tmp_path / "d", shard_tokens=shard_tokens)
    if shard_tokens:
        assert len(store.shards) > 1
    write_cache(tmp_path / "c", datastore_ngrams(store, order, memory=1 << 16))
    assert as_dict(read_cache(tmp_path / "c")) == counted(documents, order)


@pytest.mark.parametrize(("leader_len", "follower_len"), [(1, 3), (2, 2), (3, 1)])
def test_a_frozen_table_counts_its_windows(tmp_path, token_store, leader_len, follower_len):
    documents = random_documents(vocabulary=5, documents=20, longest=15)
    table = build_frozen(
        token_store(documents, 5), tmp_path / "f",
        leader_len=leader_len, follower_len=follower_len, followers=10**6,
    )  # fmt: skip
    write_cache(tmp_path / "c", frozen_ngrams(table, 2))
    whole = [ids[: len(ids) - 1] for ids in documents if len(ids) >= 4]  # windows of 4 tokens
    assert as_dict(read_cache(tmp_path / "c")) == counted(whole, 2)


def test_a_frozen_table_in_blocks_is_the_same(tmp_path, token_store, monkeypatch):
    documents = random_documents(vocabulary=5, documents=20, longest=15)
    table = build_frozen(token_store(documents, 5), tmp_path / "f", leader_len=2)
    write_cache(tmp_path / "whole", frozen_ngrams(table, 1))
    monkeypatch.setattr("ngramkit.exchange.ngrams.ROWS_PER_PIECE", 3)
    write_cache(tmp_path / "blocks", frozen_ngrams(table, 1))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "blocks").read_bytes()


def test_windows_that_are_too_short_are_refused(tmp_path, token_store):
    documents = random_documents(vocabulary=5, documents=20, longest=15)
    table = build_frozen(token_store(documents, 5), tmp_path / "f", follower_len=1)
    with pytest.raises(UsageError, match="cannot export n-grams"):
        list(frozen_ngrams(table, 2))


def test_an_imported_cache_is_exported_as_it_was(tmp_path, token_store, word_tokenizer):
    documents = random_documents(vocabulary=9, documents=30, longest=12)
    store = build_datastore(token_store(documents, 9), tmp_path / "d")
    write_cache(tmp_path / "c", datastore_ngrams(store, 2))
    table = import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")
    assert list(verify_checksums_and_values(table))
    assert (table.leader_len, table.follower_len) == (2, 1)
    write_cache(tmp_path / "again", frozen_ngrams(table, 2))
    assert (tmp_path / "again").read_bytes() == (tmp_path / "c").read_bytes()


def test_one_order_of_a_dynamic_cache_is_imported(tmp_path, word_tokenizer):
    write_cache(tmp_path / "c", [ngrams((1, 2, 3)), ngrams((1, 2, 3, 4))])
    with pytest.raises(UsageError, match="1, 2"):
        import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")
    table = import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f", order=1)
    assert table.leaders.tolist() == [[1]]
    with pytest.raises(UsageError, match=r"order must be .* got 3"):
        import_cache(tmp_path / "c", word_tokenizer, tmp_path / "g", order=3)


def test_a_merge_does_not_count_the_tokens_of_an_imported_cache(tmp_path, word_tokenizer):
    parts = []
    for name in ("a", "b"):
        write_cache(tmp_path / name, [ngrams((1, 2, 3))])
        parts.append(import_cache(tmp_path / name, word_tokenizer, tmp_path / f"table-{name}"))
    merged = merge(parts, tmp_path / "both")
    assert merged.manifest.counts == {"leaders": 1, "followers": 1}
    assert list(verify_checksums_and_values(merged))


def test_a_merge_keeps_everything_of_imported_caches(tmp_path, word_tokenizer):
    tables = []
    for number, (leader, followers) in enumerate([(1, [2]), (2, [3, 4]), (3, [4])]):
        file = tmp_path / str(number)
        write_cache(file, [ngrams(*((leader, follower, 1) for follower in followers))])
        tables.append(import_cache(file, word_tokenizer, tmp_path / f"table-{number}"))
    one, two, three = tables
    both = merge([one, two], tmp_path / "both")
    merged = merge([both, three], tmp_path / "all")
    assert merged.leaders.tolist() == [[1], [2], [3]]
    assert merged.followers.tolist() == [[2], [3], [4], [4]]
    assert list(verify_checksums_and_values(merged))


def test_ids_of_another_tokenizer_are_refused(tmp_path, word_tokenizer):
    write_cache(tmp_path / "c", [ngrams((1, 2, 300, 4))])
    with pytest.raises(InputError, match="300"):
        import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        GOLDEN[:-1],
        GOLDEN[:-4],
        GOLDEN[:16],
        GOLDEN[:16] + bytes(4) + GOLDEN[20:],  # no pairs
        GOLDEN[:4] + b"\xff" * 4 + GOLDEN[:28],  # an unused place before a used one
        GOLDEN[:24] + bytes(4) + GOLDEN[28:],  # a count of zero
    ],
)
def test_foreign_files_are_refused(tmp_path, raw):
    path = tmp_path / "c"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"llama\.cpp n-gram cache"):
        read_cache(path)


@pytest.mark.parametrize("again", [(1, 2, 3), (1, 4, 1), (4, 2, 1)])
def test_two_files_in_one_are_refused(tmp_path, word_tokenizer, again):
    for name, row in [("a", (1, 2, 3)), ("b", again)]:
        write_cache(tmp_path / name, [ngrams(row)])
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    if again[0] == 4:
        table = import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")
        assert table.leaders.tolist() == [[1], [4]]
        return
    with pytest.raises(InputError, match="an n-gram occurs twice"):
        import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")
    words = np.fromfile(tmp_path / "a", np.int32)  # a next token twice
    words[4] = 2
    np.append(words, words[-2:]).tofile(tmp_path / "c")
    with pytest.raises(InputError, match="an n-gram occurs twice"):
        import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_an_existing_file_is_kept(tmp_path):
    path: Path = tmp_path / "c"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        write_cache(path, [ngrams((1, 2, 3, 4))])
    assert path.read_text() == "mine"


def test_nothing_is_left_after_an_error(tmp_path):
    def broken():
        yield Ngrams(np.zeros((1, 3), np.int32), np.ones(1, np.int64))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path / "c", broken())
    assert not list(tmp_path.iterdir())


def test_an_imported_table_drafts_beside_a_datastore(word_tokenizer, token_store, tmp_path):
    """Its manifest says nothing of a corpus, so that it is of the same one is not supposed."""
    store = token_store([[1, 2, 3, 4]] * 3, record=word_tokenizer.record)
    datastore = build_datastore(store, tmp_path / "d")
    write_cache(tmp_path / "c", [ngrams((1, 2, 7, 3), (1, 2, 3, 1))])
    drafter = Blend([datastore], import_cache(tmp_path / "c", word_tokenizer, tmp_path / "f"))
    drafter.start(np.array([1, 2], np.int32))
    assert {3, 7} <= set(drafter.draft(8).token_ids.tolist())
