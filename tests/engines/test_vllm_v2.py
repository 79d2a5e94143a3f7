"""vLLM's Model Runner V2: the plugin, the speculator, and what they use of vLLM's sources."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from test_vllm import VOCABULARY, released

from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.engines import vllm_hooks, vllm_options, vllm_plugin, vllm_wanted
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.growing_history import tenant_folder
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

ROOT = Path(__file__).parents[2]
SLOTS, ROWS, LONGEST, VERSION = 4, 6, 64, "0.33.0"
MODULES = ("vllm.v1.worker.gpu.spec_decode.speculator", "vllm.utils.gpu_sync_debug")


@pytest.fixture
def v2(monkeypatch):
    """The module of the speculator, over stand-ins of the two modules that it imports of vLLM."""
    packages = {name.rsplit(".", i)[0] for name in MODULES for i in range(name.count(".") + 1)}
    for name in sorted(packages):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[MODULES[0]].BaseSpeculator = object
    sys.modules[MODULES[1]].gpu_sync_allowed = nullcontext
    monkeypatch.delitem(sys.modules, "ngramkit.engines.vllm_v2", raising=False)
    yield importlib.import_module("ngramkit.engines.vllm_v2")
    sys.modules.pop("ngramkit.engines.vllm_v2", None)


def options(*, asynchronous=False, adaptive=False, method="ngram", runner=True, **additional):
    """The part of a VllmConfig that is read."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            method=method, num_speculative_tokens=SLOTS, enable_adaptive_verification=adaptive
        ),
        model_config=SimpleNamespace(max_model_len=LONGEST, get_vocab_size=lambda: VOCABULARY),
        scheduler_config=SimpleNamespace(max_num_seqs=ROWS, async_scheduling=asynchronous),
        parallel_config=SimpleNamespace(rank=0, tensor_parallel_size=1, data_parallel_index=0),
        device_config=SimpleNamespace(device_type="cpu"),
        lora_config=None,
        use_v2_model_runner=runner,
        additional_config=additional,
    )


class States:
    """vLLM's RequestState: tokens and lengths, by the index of a request."""

    def __init__(self):
        self.total_len = SimpleNamespace(gpu=torch.zeros(ROWS, dtype=torch.int32))
        tokens = torch.full((ROWS, LONGEST), 9, dtype=torch.int32)
        self.all_token_ids = SimpleNamespace(gpu=tokens)
        self.prompt_len = SimpleNamespace(np=np.zeros(ROWS, np.int32))
        self.req_id_to_index = {}


def new_request(name, prompt, tokens=None, *, embedded=False, pictures=(), lora=None, **sampling):
    """A NewRequestData."""
    said = {
        "stop": [], "stop_token_ids": [], "eos_token_id": None, "max_tokens": 1000,
        "min_tokens": 0, "skip_special_tokens": True,
        "extra_args": None, **sampling,
    }  # fmt: skip
    return SimpleNamespace(
        req_id=name,
        prefill_token_ids=list(tokens or prompt),
        prompt_len=len(prompt),
        sampling_params=SimpleNamespace(**said),
        lora_request=lora and SimpleNamespace(lora_name=lora),
        mm_features=list(pictures),
        prompt_embeds=object() if embedded else None,
    )


class Runner:
    """The part of vLLM's GPUModelRunner that makes requests and asks for drafts."""

    def __init__(self, speculator, states):
        self.speculator, self.req_states, self.order = speculator, states, []

    def add_requests(self, scheduler_output):
        for new in scheduler_output.scheduled_new_reqs:
            self._remove(new.req_id)
            index = min(set(range(ROWS)) - set(self.req_states.req_id_to_index.values()))
            self.req_states.req_id_to_index[new.req_id] = index
            self.req_states.prompt_len.np[index] = new.prompt_len
            self.req_states.total_len.gpu[index] = len(new.prefill_token_ids)
            ids = torch.tensor(new.prefill_token_ids, dtype=torch.int32)
            self.req_states.all_token_ids.gpu[index, : len(ids)] = ids
            self.order.append(new.req_id)

    def finish_requests(self, scheduler_output):
        gone = scheduler_output.finished_req_ids | set(scheduler_output.preempted_req_ids or ())
        for name in sorted(gone):
            self._remove(name)

    def take_draft_token_ids(self):
        return SimpleNamespace(
            req_ids=self.order, draft_token_ids=[[-1] * SLOTS for _ in self.order]
        )

    def _remove(self, name):
        if self.req_states.req_id_to_index.pop(name, None) is not None:
            self.order.remove(name)

    def schedule(self, *new, finished=(), preempted=None):
        output = SimpleNamespace(
            scheduled_new_reqs=list(new),
            finished_req_ids=set(finished),
            preempted_req_ids=preempted,
        )
        self.finish_requests(output)
        self.add_requests(output)

    def step(self, slots=None, verified=None, **written):
        """Append tokens to the named requests; return each row's draft.

        `verified`: drafted tokens of each request in the step.
        """
        index = [self.req_states.req_id_to_index[name] for name in self.order]
        counts = torch.zeros(len(index), dtype=torch.int32)
        for i, (name, row) in enumerate(zip(self.order, index, strict=True)):
            tokens = written.get(name, [])
            begin = int(self.req_states.total_len.gpu[row])
            self.req_states.all_token_ids.gpu[row, begin : begin + len(tokens)] = torch.tensor(
                tokens, dtype=torch.int32
            )
            self.req_states.total_len.gpu[row] = begin + len(tokens)
            counts[i] = len(tokens)
        batch = SimpleNamespace(
            num_reqs=len(index),
            req_ids=list(self.order),
            idx_mapping=torch.tensor(index, dtype=torch.int64),
            idx_mapping_np=np.array(index),
            num_draft_tokens_per_req=None
            if verified is None
            else np.array([verified.get(name, 0) for name in self.order]),
        )
        drafts = self.speculator.propose(
            batch, None, None, None, None, counts, None, None, None, None, None,
            num_speculative_tokens=slots,
        )  # fmt: skip
        found = dict(zip(self.order, drafts.tolist(), strict=True))
        drafts[:, 0 if slots is None else slots :] = -1  # as vLLM does
        return found


@pytest.fixture
def make(v2, monkeypatch, token_store, tmp_path):
    """Make a watched runner, whose speculator drafts 0 1 2 ... 7 0 from a datastore."""
    text = [0, 1, 2, 3, 4, 5, 6, 7] * 3
    build_datastore(token_store([text], VOCABULARY), tmp_path / "d")

    def made(draft=None, **given):
        said = {"datastores": [f"{tmp_path}/d"], "min_probability": 0.1, "pause": False}
        monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({**said, **(draft or {})}))
        states = States()
        speculator = v2.Speculator(options(**given), torch.device("cpu"), states)
        watched = type("GPUModelRunner", (Runner,), dict(vars(Runner)))
        v2.show_requests_to_speculators(watched)
        v2.show_requests_to_speculators(watched)
        return watched(speculator, states)

    return made


def test_a_row_follows_its_request(make):
    """Rows move, a prompt comes in chunks, one is preempted and comes back, K changes."""
    runner = make(asynchronous=True)
    runner.schedule(new_request("a", [0, 1]), new_request("b", [4, 5]))
    assert runner.step(a=[2], b=[])["a"] == [3, 4, 5, 6]
    runner.order.reverse()
    assert runner.step(a=[3, 4, 5], b=[6]) == {"b": [7, 0, 1, 2], "a": [6, 7, 0, 1]}
    assert runner.step(slots=2, a=[6], b=[7, 0])["b"][:2] == [1, 2]
    assert runner.step(slots=0, a=[7], b=[1])["b"] == [1] * SLOTS
    runner.schedule(preempted={"b"})
    assert runner.step(a=[0])["a"] == [1, 2, 3, 4]
    runner.schedule(new_request("b", [4, 5], [4, 5, 6, 7, 0, 1]))
    assert runner.step(a=[1], b=[2])["b"] == [3, 4, 5, 6]
    requests = runner.speculator.requests
    assert requests.rows.resynced == 0
    assert requests.batch.statistics.requests == 2


def test_the_draft_of_a_preempted_request_is_not_counted(make):
    """vLLM drops it, and the request goes on with one token of its own."""
    runner = make()
    runner.schedule(new_request("a", [0, 1]))
    assert runner.step(a=[2])["a"][0] == 3
    runner.schedule(preempted={"a"})
    runner.schedule(new_request("a", [0, 1], [0, 1, 2]))
    drafted = len(runner.step(a=[3])["a"])
    counts = runner.speculator.batch.statistics
    assert counts.accepted_tokens == 0
    runner.step(a=[4, 0])
    assert (counts.accepted_tokens, counts.requests, drafted) == (1, 1, SLOTS)


def test_a_row_that_differs_from_the_engine_is_copied_again(make):
    runner = make()
    runner.schedule(new_request("a", [0, 1]))
    runner.step(a=[2])
    runner.req_states.total_len.gpu[0] += 1
    runner.req_states.all_token_ids.gpu[0, 3] = 5
    assert runner.step(a=[6])["a"][:2] == [7, 0]
    assert runner.speculator.requests.rows.resynced == 1


def test_every_draft_is_a_fresh_drafters(make):
    random, runner, waiting = np.random.default_rng(7), make(), []
    config = DraftConfig(min_probability=0.1, pause=False)
    names = iter(f"r{i}" for i in range(1000))
    compared = 0
    for _ in range(120):
        if len(runner.order) < ROWS - 1:
            name, tokens = waiting.pop() if waiting else (next(names), [0, 1])
            runner.schedule(new_request(name, [0, 1], tokens))
        lengths = {n: int(runner.req_states.total_len.gpu[i])
                   for n, i in runner.req_states.req_id_to_index.items()}  # fmt: skip
        if random.random() < 0.2 or max(lengths.values()) > LONGEST - 8:
            name = max(lengths, key=lengths.get)
            index = runner.req_states.req_id_to_index[name]
            tokens = runner.req_states.all_token_ids.gpu[index, : lengths[name]].tolist()
            if lengths[name] > LONGEST - 8:
                runner.schedule(finished={name})
            else:
                runner.schedule(preempted={name})
                waiting.append((name, tokens))
        written = {
            name: random.integers(0, 8, random.integers(0, 4)).tolist() for name in runner.order
        }
        slots = int(random.integers(0, SLOTS + 1))
        runner.step(slots=slots, **written)
        taken = dict(zip(runner.order, runner.take_draft_token_ids().draft_token_ids, strict=True))
        for name in runner.order:
            if not written[name]:
                assert taken[name] == []
                continue
            index = runner.req_states.req_id_to_index[name]
            total = int(runner.req_states.total_len.gpu[index])
            row = runner.req_states.all_token_ids.gpu[index, :total].numpy()
            fresh = BatchDrafter(runner.speculator.batch.source, config)
            length = max(min(slots, LONGEST - total - 1), 0)
            [wanted] = fresh.chain_batch([row], [length], asked=[Asked(2)])
            assert len(taken[name]) == len(wanted)
            compared += len(wanted) > 0
    assert compared > 30
    assert runner.speculator.requests.rows.resynced == 0


@pytest.mark.parametrize(
    ("given", "mode"),
    [({}, "trimmed"), ({"asynchronous": True}, "fixed"),
     ({"asynchronous": True, "adaptive": True}, "adaptive")],
)  # fmt: skip
def test_the_mode_follows_from_vllms_options(given, mode, make, caplog):
    caplog.set_level("INFO")
    runner = make({"datastores": [], "drafter": "prompt-lookup"}, **given)
    assert f"Model Runner V2, {mode}" in caplog.text
    runner.schedule(new_request("a", [3, 4, 5, 6, 3, 4]))
    drafts = runner.step(a=[5])["a"]
    assert drafts[:2] == [6, 3]
    taken = runner.take_draft_token_ids().draft_token_ids
    confidence = runner.speculator.draft_token_confidence_probs[0].tolist()
    if mode == "trimmed":
        assert len(taken[0]) < SLOTS or drafts == [6, 3, 4, 5]
    else:
        assert taken == [[-1] * SLOTS]
    assert (max(confidence) > 0) == (mode == "adaptive")


@pytest.mark.parametrize(
    ("given", "drafted", "unused"),
    [
        ({}, 2, "budget"),
        ({"asynchronous": True}, 4, "tokens, budget, min_probability, clock, pause"),
        ({"asynchronous": True, "adaptive": True}, 2,
         "budget, min_probability, clock, pause"),
    ],
    ids=["trimmed", "fixed", "adaptive"],
)  # fmt: skip
def test_keys_without_an_effect_are_logged(given, drafted, unused, make, caplog):
    """All slots are filled in the fixed mode, beyond `tokens` too."""
    said = {"tokens": 2, "budget": 5, "min_probability": 0.1, "clock": False}
    runner = make(said, **given)
    assert f"mode: these keys have no effect: {unused}\n" in caplog.text
    runner.schedule(new_request("a", [0, 1]))
    draft = runner.step(a=[2])["a"]
    assert draft == [3, 4, 5, 6][:drafted] + [2] * (SLOTS - drafted)


def test_slots_without_a_draft_repeat_the_last_token(make):
    runner = make(asynchronous=True)
    runner.schedule(new_request("a", [8] * 5), new_request("b", [0, 1]))
    drafts = runner.step(a=[8], b=[2])
    assert drafts["b"] == [3, 4, 5, 6]
    runner.schedule(new_request("c", [9, 3], extra_args={"ngramkit": 0}))
    assert runner.step(a=[8], b=[3], c=[11])["c"] == [11] * SLOTS
    assert runner.speculator.filled >= 0


def test_the_product_of_confidences_is_the_score_of_the_path(v2):
    scores = np.array([[0.9, 0.45, 0.09, 0.0], [0, 0, 0, 0]], np.float32)
    drafted = np.array([[1, 1, 1, 0], [0, 0, 0, 0]], bool)
    found = v2.confidence_probs(scores, drafted)
    assert np.allclose(np.cumprod(found, 1)[0, :3], scores[0, :3])
    assert found[0, 3] == 0
    assert not found[1].any()
    assert found.dtype == np.float32


def test_vllms_own_requests_are_never_counted_or_remembered(make, tmp_path):
    runner = make({"history": str(tmp_path / "h")})
    for name in ("_warmup_0_", "_v2_mixed_warmup_decode_"):
        runner.schedule(new_request(name, [0, 1], max_tokens=2))
        assert runner.step(**{name: [2]})[name] == [2] * SLOTS
        runner.step(**{name: [3]})
        runner.schedule(finished={name})
    dummy = SimpleNamespace(num_reqs=3)
    drafts = runner.speculator.propose(dummy, *[None] * 10, dummy_run=True)
    assert drafts.tolist() == [[0] * SLOTS] * 3
    assert runner.speculator.batch.statistics.requests == 0
    assert kept(tmp_path / "h", runner) == []


def kept(path, runner):
    """What the history holds once it is written."""
    runner.speculator.batch.history.flush()
    if not list(path.glob("*")):
        return []
    return sorted((r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0])


def test_what_finished_is_remembered(make, tmp_path):
    """Not what was aborted, preempted, private, without ids of its own, or a beam."""
    path = tmp_path / "h"
    runner = make({"history": str(path)})
    private = {"extra_args": {"ngramkit_history": 0}}
    requests = [
        new_request("eos", [1, 1], eos_token_id=7),
        new_request("length", [1, 2], max_tokens=3),
        new_request("aborted", [1, 3]),
        new_request("stop", [1, 4], stop=["\n"]),
        new_request("private", [1, 5], max_tokens=2, **private),
        new_request("embedded", [0, 0], max_tokens=2, embedded=True),
    ]
    runner.schedule(*requests)
    runner.step(**{each.req_id: [3, 4] for each in requests})
    runner.schedule(finished={"private", "embedded"}, preempted={"eos"})
    runner.step(length=[5, 6], aborted=[5], stop=[5])
    runner.schedule(
        new_request("eos", [1, 1], [1, 1, 3, 4], eos_token_id=7),
        new_request("0-beam-1", [1, 6], max_tokens=1),
        new_request("picture", [1, 7], max_tokens=2, pictures=[object()]),
        finished={"length", "aborted", "stop"},
    )
    drafts = runner.step(eos=[7, 8], **{"0-beam-1": [3], "picture": [3, 4]})
    assert drafts["eos"] == [8] * SLOTS  # it has ended
    runner.schedule(finished={"eos", "0-beam-1", "picture"})
    assert kept(path, runner) == [([3, 4, 5], 0), ([3, 4, 5, 6][:3], 0), ([3, 4, 7], 0)]


def test_the_last_request_is_remembered_at_the_end(make, tmp_path):
    """Its end would arrive with a step that never comes."""
    runner = make({"history": str(tmp_path / "h")})
    runner.schedule(
        new_request("done", [1, 2], max_tokens=2),
        new_request("running", [1, 3]),
        new_request("stopped", [1, 4], stop=["no", "hi"]),
        new_request("stops later", [1, 5], stop=["x"]),
        new_request("too short", [1, 6], stop=["h"], min_tokens=2),
    )
    runner.step(**{name: [7, 8, 9] for name in runner.order if name != "done"}, done=[5, 6])
    batch = runner.speculator.batch
    history = batch.history
    batch.decode = lambda ids, *, skip_special_tokens: "".join("hi!"[i - 7] for i in ids)
    runner.speculator.requests = None
    history.flush()
    kept = [r.tokens.tolist() for r in History.open(tmp_path / "h").news()[0]]
    assert kept == [[5, 6], [7, 8]]
    assert batch.history is history


def test_without_a_tokenizer_a_stop_text_proves_no_end(make, tmp_path):
    runner = make({"history": str(tmp_path / "h")})
    runner.schedule(new_request("stopped or running", [1, 4], stop=["x"]))
    runner.step(**{"stopped or running": [5, 6]})
    batch = runner.speculator.batch
    runner.speculator.requests = None
    batch.history.flush()
    assert list((tmp_path / "h").glob("*")) == [] or not History.open(tmp_path / "h").news()[0]


def test_zeros_of_a_prompt_embedding_are_not_drafted_from(make):
    runner = make(asynchronous=True)
    runner.schedule(new_request("a", [0] * 5, embedded=True))
    assert runner.step(a=[3])["a"] == [4, 5, 6, 7]
    assert runner.speculator.requests.rows.get("a").tokens.tolist() == [3]
    assert runner.step(a=[4, 5])["a"] == [6, 7, 0, 1]
    assert runner.speculator.requests.rows.resynced == 0


def test_a_streaming_update_replaces_its_row(make):
    """It begins again under its id, and nothing says that it has ended."""
    runner = make(asynchronous=True)
    runner.schedule(new_request("a", [0, 1]))
    runner.step(a=[2, 3])
    runner.schedule(new_request("a", [0, 1, 2, 6]))
    assert runner.step(a=[7])["a"][:3] == [0, 1, 2]
    assert len(runner.speculator.requests.rows) == 1
    assert runner.speculator.requests.batch.statistics.requests == 1


def with_text(*ids, **more):
    """Parameters as vLLM's front end sends them."""
    return {"extra_args": {"ngramkit_reference_ids": list(ids), **more}}


def test_a_request_is_drafted_for_from_its_own_text(make):
    """Also when it was preempted; another request never is."""
    runner = make({"datastores": [], "drafter": "blend"}, asynchronous=True)
    text = with_text(6, 5, VOCABULARY, -1, 2, 9, 3, 8, 1, 7)  # of a token that the model lacks
    runner.schedule(
        new_request("a", [0, 1], **text),
        new_request("b", [0, 1]),
        new_request("off", [0, 1], extra_args={**text["extra_args"], "ngramkit": "off"}),
        new_request("wrong", [0, 1], **with_text(1.5)),
    )
    drafts = runner.step(a=[2], b=[2], off=[2], wrong=[2])
    assert drafts["a"][:2] == [9, 3]
    assert drafts["b"] == drafts["off"] == drafts["wrong"] == [2] * SLOTS
    requests = runner.speculator.requests
    assert requests.batch.statistics.unused_references == 1
    assert requests.texts.tokens == 9
    runner.schedule(preempted={"a"})
    assert requests.texts.tokens == 0
    runner.schedule(new_request("a", [0, 1], [0, 1, 2, 9, 3], **text), finished={"b"})
    assert runner.step(a=[8])["a"][:2] == [1, 7]
    runner.schedule(finished={"a", "wrong", "off"})
    assert len(requests.texts) == 0


def test_a_text_is_never_remembered(make, tmp_path):
    runner = make({"datastores": [], "history": str(tmp_path / "h")})
    runner.schedule(new_request("a", [0, 1], max_tokens=2, **with_text(6, 5, 4, 3)))
    runner.step(a=[6, 5])
    runner.schedule(finished={"a"})
    assert kept(tmp_path / "h", runner) == [([6, 5], 0)]


@pytest.mark.parametrize("mode", ["trimmed", "fixed", "adaptive"])
def test_tokens_of_a_prediction_are_counted(mode, make):
    """Those that were verified; nothing beyond the answer's end was accepted."""
    given = {"asynchronous": mode != "trimmed", "adaptive": mode == "adaptive"}
    runner = make({"datastores": [], "min_probability": 0.0}, **given)
    own = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    predicted = with_text(*own, ngramkit_prediction=own)
    text = {**predicted["extra_args"], "ngramkit_prediction": "not encoded by our front end"}
    runner.schedule(
        new_request("0_chat-1-0123abcd", [0, 1], max_tokens=8, **predicted),
        new_request("1_chat-1-0123abcd", [0, 1], **predicted),
        new_request("chat-2-0123abcd", [0, 1], extra_args=text),
        new_request("chat-3-0123abcd", [0, 1], stop=["x"], **predicted),
    )
    first, second, other, _ = runner.order
    counts = runner.speculator.requests.predicted
    runner.step(verified={}, **{first: [2], second: [2], other: [2]})
    # Of 3 4 5 6 the first accepts two, the second all of those that were verified.
    runner.step(verified={first: 4, second: 2}, **{first: [3, 4, 9], second: [3, 4, 5], other: [3]})
    if mode == "adaptive":
        assert counts("chat-1", 2) is None
        return
    assert counts("chat-1", 2) == (4, 2)
    assert counts("chat-1", 1) is None
    assert counts("chat-2", 1) is counts("chat-3", 1) is None
    drafts = runner.step(verified={}, **{first: [10], second: [6], other: [4]})
    assert drafts[first][:1] == [11]
    runner.step(verified={first: 1}, **{first: [11, 5, 5, 5]})  # its answer has 8 tokens
    runner.schedule(finished={first, second})
    assert counts("chat-1", 2) == (5, 2)
    report = runner.speculator.requests.report_predicted
    assert report("chat-1", 1) is None
    assert (report("chat-1", 2), report("chat-1", 2)) == ((5, 2), None)
    runner.schedule(new_request("chat-1-4567cdef", [0, 1], **predicted))  # a client's own id
    again = runner.order[-1]
    runner.step(verified={}, **{again: [2]})
    runner.step(verified={again: 4}, **{again: [3, 4, 5, 6, 7]})
    assert report("chat-1", 1) == (4, 0)


@pytest.mark.parametrize("key", ["ngramkit_template_ids", "ngramkit_reference"])
def test_tokens_of_other_texts_do_not_count_as_predicted(key, make):
    """The answer repeats the prediction, then another text, which shares tokens with it."""
    runner = make({"datastores": [], "min_probability": 0.0}, asynchronous=True)
    own, other = [2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 0, 4, 5, 1]
    said = {"ngramkit_prediction": own}
    if key == "ngramkit_reference":
        said |= with_text(*own, -1, *other, ngramkit_reference=other)["extra_args"]
    else:
        said |= with_text(*own, ngramkit_template_ids=other)["extra_args"]
    runner.schedule(new_request("chat-1-0123abcd", [0, 1], extra_args=said))
    (name,) = runner.order

    def counts_after(drafted, written):
        drafts = runner.step(verified={name: drafted}, **{name: written})[name]
        return drafts, runner.speculator.requests.predicted("chat-1", 1)

    drafts, counts = counts_after(0, [2])
    assert (drafts, counts) == ([3, 4, 5, 6], (0, 0))
    drafts, counts = counts_after(4, [3, 4, 5, 8, 9])
    assert (drafts[:3], counts) == ([10, 11, 0], (3, 1))
    drafts, counts = counts_after(3, [10, 11, 7])
    assert counts == (3, 1)
    drafts, counts = counts_after(0, [9, 10, 11, 0])
    assert (drafts[:3], counts) == ([4, 5, 1], (3, 1))
    assert counts_after(3, [4, 5, 6])[1] == (3, 1)


@pytest.mark.parametrize("by", ["lora", "key"])
def test_a_tenant_has_a_history_of_its_own(by, make, tmp_path):
    runner = make({"datastores": [], "history": str(tmp_path / "h"), "history_by": by})
    said = np.random.default_rng(3).integers(0, VOCABULARY, 20).tolist()

    def right(name, tenant):
        given = {"lora": tenant} if by == "lora" else {"extra_args": {"ngramkit_history": tenant}}
        runner.schedule(new_request(name, [1, 2], max_tokens=20, **given))
        drafts = [runner.step(**{name: [token]})[name][0] for token in said]
        runner.schedule(finished={name})
        return sum(draft == said[i + 1] for i, draft in enumerate(drafts[:-1]))

    first, other, second = right("a", "acme"), right("b", "other"), right("c", "acme")
    assert second >= 14
    assert max(first, other) < 8


def test_a_tenants_folder_is_read_when_a_request_begins(make, tmp_path):
    """Other ranks read the same, which one of them writes when the request ends."""
    runner = make({"datastores": [], "history": str(tmp_path / "h"), "history_by": "key"})
    said = {"ngramkit": False, "ngramkit_history": "acme"}
    runner.schedule(new_request("a", [1, 2], extra_args=said))
    runner.step(a=[3])
    record = TokenizerRecord.unknown(VOCABULARY)
    History.at(tmp_path / "h" / tenant_folder("acme"), record).append(np.array([4, 5], np.int32), 0)
    runner.schedule(finished={"a"})
    assert runner.speculator.batch.history.past("acme").tokens == 0


@pytest.mark.parametrize(("ranks", "read"), [(1, True), (2, False)])
def test_ranks_of_a_later_engine_read_no_folder_that_is_written_meanwhile(
    ranks, read, v2, monkeypatch, tmp_path, caplog
):
    said = {"history": str(tmp_path / "h"), "history_by": "key"}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(said))
    folder = tmp_path / "h" / tenant_folder("acme")
    History.at(folder, TokenizerRecord.unknown(VOCABULARY)).append(np.array([4, 5], np.int32), 0)
    given = options()
    given.parallel_config = SimpleNamespace(
        rank=0, tensor_parallel_size=ranks, world_size=ranks, data_parallel_index=1
    )
    speculator = v2.Speculator(given, torch.device("cpu"), States())
    assert (speculator.batch.history.past("acme").tokens > 0) == read
    assert "alone writes" in caplog.text
    assert ("does not read tenants' folders" in caplog.text) != read


@pytest.mark.parametrize(
    ("rank", "size", "prefill", "engine", "writes"),
    [(0, 2, 1, 0, True), (1, 2, 1, 0, False), (0, 1, 1, 1, False), (1, 1, 2, 0, False),
     (2, 2, 2, 0, False), (4, 2, 2, 0, True)],
)  # fmt: skip
def test_one_rank_of_the_first_engine_writes(
    rank, size, prefill, engine, writes, v2, monkeypatch, tmp_path
):
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"history": str(tmp_path / "h")}))
    given = options()
    given.parallel_config = SimpleNamespace(
        rank=rank,
        tensor_parallel_size=size,
        prefill_context_parallel_size=prefill,
        data_parallel_index=engine,
    )
    speculator = v2.Speculator(given, torch.device("cpu"), States())
    speculator.requests.begin(new_request("a", [1, 2], [1, 2, 3, 4], max_tokens=2))
    speculator.requests.finish("a")
    speculator.batch.history.flush()
    assert len(History.open(tmp_path / "h").news()[0]) == writes


# The plugin.


@pytest.mark.parametrize(
    ("given", "version", "says"),
    [
        ({"method": "ngram_gpu"}, VERSION, """method must be "ngram", got 'ngram_gpu'"""),
        ({}, "0.34.0", "it was tested with vLLM 0.33.0, got 0.34.0"),
        ({}, "0.33.0rc1", "got 0.33.0rc1"),
    ],
)
def test_what_v2_cannot_run_is_refused_in_one_line(given, version, says, monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    with pytest.raises(UsageError) as caught:
        vllm_options.require_v2_drafts(options(**given), version)
    assert says in str(caught.value)
    assert '"custom_class"' in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "triton", "says"),
    [
        ("0", True, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ("", False, "needs Triton"),
        ("", True, "it lacks parallel drafting, another"),
    ],
)
def test_why_vllm_uses_v1_is_in_the_error(variable, triton, says, monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", variable)
    for name in ("vllm", "vllm.triton_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.triton_utils"].HAS_TRITON = triton
    given = options(runner=False)
    lacking = ["parallel drafting", "another"]
    vars(given)["_get_v2_model_runner_unsupported_features"] = lambda: lacking
    with pytest.raises(UsageError, match=says):
        vllm_options.require_v2_drafts(given, VERSION)


def test_lora_of_the_head_is_refused_on_a_cpu(monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    given = options()
    for targets in (None, ["q_proj", "lm_head"]):
        given.lora_config = SimpleNamespace(target_modules=targets)
        with pytest.raises(UsageError, match="--lora-target-modules can leave out"):
            vllm_options.require_v2_drafts(given, VERSION)
        given.device_config.device_type = "cuda"
        vllm_options.require_v2_drafts(given, VERSION)
        given.device_config.device_type = "cpu"
    given.lora_config.target_modules = ["q_proj"]
    vllm_options.require_v2_drafts(given, VERSION)


def test_additional_config_asks_for_it_too(monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert not vllm_wanted.uses_our_speculator(options())
    assert vllm_wanted.uses_our_speculator(options(ngramkit={}))
    assert not vllm_wanted.uses_our_speculator(options(ngramkit={}, method="eagle"))
    vllm_options.require_v2_drafts(options(ngramkit={}), f"{VERSION}+cpu")
    with pytest.raises(UsageError, match="key 'drafer'"):
        vllm_options.require_v2_drafts(options(ngramkit={"drafer": "rest"}), VERSION)
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    assert vllm_wanted.uses_our_speculator(options())


@pytest.fixture
def vllm_modules(v2, monkeypatch):
    """Stand-ins of the modules that the plugin patches."""

    class VllmConfig(SimpleNamespace):
        def __init__(self, **given):
            super().__init__(**vars(options(**given)))
            self.__post_init__()

        def __post_init__(self):
            self.begun = True

    contents = {
        "vllm.config": {"VllmConfig": VllmConfig},
        "vllm.version": {"__version__": VERSION},
        "vllm.v1.worker.gpu.spec_decode": {"init_speculator": lambda *given: "vLLM's own"},
        vllm_hooks.RUNNER_MODULE: {
            "GPUModelRunner": type("R", (Runner,), dict(vars(Runner))),
            "init_speculator": lambda *given: "vLLM's own",
        },
    }
    for name, attributes in contents.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm.v1.worker.gpu"].spec_decode = sys.modules["vllm.v1.worker.gpu.spec_decode"]
    return sys.modules


def test_the_plugin_replaces_vllms_drafter_where_it_is_asked_for(vllm_modules, monkeypatch, v2):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    vllm_plugin.plugin()
    vllm_plugin.plugin()
    device = torch.device("cpu")
    for name in ("vllm.v1.worker.gpu.spec_decode", vllm_hooks.RUNNER_MODULE):
        init = vllm_modules[name].init_speculator
        assert init(options(), device, None) == "vLLM's own"
        assert isinstance(init(options(ngramkit={}), device, States()), v2.Speculator)
        assert init(options(ngramkit={}, method="eagle"), device, None) == "vLLM's own"
        with pytest.raises(UsageError, match="custom_class"):
            init(options(ngramkit={}, method="ngram_gpu"), device, None)


def test_a_configuration_that_v2_does_not_run_fails_at_once(vllm_modules, monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    vllm_plugin.plugin()
    made = vllm_modules["vllm.config"].VllmConfig
    assert made(method="eagle").begun
    assert made().begun
    vllm_modules["vllm.version"].__version__ = "0.35.0"
    with pytest.raises(UsageError, match="custom_class"):
        made(method="ngram_gpu")
    monkeypatch.delenv(CONFIG_VARIABLE)
    assert made(method="ngram_gpu").begun


@pytest.mark.parametrize("broken", ["a module", "a hook"])
def test_a_broken_installation_stops_servers_that_ask_for_drafts(
    broken, vllm_modules, monkeypatch, caplog
):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    if broken == "a module":
        monkeypatch.setitem(sys.modules, "ngramkit.engines.vllm_hooks", None)
    else:  # of a vLLM that ngramkit does not know
        monkeypatch.setattr(vllm_hooks, "carry_texts", lambda: {}["a method"])
    vllm_plugin.plugin()
    assert "cannot load ngramkit: " in caplog.text
    assert "vLLM starts without it." in caplog.text
    made = vllm_modules["vllm.config"].VllmConfig
    assert made().begun
    assert made(ngramkit={}, method="eagle").begun
    refused = r"cannot load ngramkit: .*\. Repair its installation"
    with pytest.raises(ImportError, match=refused):
        made(ngramkit={})
    for name in ("vllm.v1.worker.gpu.spec_decode", vllm_hooks.RUNNER_MODULE):  # in workers
        init = vllm_modules[name].init_speculator
        assert init(options(), None, None) == "vLLM's own"
        with pytest.raises(ImportError, match=refused):
            init(options(ngramkit={}), None, None)
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    with pytest.raises(ImportError, match=refused):
        vllm_plugin.plugin()
    if broken == "a module":
        monkeypatch.delenv(CONFIG_VARIABLE)
        monkeypatch.setitem(sys.modules, "vllm.config", None)  # nothing can be decided later
        with pytest.raises(ImportError, match=refused):
            vllm_plugin.plugin()


def test_a_broken_installation_stops_vllm():
    """The import of the entry point must work: vLLM only logs its error."""
    assert error_of_broken_plugin("vllm_plugin") == (
        "ImportError: cannot load ngramkit: import of ngramkit.engines.request_texts halted; None "
        "in sys.modules. Repair its installation, or leave it out of VLLM_PLUGINS."
    )


def error_of_broken_plugin(name):
    """Return the last line of a process that calls a plugin while one of its imports fails."""
    code = "import sys\nsys.modules['ngramkit.engines.request_texts'] = None\n"
    code += f"from ngramkit.engines.{name} import plugin\nprint('imported')\nplugin()"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, CONFIG_VARIABLE: "{}"},
    )  # fmt: skip
    assert run.returncode
    assert run.stdout == "imported\n"
    return run.stderr.splitlines()[-1]


# vLLM's sources.


def test_vllm_starts_without_a_plugin_that_cannot_be_imported():
    """So the module of the entry point must not fail; what its function raises ends the start."""
    source = released("vllm/plugins/__init__.py")
    loads = text_of("vllm/plugins/__init__.py", "load_plugins_by_group")
    assert loads.index("try:") < loads.index("func = plugin.load()") < loads.index("except")
    calls = text_of("vllm/plugins/__init__.py", "load_general_plugins")
    assert "for func in plugins.values():\n        func()" in calls
    assert "try" not in calls
    assert "logger.exception" in source


def functions(module):
    """Return name -> arguments of every function and method (Class.name) of a module of vLLM's."""
    return arguments(released(module))


def arguments(source):
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    found[f"{node.name}.{each.name}"] = [a.arg for a in each.args.args]
        elif isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, [a.arg for a in node.args.args])
    return found


def text_of(module, name):
    source = released(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_source_segment(source, node)
    raise AssertionError(f"{module} has no {name}")


GPU = "vllm/v1/worker/gpu"


def test_vllm_makes_its_speculator_where_it_is_replaced():
    made = functions(f"{GPU}/spec_decode/__init__.py")
    assert made["init_speculator"] == ["vllm_config", "device", "req_states"]
    runner = released(f"{GPU}/model_runner.py")
    assert "from vllm.v1.worker.gpu.spec_decode import init_speculator" in runner
    assert "self.speculator = init_speculator(" in text_of(f"{GPU}/model_runner.py", "__init__")
    assert "load_general_plugins()" in released("vllm/v1/worker/worker_base.py")
    assert "load_general_plugins()" in text_of("vllm/engine/arg_utils.py", "__post_init__")


def test_vllm_calls_propose_as_it_is_defined():
    base = functions(f"{GPU}/spec_decode/speculator.py")
    assert {name for name in base if name.startswith("BaseSpeculator.")} == {
        "BaseSpeculator.init_cudagraph_manager", "BaseSpeculator.capture", "BaseSpeculator.propose",
    }  # fmt: skip
    ours = arguments((Path(vllm_options.__file__).parent / "vllm_v2.py").read_text())
    assert ours["Speculator.propose"] == base["BaseSpeculator.propose"]
    runner = text_of(f"{GPU}/model_runner.py", "sample_tokens")
    assert "draft_tokens[:, num_spec_tokens:] = -1" in runner
    assert runner.index("self.postprocess_sampled(") < runner.index("self.speculator.propose(")


def test_vllms_runner_shows_begins_and_ends():
    made = functions(f"{GPU}/model_runner.py")
    for name in ("add_requests", "finish_requests"):
        assert made[f"GPUModelRunner.{name}"] == ["self", "scheduler_output"]
    assert made["GPUModelRunner.take_draft_token_ids"] == ["self"]
    begins = text_of(f"{GPU}/model_runner.py", "add_requests")
    assert "scheduler_output.scheduled_new_reqs" in begins
    ends = text_of(f"{GPU}/model_runner.py", "finish_requests")
    for name in ("finished_req_ids", "preempted_req_ids"):
        assert f"scheduler_output.{name}" in ends
    data = released("vllm/v1/core/sched/output.py")
    for name in (
        "req_id", "prefill_token_ids", "prompt_embeds", "mm_features", "sampling_params",
        "lora_request",
    ):  # fmt: skip
        assert f"    {name}: " in data
    assert "def prompt_len(self)" in data


def test_vllms_warm_up_requests_are_known():
    warm = released(f"{GPU}/warmup.py")
    assert 'f"_warmup_{i}_"' in warm
    assert 'req_id_prefix: str = "_v2_mixed_warmup"' in warm
    assert warm.count("req_id_prefix") == 3


def test_vllm_takes_the_length_of_each_rows_draft():
    """In synchronous scheduling; what an asynchronous scheduler asks for is K of each."""
    handler = text_of(f"{GPU}/spec_decode/utils.py", "get_draft_tokens")
    assert "[[-1] * self.num_draft_tokens for _ in self.req_ids]" in handler
    step = text_of("vllm/v1/engine/core.py", "post_step")
    assert "not self.async_scheduling" in step
    assert "self.model_executor.take_draft_token_ids()" in step


def test_vllm_itself_refuses_watermarks_with_ngram():
    check = text_of("vllm/config/vllm.py", "_check_supports_watermarking")
    assert "Watermarking supports only dflash, dspark, eagle, eagle3 and" in check
    assert '"ngram"' not in check


def test_vllms_configuration_has_what_is_read():
    source = released("vllm/config/vllm.py")
    for name in ("use_v2_model_runner", "_get_v2_model_runner_unsupported_features"):
        assert f"def {name}(self)" in source
    for field in ("lora_config", "additional_config", "device_config"):
        assert f"    {field}: " in source
    parallel = released("vllm/config/parallel.py")
    for field in ("data_parallel_index", "tensor_parallel_size", "prefill_context_parallel_size"):
        assert f"    {field}: int" in parallel
    layout = released("vllm/distributed/parallel_state.py")
    assert "the layout order is: ExternalDP x DP x PP x PCP x TP" in layout
    checked = text_of(f"{GPU}/pcp_manager.py", "validate_config")
    assert 'speculative_config.method != "mtp"' in checked
    assert "num_draft_tokens_per_req: np.ndarray | None" in released(f"{GPU}/input_batch.py")
