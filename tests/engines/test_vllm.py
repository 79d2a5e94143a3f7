"""vLLM's proposer: rows that are swapped, condensed, preempted and resumed, as its batch does."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import re
import sys
import zipfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.budget.model_cost import FREE_TOKENS
from ngramkit.budget.model_size import model_size, served_config
from ngramkit.budget.pass_times import cost_shown, pass_times
from ngramkit.builders.datastore import build_datastore
from ngramkit.engines import vllm, vllm_batch
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.vllm import Proposer
from ngramkit.formats.history import History

VOCABULARY, LONGEST, MOST, ROWS = 12, 96, 5, 6
MODULE = "vllm/v1/spec_decode/custom_class_proposer.py"
CPU_RUNNER = "vllm/v1/worker/cpu_model_runner.py"
RUNNER = "vllm/v1/worker/gpu_model_runner.py"
EXPERTS = {"hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 8,
           "num_experts_per_tok": 2}  # fmt: skip


def config(**additional):
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            num_speculative_tokens=MOST, model="ngramkit.engines.vllm.Proposer"
        ),
        model_config=SimpleNamespace(max_model_len=LONGEST, get_vocab_size=lambda: VOCABULARY),
        scheduler_config=SimpleNamespace(max_num_seqs=ROWS),
        additional_config=additional,
    )


@pytest.fixture
def configured(monkeypatch, token_store, tmp_path):
    """A datastore in NGRAMKIT_DRAFT; nothing is learnt, so a row alone decides its draft."""
    text = [0, 1, 2, 3, 4, 5, 6, 7] * 3
    build_datastore(token_store([text, text[::-1]], VOCABULARY), tmp_path / "d")
    said = f'{{"datastores": ["{tmp_path}/d"], "min_probability": 0.1, "pause": false}}'
    monkeypatch.setenv(CONFIG_VARIABLE, said)
    return config()


class Batch:
    """The part of vLLM's InputBatch that a proposer sees: rows that move."""

    def __init__(self):
        self.tokens = np.zeros((ROWS, LONGEST), np.int32)
        self.lengths = np.zeros(ROWS, np.int32)
        self.names = []  # of the request in each row

    def add(self, name, tokens):
        row = len(self.names)
        self.names.append(name)
        self.tokens[row, : len(tokens)] = tokens
        self.tokens[row, len(tokens) :] = 9  # what another request left there
        self.lengths[row] = len(tokens)

    def append(self, row, tokens):
        begin = self.lengths[row]
        self.tokens[row, begin : begin + len(tokens)] = tokens
        self.lengths[row] += len(tokens)

    def swap(self, one, other):
        for array in (self.tokens, self.lengths):
            array[[one, other]] = array[[other, one]]
        self.names[one], self.names[other] = self.names[other], self.names[one]

    def remove(self, row):
        """Replace a row by the last one, and return its tokens."""
        said = self.tokens[row, : self.lengths[row]].tolist()
        self.swap(row, len(self.names) - 1)
        self.names.pop()
        return said


def written(name, length, wrong):
    """Return what the model writes after `length` tokens: up or down, with a slip."""
    token = length if name % 2 else -length
    return 8 + name % 3 if wrong else token % 8


def test_drafts_depend_on_the_request_alone(configured):
    random, proposer, batch = np.random.default_rng(3), Proposer(configured), Batch()
    fresh, waiting = iter(range(100)), []
    plain = SimpleNamespace(sampling_params=SimpleNamespace(extra_args=None), lora_request=None)
    drafted = 0
    for step in range(120):
        if len(batch.names) < ROWS - 1:
            name, said = waiting.pop() if waiting else (next(fresh), None)
            said = said or [written(name, i, False) for i in range(3)]
            batch.add(name, said)
        if random.random() < 0.5:
            batch.swap(*random.integers(0, len(batch.names), 2))
        if random.random() < 0.2 or batch.lengths[: len(batch.names)].max() > LONGEST - 12:
            row = int(batch.lengths[: len(batch.names)].argmax())
            name, said = batch.names[row], batch.remove(row)
            if len(said) <= LONGEST - 12:
                waiting.append((name, said))  # preempted: it comes back as it was
        sampled = []
        for row in range(len(batch.names)):
            name, n = batch.names[row], int(batch.lengths[row])
            count = int(random.integers(1, 4))
            tokens = [written(name, n + i, random.random() < 0.2) for i in range(count)]
            if random.random() < 0.1:
                tokens = []  # a partial prefill
            batch.append(row, tokens)
            sampled.append(tokens)
        proposer.see({f"request {name}": plain for name in batch.names})
        chains = proposer.propose(sampled, batch.lengths, batch.tokens, slot_mappings={})
        assert len(chains) == len(sampled)
        for row, chain in enumerate(chains):
            rest = LONGEST - int(batch.lengths[row]) - 1
            assert len(chain) <= min(MOST, max(rest, 0))
            assert all(type(token) is int for token in chain)
            if not sampled[row]:
                assert chain == []
                continue
            drafted += len(chain)
            if row % 3 == step % 3:
                alone = Proposer(configured)
                one = batch.tokens[row : row + 1], batch.lengths[row : row + 1]
                assert alone.propose([sampled[row]], one[1], one[0]) == [chain]
    counts = proposer.statistics
    assert counts.draft_tokens == drafted > 100
    assert counts.accepted_tokens > 20
    assert counts.requests < counts.rows / 5  # sessions were found again


def test_it_can_be_switched_off_and_ends_with_the_model(configured):
    proposer = Proposer(configured)
    tokens = np.tile(np.arange(8, dtype=np.int32), (1, LONGEST // 8))
    assert proposer.propose([[1]], np.array([20], np.int32), tokens) == [[4, 5, 6, 7, 0]]
    assert proposer.propose([[1]], np.array([LONGEST - 3], np.int32), tokens) == [[5, 6]]
    assert proposer.propose([[1]], np.array([LONGEST - 1], np.int32), tokens) == [[]]
    proposer.enabled = False
    assert proposer.propose([[1]], np.array([20], np.int32), tokens) == [[]]


def test_load_model_does_nothing(configured):
    """vLLM's CPU runner calls load_model without asking whether there is one."""
    proposer = Proposer(configured)
    assert proposer.load_model(object()) is None
    tokens = np.tile(np.arange(8, dtype=np.int32), (1, LONGEST // 8))
    assert proposer.propose([[1]], np.array([20], np.int32), tokens) == [[4, 5, 6, 7, 0]]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_pass_costs_what_it_does_on_the_device(device, monkeypatch, caplog):
    """A fault of vLLM on a CPU is reported there."""
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    given = config()
    given.device_config = SimpleNamespace(device_type=device)
    given.model_config.hf_config = EXPERTS
    made = []
    monkeypatch.setattr(
        vllm_batch, "pass_times", lambda *a: made.append(pass_times(*a)) or made[-1]
    )
    Proposer(given)
    assert made[0].free == FREE_TOKENS[device]
    assert (made[0].size.chosen, made[0].size.experts) == (2, 8)
    assert ("issue 55005" in caplog.text) == (device == "cpu")
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"pass_cost": "1:50,9:100"}))
    Proposer(given)
    assert cost_shown(made[1]) == 2


def test_a_pass_costs_what_vllms_options_make_of_the_model():
    given = config()
    model = given.model_config
    inner, bits = {**EXPERTS, "dtype": "float32"}, {"quantization_config": {"bits": 4}}
    model.hf_config, model.hf_text_config = {"some_config": {}, **bits}, inner
    model.dtype, model.quantization = torch.bfloat16, "awq_marlin"

    def stored():
        size = model_size(served_config(model))
        return size.experts, size.stored_expert

    assert stored() == (8, 0.25)
    model.dtype = torch.float32
    assert stored() == (8, 0.125)
    model.hf_config = {"some_config": {}}
    for model.quantization, share in (("fp8", 0.25), ("bitsandbytes", 0.125), (None, 1.0)):
        assert stored() == (8, share)
    model.quantization, model.quantization_config = "online", "linear=fp8_e4m3"
    assert stored() == (8, 0.25)
    del model.hf_text_config
    model.hf_config = AutoConfig.for_model("mixtral", **EXPERTS, quantization_config={"bits": 8})
    assert stored() == (8, 0.25)


@pytest.mark.parametrize(
    ("said", "ranks", "learns"),
    [({}, 1, True), ({}, 2, False), ({"clock": False}, 1, False), ({"pass_cost": 1.5}, 1, False),
     ({"min_probability": 0.1}, 1, False), ({"clock": True}, 1, True)],
)  # fmt: skip
def test_one_rank_learns_what_passes_cost_and_several_do_not(said, ranks, learns):
    given = config()
    given.parallel_config = SimpleNamespace(world_size=ranks)
    draft = DraftConfig.parse({"drafter": "context", **said})
    batch = vllm_batch.open_batch(given, draft, "cpu", counts=False)
    assert batch.budget.learns == learns


def test_several_ranks_refuse_a_clock():
    given = config()
    given.parallel_config = SimpleNamespace(world_size=2)
    with pytest.raises(UsageError, match="several ranks must draft the same"):
        vllm_batch.open_batch(given, DraftConfig(clock=True), "cpu", counts=False)


def test_keys_without_an_effect_are_logged(monkeypatch, caplog):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    Proposer(config(ngramkit={"drafter": "context", "tokens": 2, "budget": 9}))
    assert "chains in vLLM: these keys have no effect: budget" in caplog.messages


def test_additional_config_configures_it(monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    tokens = np.tile(np.arange(8, dtype=np.int32), (1, LONGEST // 8))
    said = {"drafter": "context", "tokens": 2, "min_probability": 0.01}
    proposer = Proposer(config(ngramkit=said))
    assert proposer.propose([[1]], np.array([20], np.int32), tokens) == [[4, 5]]
    with pytest.raises(UsageError, match=r"unknown key 'drafer' .*Did you mean"):
        Proposer(config(ngramkit={"drafer": "context"}))
    with pytest.raises(ArtifactError):
        Proposer(config(ngramkit={"datastores": ["/nowhere"]}))


def growing(monkeypatch, tmp_path, **keys):
    """A history in NGRAMKIT_DRAFT, which grows."""
    said = {"history": str(tmp_path / "h"), "min_probability": 0.05, "pause": False, **keys}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(said))
    return tmp_path / "h"


def held(path, proposer):
    proposer.history.flush()
    return [(r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0]]


def output(seed, length):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def test_finished_rows_join_the_history_and_are_drafted_from(monkeypatch, tmp_path, runner):
    """Rows are swapped and condensed, one is preempted and resumed, one is partly prefilled."""
    path = growing(monkeypatch, tmp_path)
    model, outputs = runner(), {name: output(seed, 24) for seed, name in enumerate("abc")}

    def step(prefilled=()):
        names = [name for name in model.batch.names if name not in prefilled]
        done = {name: len(model.requests[name].output_token_ids) for name in names}
        model.step(**{name: outputs[name][n : n + 1] for name, n in done.items()})

    model.begin("a", [8, 0, 3], max_tokens=7)
    model.begin("b", [9, 0, 3], max_tokens=7)
    for _ in range(4):
        step()
        model.batch.swap(0, 1)
    preempted = model.batch.remove(model.batch.names.index("b"))
    model.begin("c", [5, 5, 5], max_tokens=2)
    step(prefilled="c")
    model.batch.add("b", preempted)
    step(prefilled="c")
    model.batch.swap(0, 2)
    step()
    model.end("a")
    step()
    model.end("b", "c")
    assert model.drafter.statistics.requests == 3
    kept = held(path, model.drafter)
    assert kept == [(outputs["a"][:7], 0), (outputs["b"][:7], 0), (outputs["c"][:2], 0)]
    again = Proposer(config())
    tokens = np.zeros((1, LONGEST), np.int32)
    right = 0
    for n in range(1, 7):
        tokens[0, : 3 + n] = [1, 2, 3, *outputs["a"][:n]]
        (chain,) = again.propose([outputs["a"][n - 1 : n]], np.array([3 + n], np.int32), tokens)
        right += chain[:1] == outputs["a"][n : n + 1]
    assert right >= 4


class Runner:
    """The part of vLLM's GPUModelRunner that tells of requests."""

    def __init__(self):
        self.drafter = Proposer(config())
        self.requests, self.batch = {}, Batch()

    @property
    def input_batch(self):
        return SimpleNamespace(req_ids=self.batch.names)

    def begin(self, name, prompt, lora=None, pictures=(), embeds=None, **sampling):
        said = {
            "stop": [], "stop_token_ids": [], "eos_token_id": None, "max_tokens": 1000,
            "extra_args": None, **sampling,
        }  # fmt: skip
        self.requests[name] = SimpleNamespace(
            prompt_token_ids=prompt, output_token_ids=[], sampling_params=SimpleNamespace(**said),
            lora_request=lora and SimpleNamespace(lora_name=lora),
            mm_features=list(pictures), prompt_embeds=embeds,
        )  # fmt: skip
        self.batch.add(name, prompt)

    def propose_draft_token_ids(self, sampled):
        return self.drafter.propose(sampled, self.batch.lengths, self.batch.tokens)

    def _on_request_state_removed(self, req_id, req_state):
        """Do nothing, as in vLLM."""

    def step(self, **written):
        sampled = []
        for row, name in enumerate(self.batch.names):
            new = written.get(name, [])
            self.batch.append(row, new)
            self.requests[name].output_token_ids += new
            sampled.append(new)
        return dict(zip(self.batch.names, self.propose_draft_token_ids(sampled), strict=True))

    def end(self, *names):
        for name in names:
            getattr(self, vllm.ENDED)(name, self.requests.pop(name))
            if name in self.batch.names:
                self.batch.remove(self.batch.names.index(name))


@pytest.fixture
def runner(monkeypatch):
    """A class as vLLM's GPUModelRunner, where `watch` looks for it."""
    made = type("GPUModelRunner", (Runner,), dict(vars(Runner)))
    module = ModuleType(vllm.RUNNER_MODULE)
    module.GPUModelRunner = made
    monkeypatch.setitem(sys.modules, vllm.RUNNER_MODULE, module)
    return made


def test_a_runner_tells_of_ends_and_of_aborts(monkeypatch, tmp_path, runner):
    path = growing(monkeypatch, tmp_path)
    model = runner()
    model.begin("eos", [1, 1], eos_token_id=7)
    model.begin("length", [1, 2], max_tokens=3)
    model.begin("aborted", [1, 3])
    model.begin("stop", [1, 4], stop=["\n"])
    model.begin("private", [1, 5], max_tokens=2, extra_args={"ngramkit_history": 0})
    model.step(eos=[3, 4], length=[3, 4], aborted=[3, 4], stop=[3, 4], private=[3, 4])
    row = model.batch.remove(0)  # preempted: nothing ended
    model.step(length=[5, 6], aborted=[5], stop=[5], private=[5])
    model.batch.add("eos", row)
    model.step(eos=[7, 8], aborted=[6], stop=[6], private=[6])
    model.end("stop", "private", "length", "eos", "aborted")
    model.drafter.history.flush()  # although no step follows
    kept = [(r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0]]
    assert sorted(kept) == [([3, 4, 5], 0), ([3, 4, 5, 6], 0), ([3, 4, 7], 0)]


def test_what_v2_does_not_remember_v1_does_not_either(monkeypatch, tmp_path, runner):
    """A picture has the ids of any other, and embeddings have zeros between their ids."""
    path = growing(monkeypatch, tmp_path)
    model = runner()
    model.begin("picture", [1, 1], pictures=["a cat"], max_tokens=2)
    model.begin("mixed", [1, 0], embeds=object(), max_tokens=2)
    model.begin("beam", [1, 2], max_tokens=1)
    model.begin("plain", [1, 3], max_tokens=2)
    model.step(picture=[3, 4], mixed=[3, 5], beam=[3], plain=[3, 6])
    model.end("picture", "mixed", "beam", "plain")
    model.drafter.history.flush()
    assert [r.tokens.tolist() for r in History.open(path).news()[0]] == [[3, 6]]


def test_the_next_request_drafts_from_what_the_runner_told(monkeypatch, tmp_path, runner):
    growing(monkeypatch, tmp_path)
    model, said = runner(), output(3, 20)
    model.begin("a", [1, 2], max_tokens=20)
    for token in said:
        model.step(a=[token])
    model.end("a")
    model.begin("b", [4, 9])
    chains = [model.step(b=[token])["b"][:1] for token in said]
    assert sum(c == said[i + 1 : i + 2] for i, c in enumerate(chains)) >= 15


def test_what_vllm_discards_or_names_again_is_not_drafted_from(configured, runner):
    """It reports neither tokens that it discards nor another prompt of a streamed request."""
    model, alone = runner(), Proposer(configured)
    model.begin("a", [8, 9, 1, 2, 3])
    model.step(a=[4, 5])
    model.batch.lengths[0] -= 3
    drafts = model.step(a=[1])["a"]
    row = np.array([[8, 9, 1, 2, 1]], np.int32)
    assert drafts == alone.propose([[1]], np.array([5], np.int32), row)[0]
    model.end("a")
    model.begin("a", [8, 9, 1, 2])
    model.step(a=[1])
    assert model.drafter.statistics.requests == 2


@pytest.mark.parametrize("by", ["lora", "key"])
def test_a_tenant_drafts_from_its_own_history(by, monkeypatch, tmp_path, runner):
    growing(monkeypatch, tmp_path, history_by=by)
    model, said = runner(), output(3, 20)

    def right(name, tenant):
        lora, extra = (tenant, None) if by == "lora" else (None, {"ngramkit_history": tenant})
        model.begin(name, [1, 2], lora=lora, extra_args=extra, max_tokens=20)
        chains = [model.step(**{name: [token]})[name][:1] for token in said]
        model.end(name)
        return sum(chain == said[i + 1 : i + 2] for i, chain in enumerate(chains))

    first, other, second = right("a", "acme"), right("b", "other"), right("c", "acme")
    assert second >= 15
    assert max(first, other) < 8


def test_tenants_are_not_mixed_where_vllm_does_not_tell_them(monkeypatch, tmp_path):
    growing(monkeypatch, tmp_path, history_by="lora")
    with pytest.raises(UsageError, match="cannot use history_by"):
        Proposer(config())


def test_vllm_has_no_salt_to_tell_tenants_by(monkeypatch, tmp_path):
    growing(monkeypatch, tmp_path, history_by="salt")
    with pytest.raises(UsageError, match='history_by="salt": vllm'):
        Proposer(config())


@pytest.mark.parametrize(("rank", "writes"), [(0, True), (1, False), (2, True), (3, False)])
def test_one_rank_of_a_layer_writes(rank, writes, monkeypatch, tmp_path, runner):
    """With two stages only ranks 2 and 3 have a drafter."""
    path = growing(monkeypatch, tmp_path)
    given = config()
    given.parallel_config = SimpleNamespace(rank=rank, tensor_parallel_size=2)
    model = runner()
    model.drafter = Proposer(given)
    model.begin("a", [1, 2], max_tokens=2)
    model.step(a=[4, 5])
    model.end("a")
    assert len(held(path, model.drafter)) == writes


def test_a_request_brings_text_or_switches_drafts_off(configured, runner):
    model = runner()
    text = {"ngramkit_reference_ids": [8, 9, 10, 11, VOCABULARY]}  # a token that the model lacks
    model.begin("a", [1, 2], extra_args=text)
    model.begin("b", [1, 2])
    model.begin("off", [1, 2], extra_args={"ngramkit": 0})
    model.begin("wrong", [1, 2], extra_args={"ngramkit_reference_ids": [1.5]})
    drafts = model.step(a=[8], b=[8], off=[3], wrong=[3])
    assert drafts["a"][:3] == [9, 10, 11]
    assert drafts["b"][:1] != [9]
    assert drafts["off"] == []
    assert drafts["wrong"][:1] == [4]
    model.step(a=[9], b=[9], off=[4], wrong=[4])
    assert model.drafter.statistics.unused_references == 1
    model.end("a", "wrong")
    model.begin("c", [1, 2])
    assert model.step(c=[8], b=[7], off=[5])["c"][:1] != [9]


def test_a_runner_without_these_methods_is_reported(configured, monkeypatch, caplog):
    caplog.set_level("INFO")
    module = ModuleType(vllm.RUNNER_MODULE)
    module.GPUModelRunner = object
    monkeypatch.setitem(sys.modules, vllm.RUNNER_MODULE, module)
    Proposer(configured)
    assert "their own parameters have no effect" in caplog.text


def test_vllms_runner_has_what_is_watched():
    source = released(RUNNER)
    for method in (vllm.SHOWN, vllm.ENDED):
        assert len(re.findall(rf"^    def {method}\(", source, re.MULTILINE)) == 1
    assert f"self.{vllm.ENDED}(req_id, req_state)" in source
    assert "self.requests: dict[str, CachedRequestState]" in source
    states = released("vllm/v1/worker/gpu_input_batch.py")
    for field in ("mm_features", "sampling_params", "prompt_embeds", "lora_request"):
        assert f"    {field}: " in states
    assert "req_state = self.requests.pop(req_id, None)" in source


@contextmanager
def loggers():
    """ngramkit's and vLLM's loggers as in a server, where only vLLM's has a handler."""
    ours, theirs = logging.getLogger("ngramkit"), logging.getLogger("vllm")
    with ExitStack() as stack:
        for logger in (logging.getLogger(), ours, theirs):
            stack.enter_context(mock.patch.object(logger, "handlers", []))
        stack.enter_context(mock.patch.object(theirs, "propagate", False))
        for logger, level in ((ours, logging.NOTSET), (theirs, logging.INFO)):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        theirs.addHandler(logging.StreamHandler(io.StringIO()))
        yield ours, theirs


def test_its_log_goes_where_vllms_does(configured):
    with loggers() as (ours, theirs):
        Proposer(configured)
        Proposer(configured)
        assert ours.handlers == theirs.handlers
        assert "drafting with blend over" in theirs.handlers[0].stream.getvalue()


def test_a_handler_that_somebody_chose_is_left_alone(configured):
    chosen = logging.StreamHandler(io.StringIO())
    with loggers() as (ours, theirs):
        ours.addHandler(chosen)
        Proposer(configured)
        assert ours.handlers == [chosen]
        assert ours.level == logging.NOTSET
        assert theirs.handlers[0].stream.getvalue() == ""


def released(module):
    """The source of a module of vLLM's: installed, or in NGRAMKIT_VLLM_WHEEL, a path."""
    wheel = os.environ.get("NGRAMKIT_VLLM_WHEEL")
    if wheel:
        return zipfile.ZipFile(wheel).read(module).decode()
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("neither vllm is installed nor NGRAMKIT_VLLM_WHEEL names its wheel")
    return (Path(spec.origin).parents[1] / module).read_text()


def test_vllms_cpu_runner_finds_all_that_it_calls(configured):
    called = set(re.findall(r"self\.drafter\.(\w+)", released(CPU_RUNNER)))
    assert {name for name in called if not hasattr(Proposer(configured), name)} == set()


def test_vllms_own_loader_takes_it(configured, monkeypatch):
    source = released(MODULE)
    for name, attributes in {
        "vllm": {},
        "vllm.config": {"VllmConfig": object},
        "vllm.logger": {"init_logger": lambda name: SimpleNamespace(info=print)},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    space = {"__name__": "vllm.v1.spec_decode.custom_class_proposer"}
    exec(compile(source, MODULE, "exec"), space)
    proposer = space["create_custom_proposer"](configured)
    assert isinstance(proposer, Proposer)
    monkeypatch.setenv(CONFIG_VARIABLE, '{"drafer": 1}')
    with pytest.raises(RuntimeError, match="unknown key 'drafer'"):
        space["create_custom_proposer"](configured)
