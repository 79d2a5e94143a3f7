"""REST's datastore file: golden bytes, round trips, damage and wrapped ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_up import random_documents
from twins.kernels import suffix_array

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.exchange.rest_idx import export_rest_idx, import_rest_idx, read_chunks
from ngramkit.exchange.text import documents_of
from ngramkit.formats.artifact import verify_checksums_and_values

GOLDEN = bytes.fromhex("08000000 0400 0500 0400 010010000000 03000000 02000000 00000000 01000000")


def idx(*chunks, width=2, order=None):
    """Return what REST's Writer writes: ids wrap to `width` bytes, sorted by the whole ids."""
    raw = b""
    for tokens in chunks:
        ids = np.array(tokens, np.int64).astype(f"<u{width}").tobytes()
        positions = np.array(order or suffix_array(tokens), "<i4").tobytes()
        raw += len(ids).to_bytes(4, "little") + ids
        raw += len(positions).to_bytes(4, "little") + positions
    return raw


def read(path, tokenizer, tmp_path):
    return [d.tolist() for d in documents_of(import_rest_idx(path, tokenizer, tmp_path / "d"))]


@pytest.mark.parametrize("width", [2, 4])
def test_the_bytes_of_an_export(tmp_path, token_store, width):
    store = build_datastore(token_store([[4, 5], [], [4, 1]], 12), tmp_path / "d")
    written = export_rest_idx(store, tmp_path / "x.idx", u32=width == 4)
    raw = (tmp_path / "x.idx").read_bytes()
    assert raw == idx([4, 5, 4, 1], width=width)
    assert written == {"bytes": len(raw)}
    if width == 2:
        assert raw == GOLDEN


@pytest.mark.parametrize("width", [2, 4])
def test_exported_documents_are_imported_again(tmp_path, token_store, word_tokenizer, width):
    made = random_documents(vocabulary=9, documents=30, longest=12)
    ending = [[*(t + 2 for t in ids), 1] for ids in made]
    store = build_datastore(token_store(ending, 12), tmp_path / "ours", shard_tokens=90)
    assert len(store.shards) > 2
    export_rest_idx(store, tmp_path / "x.idx", u32=width == 4)
    back = import_rest_idx(tmp_path / "x.idx", word_tokenizer, tmp_path / "d")
    assert [d.tolist() for d in documents_of(back)] == ending
    assert list(verify_checksums_and_values(back))
    assert back.manifest.counts == store.manifest.counts
    assert not list(tmp_path.glob("d.*"))
    export_rest_idx(back, tmp_path / "again.idx", u32=width == 4)
    joined = [t for chunk in read_chunks(tmp_path / "again.idx") for t in chunk.tokens.tolist()]
    assert joined == [t for ids in ending for t in ids]


def test_documents_begin_at_bos_and_end_at_eos(tmp_path, word_tokenizer):
    (tmp_path / "x").write_bytes(idx([0, 4, 5, 0, 6, 1, 7, 7, 1, 0, 0, 8], [9, 9]))
    assert read(tmp_path / "x", word_tokenizer, tmp_path) == [
        [4, 5],
        [6, 1],
        [7, 7, 1],
        [8],
        [9, 9],
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=40))
def test_any_chunk_in_order_is_taken(tmp_path_factory, word_tokenizer, tokens):
    folder = tmp_path_factory.mktemp("idx")
    (folder / "good").write_bytes(idx(tokens))
    if set(tokens) != {0}:
        found = read(folder / "good", word_tokenizer, folder)
        assert [t for d in found for t in d] == [t for t in tokens if t]
    order = suffix_array(tokens)
    if tokens[order[0]] != tokens[order[-1]]:
        order[0], order[-1] = order[-1], order[0]
        (folder / "bad").write_bytes(idx(tokens, order=order))
        with pytest.raises(InputError, match="not in order"):
            import_rest_idx(folder / "bad", word_tokenizer, folder / "e")
        assert not (folder / "e").exists()


def test_wrapped_ids_are_found_by_the_order(tmp_path, word_tokenizer):
    """One id above 65,535 among small ones: it sorts last but reads as a small one."""
    (tmp_path / "x").write_bytes(idx([5, 65_536 + 3, 7, 8]))
    with pytest.raises(InputError, match="wrap silently"):
        import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d")


def test_16_bits_never_hold_a_large_vocabulary(tmp_path, word_tokenizer):
    from dataclasses import replace

    large = replace(word_tokenizer, record=replace(word_tokenizer.record, vocabulary=128_256))
    (tmp_path / "x").write_bytes(idx([5, 6, 7]))
    with pytest.raises(InputError, match="wrap silently"):
        import_rest_idx(tmp_path / "x", large, tmp_path / "d")
    (tmp_path / "y").write_bytes(idx([5, 70_000, 7, 5], width=4))
    assert read(tmp_path / "y", large, tmp_path) == [[5, 70_000, 7, 5]]


def test_a_large_vocabulary_needs_u32(tmp_path, token_store):
    store = build_datastore(token_store([[70_000, 1]], 70_001), tmp_path / "d")
    with pytest.raises(UsageError, match="16-bit"):
        export_rest_idx(store, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    export_rest_idx(store, tmp_path / "x", u32=True)
    [chunk] = read_chunks(tmp_path / "x")
    assert chunk.tokens.tolist() == [70_000, 1]


def test_ids_of_another_tokenizer_are_refused(tmp_path, word_tokenizer):
    (tmp_path / "x").write_bytes(idx([5, 60_000]))
    with pytest.raises(InputError, match="outside the vocabulary"):
        import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d")


@pytest.mark.parametrize("cut", [1, 4, 9, 12, 15, 24])
def test_cut_files_are_refused(tmp_path, word_tokenizer, cut):
    (tmp_path / "x").write_bytes(GOLDEN[:-cut])
    with pytest.raises(InputError):
        import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_positions_outside_the_tokens_are_refused(tmp_path, word_tokenizer):
    (tmp_path / "x").write_bytes(idx([5, 6], order=[0, 2]))
    with pytest.raises(InputError, match="points outside"):
        import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d")


def test_a_second_import_is_up_to_date(tmp_path, word_tokenizer):
    (tmp_path / "x").write_bytes(idx([5, 6]))
    first = import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d").manifest
    assert import_rest_idx(tmp_path / "x", word_tokenizer, tmp_path / "d").manifest == first
