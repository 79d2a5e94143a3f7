"""ExLlamaV3's frozen automaton: its reader's checks, and the drafts of our automaton drafter."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins import exllamav3 as naive, recycling

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.automaton import Automaton
from ngramkit.drafters.base import Source
from ngramkit.drafters.options import AutomatonOptions
from ngramkit.exchange import exllamav3
from ngramkit.exchange.exllamav3 import MAX_EXPORTED_TOKENS, TOKEN_BYTES, export_automaton
from ngramkit.formats.datastore import Datastore, DatastoreShard
from ngramkit.kernels.automaton import first_match_in_corpus, new_automaton
from ngramkit.kernels.suffix.search import shard_table
from ngramkit.kernels.suffix.sort import sort_shard

FEW = settings(max_examples=25, deadline=None)
V = 12  # words of the model
DOCUMENTS = [[4, 5, 6, 1], [], [4, 5, 7, 4, 5, 6, 2, 1], [6, 1]]


@pytest.fixture(scope="module")
def build(tmp_path_factory, token_store, word_tokenizer):
    """Return build(documents, **options), a datastore for the word model."""

    def datastore(documents, **options):
        store = token_store(documents, record=word_tokenizer.record)
        return build_datastore(store, tmp_path_factory.mktemp("d") / "store", **options)

    return datastore


@pytest.fixture(scope="module")
def read(tmp_path_factory, word_model):
    """Return read(datastore, **options), its export as ExLlamaV3 loads it."""
    folder = tmp_path_factory.mktemp("exports")

    def export(store, **options):
        path = folder / "corpus.sam"
        export_automaton(store, word_model, path, force=True, **options)
        return naive.FrozenAutomaton(path, word_model, V)

    return export


def test_the_file_is_what_exllamav3_reads(build, tmp_path, word_model):
    store, path = build(DOCUMENTS), tmp_path / "x.sam"
    done = ngramkit.export(store, "exllamav3", path, model=word_model)
    found = naive.FrozenAutomaton(path, word_model, V)
    assert found.arrays["corpus"] == [4, 5, 6, 1, -1, 4, 5, 7, 4, 5, 6, 2, 1, -1, 6, 1, -1]
    assert done.counts == {
        "documents": 3,
        "tokens": 14,
        "states": len(found.arrays["link"]),
        "edges": len(found.arrays["edge_to"]),
        "bytes": path.stat().st_size,
    }
    assert found.header["sources"] == [{"name": "made-up"}]
    assert "private" not in found.header
    assert found.draft([0, 4, 5], 1, 9) == (2, [6, 1])  # its first place
    assert found.draft([7, 4, 5, 6], 1, 9) == (4, [2, 1])
    assert found.draft([6, 1], 1, 9) == (2, [])  # the end of a document
    assert found.draft([7, 4], 3, 9) == (2, [])


def test_the_same_datastore_gives_the_same_bytes(build, tmp_path, word_model):
    store = build(DOCUMENTS)
    for name in ("a.sam", "b.sam"):
        ngramkit.export(store, "exllamav3", tmp_path / name, model=word_model)
    assert (tmp_path / "a.sam").read_bytes() == (tmp_path / "b.sam").read_bytes()


@pytest.fixture(scope="module")
def in_memory(build):
    """Return in_memory(parts), a datastore with a shard for each part's documents."""
    disk = build(DOCUMENTS)

    def datastore(parts):
        shards = []
        for part in parts:
            tokens = [token for ids in part for token in (*ids, V)]
            arrays = sort_shard(np.array(tokens, np.uint16), V)
            shards.append(DatastoreShard(**arrays))
        store = Datastore(disk.path, disk.manifest)
        store.shards = shards
        return store

    return datastore


documents = st.lists(st.lists(st.integers(2, 5), max_size=12), min_size=1, max_size=4)


@FEW
@given(documents.filter(any))
def test_the_automaton_follows_from_its_definition(in_memory, read, given_documents):
    found = read(in_memory([given_documents]))
    arrays, corpus = found.arrays, found.arrays["corpus"]
    expected = naive.automaton(corpus)

    def longest(state):
        end = arrays["min_end"][state] + 1
        return tuple(corpus[end - arrays["max_len"][state] : end]) if state else ()

    assert {longest(state) for state in range(len(arrays["link"]))} == expected.keys()
    for state, link in enumerate(arrays["link"]):
        edges = range(*arrays["edge_offsets"][state : state + 2])
        targets = {arrays["edge_token"][e]: longest(arrays["edge_to"][e]) for e in edges}
        above = None if state == 0 else longest(link)
        first = arrays["min_end"][state] if state else -1
        assert (above, first, targets) == expected[longest(state)]


contexts = st.lists(st.integers(2, 5), min_size=1, max_size=12)


@FEW
@given(
    st.lists(documents.filter(any), min_size=1, max_size=3),
    contexts,
    st.integers(1, 3),
    st.integers(1, 8),
)
def test_its_drafts_are_those_of_the_automaton_drafter(
    in_memory, read, parts, context, minimum, width
):
    store = in_memory([[[*ids, 1] for ids in part] for part in parts])
    matched, drafted = read(store).draft(context, minimum, width)
    shards = [shard.tokens.tolist() for shard in store.shards]
    assert (matched, drafted if matched >= minimum else None) == _expected(
        recycling.first_match_in_corpus(shards, context, 64, width, V, 1), minimum
    )
    table = shard_table(store.shards)
    ours, copied = first_match_in_corpus(table, np.array(context, np.int32), 64, 1, width, 1)
    assert _expected((ours, copied.tolist()), minimum) == _expected((matched, drafted), minimum)
    drafter = Automaton([store], options=AutomatonOptions(threshold=minimum, bias=0, width=width))
    drafter.start(np.array(context, np.int32))
    tree = drafter.draft(width)
    if len(tree.token_ids) and tree.source[0] == Source.DATASTORE:
        assert tree.token_ids.tolist() == drafted
    elif drafted:  # the context has a match that is as long
        assert recycling.longest_repeat(context, width)[0] >= matched


def _expected(found, minimum):
    matched, drafted = found
    return matched, drafted if matched >= minimum else None


def test_more_than_it_reads_is_refused_before_anything_is_written(
    build, word_model, tmp_path, monkeypatch
):
    assert MAX_EXPORTED_TOKENS * 3 < 1 << 31
    store = build(DOCUMENTS)
    with monkeypatch.context() as patch:
        patch.setattr(exllamav3, "MAX_EXPORTED_TOKENS", 17)
        with pytest.raises(UsageError, match="at most 17") as caught:
            export_automaton(store, word_model, tmp_path / "x.sam")
    assert "it has 18 tokens and separators" in str(caught.value)
    assert caught.value.hint.startswith("Prune it to")
    with pytest.raises(UsageError, match="of memory, and 1,000 bytes are"):
        ngramkit.export(store, "exllamav3", tmp_path / "x.sam", model=word_model, memory=1000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [1, 1000, 1365, 1366, 5000])
def test_an_automaton_takes_the_memory_that_is_required(room):
    assert sum(array.nbytes for array in new_automaton(room)) <= TOKEN_BYTES * room + 200


def test_the_model_must_be_exllamav3s_folder(build, token_store, tmp_path, word_model):
    store = build(DOCUMENTS)
    with pytest.raises(UsageError, match="model must be the folder that ExLlamaV3 loads"):
        ngramkit.export(store, "exllamav3", tmp_path / "x.sam", model="vicuna-7b")
    other = build_datastore(token_store([[1, 2]], 20), tmp_path / "other")
    with pytest.raises(ArtifactError, match="tokenizer"):
        ngramkit.export(other, "exllamav3", tmp_path / "x.sam", model=word_model)
    with pytest.raises(UsageError, match="it is a token store"):
        ngramkit.export(
            token_store(DOCUMENTS, V), "exllamav3", tmp_path / "x.sam", model=word_model
        )


def test_a_changed_tokenizer_is_noticed(build, tmp_path, word_model):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(word_model, folder)
    ngramkit.export(build(DOCUMENTS), "exllamav3", tmp_path / "x.sam", model=folder)
    (folder / "added_tokens.json").write_text("{}")
    with pytest.raises(AssertionError):
        naive.FrozenAutomaton(tmp_path / "x.sam", folder, V)


def test_only_an_export_is_replaced(build, tmp_path, word_model):
    store, path = build(DOCUMENTS), tmp_path / "x.sam"
    for _ in range(2):
        ngramkit.export(store, "exllamav3", path, model=word_model, force=True)
    path.write_bytes(b"EXL3SAN\0")
    with pytest.raises(UsageError, match="not an export of this format"):
        ngramkit.export(store, "exllamav3", path, model=word_model, force=True)


def test_the_mark_of_private_texts_is_in_the_header(token_store, word_tokenizer, tmp_path):
    store = build_datastore(
        token_store(DOCUMENTS, record=word_tokenizer.record, corpus={"private": True}),
        tmp_path / "d",
    )
    path = tmp_path / "x.sam"
    ngramkit.export(store, "exllamav3", path, model=word_tokenizer.record.id, reporter=Reporter())
    raw = path.read_bytes()
    assert json.loads(raw[24 : 24 + int.from_bytes(raw[12:16], "little")])["private"] is True
