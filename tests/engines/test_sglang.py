"""SGLang's corpus: trees by its conventions, requests from their tails, and its own hooks."""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_vllm_v2 import error_of_broken_plugin
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.budget.crossover import stops_paying
from ngramkit.budget.model_size import model_size
from ngramkit.budget.pass_times import pass_times
from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.blend import Blend
from ngramkit.engines import request_texts, sglang
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.growing_history import tenant_folder
from ngramkit.engines.options_file import read_options
from ngramkit.engines.sessions import Sessions
from ngramkit.engines.sglang import NgramCorpus, pack_trees
from ngramkit.engines.sglang_hooks import LateCorpus, with_templates, with_text
from ngramkit.engines.sglang_plugin import plugin
from ngramkit.engines.sglang_server_options import effects_of_sglang_options
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

ROOT = Path(__file__).parents[2]
VOCABULARY, K, DEPTH = 12, 8, 6


def ids(tokens):
    return np.array(tokens, np.int32)


@pytest.fixture
def folder(monkeypatch, token_store, tmp_path):
    texts = [[0, 1, 2, 3, 4, 5] * 3, [5, 3, 1] * 4, [0, 1, 2, 9, 8]]
    build_datastore(token_store(texts, VOCABULARY), tmp_path / "d")
    said = {"datastores": [f"{tmp_path}/d"], "vocabulary": VOCABULARY}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(said))
    return tmp_path / "d"


def serve(monkeypatch, rank=0, vocabulary=VOCABULARY, stage=0, replica=None, **model):
    """Stand in for 0.5.23's scheduler: its arguments hold what the command line says, and defaults
    are elsewhere."""
    context = ModuleType("sglang.srt.runtime_context")
    context.get_parallel = lambda: SimpleNamespace(
        tp_rank=rank, pp_rank=stage, dp_rank=replica, tp_size=2, pp_size=2
    )
    context.get_server_args = lambda: SimpleNamespace(model_path="/m", tokenizer_path=None)
    context.get_serving = lambda: SimpleNamespace(tokenizer_path="/m")
    context.get_model = lambda: SimpleNamespace(revision="v1", trust_remote_code=False)
    models = ModuleType("sglang.srt.configs.model_config")
    context.get_device = lambda: SimpleNamespace(device="cuda")
    config = SimpleNamespace(vocab_size=vocabulary, **model)
    models.ModelConfig = SimpleNamespace(from_server_args=lambda arguments: config)
    monkeypatch.setitem(sys.modules, context.__name__, context)
    monkeypatch.setitem(sys.modules, models.__name__, models)


def unpacked(tokens, mask):
    """{path} of a result, read as result.cpp's extractLeafPaths_ does, with inner nodes too."""
    size, paths = len(tokens), [()]
    for node in range(1, size):
        parent = max(j for j in range(node) if mask[node][j])
        paths.append((*paths[parent], int(tokens[node])))
        assert [j for j in range(size) if mask[node][j]] == sorted(
            {node, *(j for j in range(size) if mask[parent][j])}
        )
    return set(paths[1:])


def paths_of(tree):
    paths = []
    for token, parent in zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return set(paths)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_tree_is_unpacked_to_the_same_paths(data):
    trees = []
    for _ in range(data.draw(st.integers(1, 3))):
        n = data.draw(st.integers(0, K - 1))
        parents = [data.draw(st.integers(-1, i - 1)) for i in range(n)]
        trees.append(
            DraftTree(ids(range(1, n + 1)), ids(parents), np.ones(n, np.float32), np.zeros(n, "u1"))
        )
    tokens, mask = pack_trees(trees, np.full(len(trees), 77), K)
    assert (tokens.dtype, mask.dtype) == (np.int64, np.int64)
    for row, tree in enumerate(trees):
        own = tokens[row * K : (row + 1) * K]
        assert own[0] == 77
        square = mask.reshape(-1, K, K)[row]
        padding = {(0,)} if len(tree) < K - 1 else set()
        assert unpacked(own, square) == paths_of(tree) | padding


def asked(corpus, texts, requests=()):
    """As the worker's _prepare_draft_tokens: the last DEPTH tokens of each, and how many there are.
    In overlap mode a request's own list lacks the last ones."""
    for one in requests:
        one.output_ids = texts[one.rid][3:-1]
    corpus.see(requests)
    tokens, mask = corpus.batch_get(
        list(texts), [text[-DEPTH:] for text in texts.values()], [len(t) for t in texts.values()]
    )
    rows = tokens.reshape(-1, K), mask.reshape(-1, K, K)
    return [unpacked(*row) - {(0,)} for row in zip(*rows, strict=True)]


def alone(folder, text):
    drafter = Blend([Datastore.open(folder)])
    drafter.start(ids(text))
    return paths_of(drafter.draft(K - 1)) - {(0,)}


def test_trees_are_drafted_for_the_whole_text(folder):
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH, capacity=10)
    random, texts = np.random.default_rng(0), {}
    for step in range(25):
        corpus.synchronize()
        for name in "abc":
            new = random.integers(0, 6, random.integers(1, 5)).tolist()
            texts[name] = texts.get(name, random.integers(0, 6, 12).tolist()) + new
        if step == 10:
            corpus.erase_match_state(["b"])  # preempted, and back at once
        if step == 15:
            corpus.reset()
        if step == 0:
            requests = [Req(name, text[:3]) for name, text in texts.items()]
        found = asked(corpus, texts, requests)
        assert found == [alone(folder, text) for text in texts.values()]
        corpus.batch_put([text[-DEPTH:] for text in texts.values()])
    assert corpus.statistics.requests == 6  # three, and three after the reset


def test_without_requests_the_last_tokens_are_the_text(folder):
    corpus, text = NgramCorpus(draft_token_num=K), [3, 1, 5] * 5
    assert asked(corpus, {"a": text}) == [alone(folder, text[-DEPTH:])]
    longer = [*text, 0, 1]
    assert asked(corpus, {"a": longer}) == [alone(folder, longer[-DEPTH - 2 :])]


def test_breadth_one_is_a_chain(folder):
    corpus = NgramCorpus(draft_token_num=K, max_bfs_breadth=1)
    (found,) = asked(corpus, {"a": [4, 5, 0, 1, 2, 3]})
    longest = max(found, key=len)
    assert found == {longest[:i] for i in range(1, len(longest) + 1)}
    assert longest[:3] == (4, 5, 0)


def test_a_request_may_switch_drafting_off(folder):
    corpus, text = NgramCorpus(draft_token_num=K), [0, 1, 2] * 4
    on = (None, {"ngramkit": True}, {"ngramkit": 1}, {"ngramkit": "true"}, {"top": 1})
    off = ({"ngramkit": said} for said in (False, 0, 0.0, "0", "false", "False", "off"))
    names = dict(zip("abcdefghijkl", (*on, *off), strict=True))
    requests = []
    for name, said in names.items():
        requests.append(Req(name, text[:3], custom=said))
        requests[-1].output_ids = text[3:]
    corpus.see(requests)
    tails, sizes = [text[-DEPTH:]] * len(names), [len(text)] * len(names)
    tokens, _ = corpus.batch_get(list(names), tails, sizes)
    drafted = tokens.reshape(-1, K)[:, 1:].any(axis=1)
    assert drafted.tolist() == [True] * 5 + [False] * 7
    assert corpus.statistics.rows == 5


class Letters:
    """A tokenizer of SGLang's."""

    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return [ord(each) - ord("a") for each in text]


def test_a_request_brings_text(folder):
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    given = {
        "text": "fedcb",
        "ids": [[5, 4, 3], [2, 1]],
        "none": None,
        "wrong": {"a": 1},
        "unknown": [5, 4, VOCABULARY],
        "off": "fedcb",
    }
    requests = []
    for name, value in given.items():
        custom = {"ngramkit_reference": value, **({"ngramkit": "off"} if name == "off" else {})}
        requests.append(Req(name, [9, 9, 9], custom=custom))
        requests[-1].tokenizer = Letters()
        requests[-1].output_ids = [5]
    for _ in range(2):
        drafts = dict(zip(given, decode(corpus, *requests), strict=True))
        assert drafts["text"] == drafts["ids"] == drafts["unknown"] == 4
        assert drafts["none"] == drafts["wrong"] != 4
        assert drafts["off"] == 0
    assert corpus.statistics.unused_references == 1
    corpus.erase_match_state(["text"])
    corpus.reset()


class Characters:
    """A tokenizer with an id for each character."""

    def encode(self, text, add_special_tokens=True):
        return [ord(each) for each in text]


def test_a_json_schema_is_drafted_from(monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, '{"vocabulary": 128}')
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    schema = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
    requests = []
    for name, form in (("schema", schema), ("any", "$$ANY$$"), ("other", 5), ("none", None)):
        requests.append(Req(name, [9, 9, 9]))
        requests[-1].sampling_params.json_schema = form
        requests[-1].tokenizer = Characters()
        requests[-1].output_ids = [ord(each) for each in '{"n']
    assert decode(corpus, *requests) == [ord("a"), 0, 0, 0]
    assert corpus.statistics.unused_references == 0


def test_texts_of_requests_whose_end_is_not_reported_are_dropped(folder, monkeypatch):
    for module in (sglang, request_texts):
        monkeypatch.setattr(module, "MAX_RUNNING_TEXT_TOKENS", 8)
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    for name in "abcdef":
        request = Req(name, [9, 9, 9], custom={"ngramkit_reference": [5, 4, 3, 2]})
        request.output_ids = [5]
        assert decode(corpus, request) == [4]


def growing(monkeypatch, tmp_path, **keys):
    """A history in NGRAMKIT_DRAFT, which grows."""
    said = {"history": str(tmp_path / "h"), "vocabulary": VOCABULARY, "threads": 1, **keys}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(said))
    return tmp_path / "h"


def held(path):
    return sorted((r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0])


class FINISH_ABORT:  # noqa: N801 as SGLang calls it
    pass


class Req:
    """The part of SGLang's request that a corpus sees."""

    def __init__(self, name, prompt, lora=None, salt=None, custom=None):
        self.rid, self.origin_input_ids_unpadded = name, prompt
        self.output_ids, self.finished_reason, self.finished_len = [], None, None
        self.lora_id, self.cache_salt = lora, salt
        self.sampling_params = SimpleNamespace(custom_params=custom)

    @property
    def output_ids_through_stop(self):
        return self.output_ids[: self.finished_len]


def decode(corpus, *requests):
    """A decode batch of the worker; return the first drafted token of each."""
    corpus.see(requests)
    texts = [[*each.origin_input_ids_unpadded, *each.output_ids] for each in requests]
    tokens, _ = corpus.batch_get(
        [each.rid for each in requests], [t[-DEPTH:] for t in texts], [len(t) for t in texts]
    )
    return tokens.reshape(-1, K)[:, 1].tolist()


def test_finished_requests_join_the_history(monkeypatch, tmp_path):
    """SGLang may say a step later that one has finished; one that it took back has not."""
    path = growing(monkeypatch, tmp_path)
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    names = ("late", "retracted", "aborted", "private", "zero", "said", "off")
    custom = {
        "private": {"ngramkit_history": False},
        "zero": {"ngramkit_history": 0},
        "said": {"ngramkit_history": "false"},
        "off": {"ngramkit": "off"},
    }
    requests = {n: Req(n, [9, i, 8], custom=custom.get(n)) for i, n in enumerate(names)}
    for token in (1, 4, 2):
        for each in requests.values():
            each.output_ids.append(token)
        decode(corpus, *requests.values())
    rest = Req("rest", [5, 5])
    decode(corpus, rest)  # all others are gone
    corpus.history.flush()
    assert held(path) == []
    requests["late"].output_ids += [6, 7]
    requests["late"].finished_reason, requests["late"].finished_len = object(), 4
    requests["aborted"].finished_reason = FINISH_ABORT()
    for name in custom:
        requests[name].finished_reason = object()
    decode(corpus, rest, requests["retracted"])
    requests["retracted"].output_ids.append(3)
    decode(corpus, rest, requests["retracted"])
    requests["retracted"].finished_reason = object()
    decode(corpus, rest)
    decode(corpus, rest)
    corpus.history.flush()
    assert held(path) == [([1, 4, 2, 3], 0), ([1, 4, 2, 6], 0)]


def test_an_id_that_is_used_again_has_another_text(folder):
    """SGLang reports the ids that left its decode batches, not the requests."""
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    end = [6, 7, 6, 7, 8, 6]  # as of a chat template
    for i, text in enumerate([[0, 1, 2, 6, 9, 9], [3, 4, 5, 3, 4, 5]], 1):
        text = [*text, *end]
        assert asked(corpus, {"a": text}, [Req("a", text[:3])]) == [alone(folder, text)]
        assert corpus.statistics.requests == i


def test_no_session_of_a_released_request_is_kept(folder, monkeypatch):
    ended = []
    monkeypatch.setattr(Sessions, "end", lambda sessions, name: ended.append(name))
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    retracted = Req("retracted", [0, 1, 2])
    decode(corpus, retracted)
    for i in range(9):
        decode(corpus, Req(f"r{i}", [0, 1, 2]))
    gc.collect()
    decode(corpus, retracted)
    assert len(set(ended)) == 8  # the ninth was in the batch before
    assert corpus.statistics.requests == 10


def test_a_client_may_use_an_id_again(monkeypatch, tmp_path):
    """An idle server has no decode batch that lacks the first request before the next one's."""
    path = growing(monkeypatch, tmp_path)
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    monkeypatch.setenv(CONFIG_VARIABLE, f'{{"vocabulary": {VOCABULARY}}}')
    forgetful = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    for i, (reference, drafted) in enumerate((([5, 4, 3], 4), ([5, 1, 3], 1), (None, 0))):
        request = Req("session", [9, i, 8], custom={"ngramkit_reference": reference})
        request.output_ids.append(5)
        assert decode(forgetful, request) == [drafted]
        request.output_ids.append(drafted)
        decode(corpus, request)
        request.finished_reason = object()
    decode(corpus, Req("other", [9, 9, 9]))
    corpus.history.flush()
    assert held(path) == [([5, 0], 0), ([5, 1], 0), ([5, 4], 0)]


@pytest.mark.parametrize("by", [None, "lora", "salt", "key"])
def test_the_next_request_drafts_from_its_tenants_history(by, monkeypatch, tmp_path):
    growing(monkeypatch, tmp_path, **({"history_by": by} if by else {}))
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    said = np.random.default_rng(2).permutation(VOCABULARY - 2).tolist()

    def right(name, tenant):
        given = {by: tenant} if by in ("lora", "salt") else {}
        one = Req(name, [11, 10], custom={"ngramkit_history": tenant}, **given)
        found = 0
        for i, token in enumerate(said[:-1]):
            one.output_ids.append(token)
            found += decode(corpus, one)[0] == said[i + 1]
        one.output_ids.append(said[-1])
        one.finished_reason = object()
        return found

    first, other, again = right("a", "acme"), right("b", "other"), right("c", "acme")
    assert again >= 6
    assert first <= 2
    assert (other <= 2) == (by is not None)


@pytest.mark.parametrize("by", ["salt", "key"])
def test_no_key_that_a_client_sends_ends_a_step(by, monkeypatch, tmp_path):
    """Half a surrogate pair is a key like any other; lists, and what has no end, are none."""
    path = growing(monkeypatch, tmp_path, history_by=by)
    corpus = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH)
    sent = ["\ud800", {"a": 1}, "x" * 5000, 10**5000, "acme"]
    requests = [
        Req(f"{i}", [1, 2], salt=key, custom={"ngramkit_history": key})
        for i, key in enumerate(sent)
    ]
    for one in requests:
        one.output_ids = [3, 4]
    decode(corpus, *requests)
    for one in requests:
        one.finished_reason = object()
    decode(corpus)
    corpus.history.flush()
    assert {each.name for each in path.iterdir()} == {
        hashlib.sha256(raw).hexdigest()[:32] for raw in (b"", b"\xed\xa0\x80", b"acme")
    }


@pytest.mark.parametrize(
    ("rank", "stage", "replica", "writes"),
    [(0, 0, None, True), (1, 0, None, False), (0, 1, None, False), (0, 0, 0, True),
     (0, 0, 1, False)],
)  # fmt: skip
def test_the_first_rank_of_the_first_replica_writes(
    rank, stage, replica, writes, monkeypatch, tmp_path, caplog
):
    path = growing(monkeypatch, tmp_path)
    serve(monkeypatch, rank, stage=stage, replica=replica)
    corpus, one = NgramCorpus(draft_token_num=K), Req("a", [1, 2])
    one.output_ids = [3, 4]
    decode(corpus, one)
    one.finished_reason = object()
    decode(corpus, Req("b", [1, 2]))
    corpus.history.flush()
    assert held(path) == [([3, 4], 0)] * writes
    assert ("this one remembers in memory" in caplog.text) == bool(replica)


@pytest.mark.parametrize("replica", [None, 0, 1])
def test_ranks_of_a_later_replica_read_no_folder_that_is_written_meanwhile(
    replica, monkeypatch, tmp_path, caplog
):
    path = growing(monkeypatch, tmp_path, history_by="key")
    History.at(path / tenant_folder(""), TokenizerRecord.unknown(VOCABULARY)).append(ids([3, 4]), 0)
    serve(monkeypatch, replica=replica)
    corpus = NgramCorpus(draft_token_num=K)
    assert (corpus.history.past("").tokens == 0) == (replica == 1)
    assert ("does not read tenants' folders" in caplog.text) == (replica == 1)


@pytest.mark.parametrize("option", ["--dp-size", "--data-parallel-size"])
def test_it_is_said_which_replica_writes(option):
    words = ["--speculative-algorithm", "NGRAM", option]
    line = "each data-parallel replica drafts alone; the first one writes the history"
    assert line in list(effects_of_sglang_options(read_options([*words, "2"]), DraftConfig()))
    assert line not in list(effects_of_sglang_options(read_options([*words, "1"]), DraftConfig()))


@pytest.mark.parametrize("said", ["{}", '{"history": true}', '{"history": "%s/chat"}'])
def test_the_documented_first_steps_draft(said, monkeypatch, tmp_path):
    """Neither an artifact nor --tokenizer-path is needed."""
    words = Tokenizer(WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    asked_for = []

    def load(name, **options):
        asked_for.append((name, options["revision"]))
        return SimpleNamespace(backend_tokenizer=words, name_or_path=name)

    monkeypatch.setattr(sglang, "load_engine_tokenizer", load)
    monkeypatch.setenv(CONFIG_VARIABLE, said.replace("%s", str(tmp_path)))
    serve(monkeypatch)
    one = Req("a", [7, 8, 9, 10, 7, 8])
    one.output_ids = [9]
    assert decode(NgramCorpus(draft_token_num=K), one) == [10]
    assert asked_for == [("/m", "v1")] * (said != "{}")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_logs_from_when_on_drafts_cost_time(rank, monkeypatch, caplog):
    caplog.set_level("INFO")
    dense = {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 12_288,
        "vocab_size": 151_936,
    }
    monkeypatch.setenv(CONFIG_VARIABLE, '{"tokens": 3, "budget": 9}')
    serve(monkeypatch, rank, hf_config=dense)
    NgramCorpus(draft_token_num=K)
    assert "drafts in SGLang: these keys have no effect: tokens" in caplog.messages
    requests = stops_paying(pass_times(None, model_size(dense)), K - 1, padded=True)
    assert 1 < requests < 200
    line = (
        "by the model's config, typical drafts of 7 nodes make SGLang slower if "
        f"{requests} or more requests run at once"
    )
    assert (line in caplog.messages) == (rank == 0)
    caplog.clear()
    serve(monkeypatch, rank, hf_config=dense, quantization="fp8")
    NgramCorpus(draft_token_num=K)
    eight = model_size({**dense, "quantization_config": {"bits": 8}})
    sooner = stops_paying(pass_times(None, eight), K - 1, padded=True)
    assert sooner < requests
    assert (f"if {sooner} or more" in caplog.text) == (rank == 0)
    caplog.clear()
    serve(monkeypatch, rank)
    NgramCorpus(draft_token_num=K)
    assert "at once" not in caplog.text


def test_the_models_vocabulary_must_be_known(folder, monkeypatch):
    """No id may leave that the model does not have."""
    serve(monkeypatch, vocabulary=VOCABULARY - 1)
    with pytest.raises(ArtifactError, match="12 tokens"):
        NgramCorpus(draft_token_num=K)
    monkeypatch.delitem(sys.modules, "sglang.srt.runtime_context")
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"datastores": [str(folder)]}))
    with pytest.raises(UsageError, match="vocabulary must be known"):
        NgramCorpus(draft_token_num=K)


def test_sglangs_requests_and_context_have_what_is_read(wheel):
    request = wheel("managers/schedule_batch.py")
    for name in ("finished_reason", "finished_len", "lora_id", "cache_salt"):
        assert f"self.{name}" in request
    assert "def output_ids_through_stop(self)" in request
    assert "class FINISH_ABORT(" in request
    context = wheel("runtime_context.py")
    assert "def get_parallel() " in context
    assert 'placement["dp_rank"] = ranks.dp_rank' in context
    assert '"pp_rank"' in context
    for name in ("get_server_args", "get_serving", "get_model", "get_device"):
        assert f"def {name}() " in context
    models = wheel("configs/model_config.py")
    assert "def from_server_args(" in models
    assert "self.hf_config = " in models
    assert "assert total_draft_token_num == bs * self.draft_token_num" in wheel(
        "speculative/ngram_worker.py"
    )


def test_external_corpora_are_refused(folder):
    corpus = NgramCorpus()
    with pytest.raises(UsageError, match="drafts from datastores"):
        corpus.load_external_corpus_named("c", [[1, 2]])
    assert corpus.list_external_corpora() == {}


def test_installed_but_not_configured_it_changes_nothing(monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "sglang", None)  # importing it fails
    plugin()
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    with pytest.raises(SystemExit, match=r"cannot use ngramkit: .*sglang"):
        plugin()


def test_a_broken_installation_stops_sglang():
    """The import of the entry point must work: SGLang only logs its error."""
    assert error_of_broken_plugin("sglang_plugin") == (
        "cannot use ngramkit: import of ngramkit.engines.request_texts halted; None in sys.modules"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [('{"datastores": ["/nowhere"]}', "no such artifact: /nowhere"), ("{", "not JSON")],
)
def test_a_wrong_configuration_ends_the_server_before_it_loads_a_model(text, says, monkeypatch):
    """SGLang logs what else a plugin raises, and would serve with its own corpus."""
    monkeypatch.setenv(CONFIG_VARIABLE, text)
    monkeypatch.setitem(sys.modules, "sglang", None)  # importing it fails
    with pytest.raises(SystemExit, match=says):
        plugin()


def test_a_process_that_does_not_draft_imports_no_numba(folder):
    """SGLang's tokenizer manager, detokenizer and server run the plugin too."""
    registered = """
import sys
from types import SimpleNamespace
from ngramkit.engines.sglang_plugin import plugin
from ngramkit.engines.sglang_server_options import effects_of_sglang_options
kinds, hooks = SimpleNamespace(REPLACE="replace", AROUND="around"), []
registry = SimpleNamespace(register=lambda target, *hook: hooks.append(hook))
sys.modules["sglang.srt.plugins.hook_registry"] = SimpleNamespace(
    HookRegistry=registry, HookType=kinds
)
plugin()
heavy = {"numba", "llvmlite", "pyarrow", "transformers", "torch"}
print(len(hooks), sorted(heavy & sys.modules.keys()))
corpus = hooks[0][0](draft_token_num=8)
print(type(corpus).__name__, "numba" in sys.modules)
"""
    command = [sys.executable, "-c", registered]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.stdout.splitlines() == ["4 []", "NgramCorpus True"], run.stderr


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (None, None),
        ({}, None),
        ({"ngramkit_reference": ["text", [5, VOCABULARY - 1]]}, None),
        ({"ngramkit_reference": {"text": 1}}, "must be texts or lists of token ids, got dict"),
        ({"ngramkit_reference": [1.5]}, "got float"),
        ({"ngramkit_reference": [VOCABULARY]}, "must be below"),
        ({"ngramkit_reference": "x" * (1 << 19)}, "must have at most"),
        ({"ngramkit_templates": ["{}"]}, None),
        ({"ngramkit_templates": 5}, "got int"),
        ({"ngramkit": False, "ngramkit_history": "acme", "mine": 1}, None),
        ({"ngramkit_histroy": False}, "unknown parameter 'ngramkit_histroy'"),
        ({"ngramkit": "maybe"}, "ngramkit must be true or false, got 'maybe'"),
    ],
)
def test_a_wrong_text_is_an_error_of_its_request(said, wrong):
    verified = []
    parameters = SimpleNamespace(custom_params=said)
    expected = nullcontext() if wrong is None else pytest.raises(ValueError, match=wrong)
    with expected:
        with_text(lambda *given: verified.append(given), parameters, VOCABULARY)
    assert verified == [(parameters, VOCABULARY)]


def test_tools_of_a_chat_are_drafted_from(monkeypatch):
    def tool(name, schema):
        return SimpleNamespace(function=SimpleNamespace(name=name, parameters=schema))

    def carried(choice, said=None):
        request = SimpleNamespace(tools=tools, tool_choice=choice)
        return with_templates(lambda *given: {"custom_params": said}, request, [], {})

    tools = [tool("f", {"properties": {"name": {"type": "string"}}}), tool("g", None)]
    said = {"ngramkit": True}
    assert carried("auto", said)["custom_params"] == {
        "ngramkit": True,
        "ngramkit_templates": [
            '{"name": "f", "arguments": {"name":""}}',
            '{"name": "f", "arguments": {"name": ""}}',
            '{"name": "g", "arguments": {}}',
        ],
    }
    assert said == {"ngramkit": True}
    assert carried("none") == {"custom_params": None}
    named = SimpleNamespace(function=SimpleNamespace(name="g"))
    custom = carried(named)["custom_params"]
    assert custom == {"ngramkit_templates": ['{"name": "g", "arguments": {}}']}
    monkeypatch.setenv(CONFIG_VARIABLE, '{"vocabulary": 128}')
    corpus, requests = NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH), []
    for name, params in (("tools", custom), ("none", None)):
        requests.append(Req(name, [9, 9, 9], custom=params))
        requests[-1].tokenizer = Characters()
        requests[-1].output_ids = [ord(each) for each in '{"name": "g"']
    with_tools, without = decode(corpus, *requests)
    assert with_tools == ord(",") != without
    both = Req("both", [9, 9, 9], custom={**custom, "ngramkit_reference": "old text, or a call"})
    both.tokenizer = Characters()
    for written, following in (("old te", "x"), ('old {"name": "g"', ",")):
        both.output_ids = [ord(each) for each in written]
        assert decode(corpus, both) == [ord(following)]


def test_sglangs_chats_have_what_is_wrapped(wheel):
    source = wheel("entrypoints/openai/protocol.py")
    chats = source[source.index("class ChatCompletionRequest(") :]
    for text in (
        "    tools: Optional[List[Tool]]",
        "    tool_choice: Union[ToolChoice, ",
        "    def to_sampling_params(",
        '"custom_params": self.custom_params',
    ):
        assert text in chats
    serving = wheel("entrypoints/openai/serving_chat.py")
    assert "sampling_params = request.to_sampling_params(" in serving


@pytest.fixture
def wheel():
    name = os.environ.get("NGRAMKIT_SGLANG_WHEEL")
    if not name:
        pytest.skip("NGRAMKIT_SGLANG_WHEEL does not name SGLang's wheel")
    archive = zipfile.ZipFile(name)
    return lambda path: archive.read(f"sglang/srt/{path}").decode()


def module(monkeypatch, name, source="", **attributes):
    made = ModuleType(name)
    vars(made).update(attributes)
    made.__path__ = []
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(source, name, "exec"), vars(made))
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


def test_sglangs_own_hooks_and_unpacking(folder, wheel, monkeypatch):
    for name in (
        "",
        ".srt",
        ".srt.plugins",
        ".srt.speculative",
        ".srt.speculative.cpp_ngram",
        ".srt.sampling",
        ".srt.entrypoints",
        ".srt.entrypoints.openai",
    ):
        module(monkeypatch, f"sglang{name}")
    for name in ("", ".ops", ".ops.speculative"):
        module(monkeypatch, f"sglang.kernels{name}")
    name = "sglang.kernels.ops.speculative.ngram_corpus"
    module(monkeypatch, name, get_ngram_corpus_cls=lambda: None)
    hooks = module(
        monkeypatch, "sglang.srt.plugins.hook_registry", wheel("plugins/hook_registry.py")
    )
    name = "sglang.srt.speculative.cpp_ngram.ngram_corpus"
    theirs = module(monkeypatch, name, wheel("speculative/cpp_ngram/ngram_corpus.py"))
    original = theirs.NgramCorpus
    # Of the worker only what prepares drafts and reads masks, without torch.
    source = wheel("speculative/ngram_worker.py")
    tree = ast.parse(source)
    worker = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "NGRAMWorker")
    wanted = ("_prepare_draft_tokens", "_efficient_concat_last_n")
    worker.body = [n for n in worker.body if getattr(n, "name", "") in wanted]
    worker.bases = []
    kept = [n for n in tree.body if getattr(n, "name", "") == "_derive_tree_links"]
    code = "\n".join(
        ["from __future__ import annotations", *(ast.unparse(n) for n in (*kept, worker))]
    )
    torch = SimpleNamespace(from_numpy=lambda array: array)
    running = module(
        monkeypatch, "sglang.srt.speculative.ngram_worker", code, np=np, torch=torch,
        NgramCorpus=original,
    )  # fmt: skip
    name = "sglang.srt.sampling.sampling_params"
    assert "    def verify(self, vocab_size):" in wheel("sampling/sampling_params.py")
    assert "sampling_params.verify(" in wheel("managers/tokenizer_manager.py")
    sampling = module(
        monkeypatch, name, "class SamplingParams:\n    def verify(self, vocab_size): ..."
    )
    chats = "class ChatCompletionRequest:\n    def to_sampling_params(self): return {}"
    protocol = module(monkeypatch, "sglang.srt.entrypoints.openai.protocol", chats)
    plugin()
    hooks.HookRegistry.apply_hooks()
    chat = protocol.ChatCompletionRequest()
    function = SimpleNamespace(name="f", parameters=None)
    chat.tools, chat.tool_choice = [SimpleNamespace(function=function)], "auto"
    assert "ngramkit_templates" in chat.to_sampling_params()["custom_params"]
    parameters = sampling.SamplingParams()
    parameters.custom_params = {"ngramkit_reference": 5}
    with pytest.raises(ValueError, match="must be texts"):
        parameters.verify(VOCABULARY)
    assert theirs.NgramCorpus is running.NgramCorpus is LateCorpus
    made = running.NGRAMWorker()
    made.ngram_corpus = running.NgramCorpus(draft_token_num=K, max_trie_depth=DEPTH, capacity=1)
    assert isinstance(made.ngram_corpus, NgramCorpus)
    made.draft_token_num, made.max_trie_depth, made.enable_overlap = K, DEPTH, False
    texts = {"a": [0, 1, 2] * 5, "b": [5, 3, 1, 5, 3]}
    batch = SimpleNamespace(reqs=[Req(name, text[:3]) for name, text in texts.items()])
    for one in batch.reqs:
        one.output_ids = texts[one.rid][3:]
    prepare, derive = "_prepare_draft_tokens", "_derive_tree_links"  # theirs
    tokens, mask = getattr(made, prepare)(batch)
    for row, text in enumerate(texts.values()):
        square = mask.reshape(-1, K, K)[row]
        own = tokens.reshape(-1, K)[row]
        wanted_paths = alone(folder, text)
        leaves = original.leaf_paths_from_mask(None, own.tolist(), square.tolist())
        found = {tuple(path[1:]) for path in leaves} - {(0,)}
        every = {path[:i] for path in found for i in range(1, len(path) + 1)}
        assert every - {(0,)} == wanted_paths
    following, _ = getattr(running, derive)(mask, len(texts), K)
    assert (following[:, 0] == 1).all()


def test_the_entry_point_is_the_plugin():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    points = tomllib.loads(text)["project"]["entry-points"]["sglang.srt.plugins"]
    assert resolve_name(points["ngramkit"]) is plugin
