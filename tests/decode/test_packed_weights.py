"""Packed linear layers: the plain ones' outputs, their memory given back, and every way out."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
import threading
from itertools import cycle

import numpy as np
import pytest
import torch
from lossless import decoded, references
from scripted import NoisyOracle
from tiny_models import FEW, tiny_model
from torch import nn

import ngramkit
from ngramkit.builders.model_table import weights_fingerprint
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import packed_weights
from ngramkit.decode.compare import answer_by
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import LanguageModel, device_facts, load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.packed_weights import (
    PACKED,
    PLAIN,
    PackedLinear,
    is_packed,
    pack_linears,
    packed_weights_of,
    unpacked,
)
from ngramkit.drafters.registry import NoDraft

IDS = torch.arange(4, 44)[None]
trial = packed_weights.saves_time

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this torch has no oneDNN",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder that answers are remembered in, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ngramkit" / packed_weights.PACKING_CACHE.name


@pytest.fixture(autouse=True)
def gains(monkeypatch):
    """Trials are scripted: packed layers take `gains.ratio` of the time, and `gains.asked` has how
    many layers were tried."""

    class Trials:
        ratio, is_certain = 0.8, True

        def __init__(self):
            self.asked = []

        def __call__(self, plain, packed):
            self.asked.append(len(plain))
            return self.ratio < 1, self.is_certain

    trials = Trials()
    monkeypatch.setattr(packed_weights, "saves_time", trials)
    monkeypatch.setattr(packed_weights, "PACKING_DECISIONS", {})
    return trials


def logits(model):
    with torch.inference_mode():
        return model(input_ids=IDS).logits


def linears(model):
    return [part for part in model.modules() if type(part) is nn.Linear]


@pytest.mark.parametrize("name", [*FEW, "deepseek_v3", "gpt_oss", "bloom", "mpt"])
def test_every_linear_layer_is_packed_and_the_logits_stay(name):
    plain, model = tiny_model(name), tiny_model(name)
    count = len(linears(model))
    assert count
    assert pack_linears(model) == count
    assert not linears(model)
    torch.testing.assert_close(logits(model), logits(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FEW)
def test_drafts_change_nothing(name):
    model = tiny_model(name)
    assert pack_linears(model)
    for reference in references(model, load_tokenizer("demo"), count=4):
        vocabulary = model.config.vocab_size
        drafter = NoisyOracle(reference.answer.tolist(), vocabulary, 1)
        run = decoded(model, drafter, reference, 16)
        np.testing.assert_array_equal(run.token_ids, reference.answer)


def test_the_plain_weights_are_gone():
    model = tiny_model("llama")
    held = [each.weight for each in linears(model)]
    pack_linears(model)
    assert not any(each.numel() for each in held)


def test_a_tied_head_is_packed_and_the_embedding_stays():
    plain = tiny_model("llama", tie_word_embeddings=True)
    model = tiny_model("llama", tie_word_embeddings=True)
    pack_linears(model)
    head = model.get_output_embeddings()
    assert isinstance(head, PackedLinear)
    assert head.weight is model.get_input_embeddings().weight
    torch.testing.assert_close(logits(model), logits(plain), rtol=1e-4, atol=1e-4)
    assert weights_fingerprint(model) == weights_fingerprint(plain)


# What people do with a model: the layers are plain again as soon as it shows.


def negated(model):
    return {name: -each for name, each in model.state_dict().items()}


def in_place(model, change):
    change(model.get_input_embeddings().weight)
    return model


def loaded_with(model, state):
    model.load_state_dict(state)
    return model


def resized(model):
    model.resize_token_embeddings(model.config.vocab_size + 8, mean_resizing=False)
    return model


def trained(model):
    model(input_ids=IDS, labels=IDS).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return model


USES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "load_state_dict": lambda model: loaded_with(model, negated(tiny_model("llama", **TIED))),
    "in place": lambda model: in_place(model, lambda weight: weight.data.neg_()),
    "numpy": lambda model: in_place(
        model, lambda weight: np.negative(weight.detach().numpy(), out=weight.detach().numpy())
    ),
    "resize": resized,
    "bfloat16": lambda model: model.to(torch.bfloat16).to(torch.float32),
    "training": trained,
}
TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize("use", USES)
def test_a_packed_model_behaves_as_a_plain_one(use):
    plain, model = USES[use](tiny_model("llama", **TIED)), tiny_model("llama", **TIED)
    pack_linears(model)
    with packed_weights_of(model):
        logits(model)
    model = USES[use](model)
    assert model.state_dict().keys() == plain.state_dict().keys()
    for name, each in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], each)
    torch.testing.assert_close(logits(model), logits(plain), rtol=1e-4, atol=1e-4)
    with packed_weights_of(model):
        torch.testing.assert_close(logits(model), logits(plain), rtol=1e-4, atol=1e-4)


def test_a_layer_is_packed_again_when_nobody_holds_its_weight():
    model = tiny_model("llama")
    pack_linears(model)
    model.state_dict()
    assert not is_packed(model)
    held = model.model.layers[1].mlp.up_proj.weight.data
    with packed_weights_of(model):
        assert linears(model) == [model.model.layers[1].mlp.up_proj]
        held.neg_()
        logits(model)
        assert linears(model) == [model.model.layers[1].mlp.up_proj]
    del held
    with packed_weights_of(model):
        assert not linears(model)
    model.to(torch.float64)  # which is never packed
    for _ in range(2):
        with packed_weights_of(model):
            assert not is_packed(model)


def test_requests_in_several_threads_pack_once():
    model = tiny_model("llama", **TIED)
    pack_linears(model)
    ids = IDS[:, :8]
    errors, texts = [], []

    def write():
        try:
            options = {"drafter": "cacheback", "budget": 4, "max_new_tokens": 6}
            texts.append(ngramkit.generate(model, ids, do_sample=False, **options).tolist())
        except Exception as error:
            errors.append(error)

    write()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(8):
            model.state_dict()
            threads = [threading.Thread(target=write) for _ in range(3)]
            for each in threads:
                each.start()
            model.state_dict()  # while they run
            for each in threads:
                each.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert all(text == texts[0] for text in texts)


def test_packing_again_draws_nothing_from_torch_s_generator():
    """Sampled text depends on the generator."""
    model = tiny_model("llama", **TIED)
    pack_linears(model)
    model.state_dict()
    before = torch.get_rng_state()
    with packed_weights_of(model):
        assert not linears(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_decoding_leaves_the_weights_packed():
    model = LanguageModel("tiny", tiny_model("llama", **TIED), load_tokenizer("demo"))
    pack_linears(model.model)
    seen = []
    head = model.model.get_output_embeddings()
    model.model.register_forward_hook(lambda *_: seen.append(head.trusted))
    task = Decoder.settle(model, DecodeOptions(budget=4, max_new_tokens=8))
    seen.clear()
    task.decode(task.request(np.arange(1, 9, dtype=np.int32)), NoDraft())
    assert not linears(model.model)
    assert set(seen) == {True}
    assert not head.trusted


def test_a_table_of_the_model_is_the_same_table():
    plain, model = tiny_model("opt"), tiny_model("opt")  # its layers have biases
    pack_linears(model)
    assert weights_fingerprint(model) == weights_fingerprint(plain)


@pytest.mark.parametrize("tied", [False, True])
def test_unpacked_is_the_model_as_it_was_loaded(tied):
    plain = tiny_model("qwen2", tie_word_embeddings=tied)
    model = tiny_model("qwen2", tie_word_embeddings=tied)
    pack_linears(model)
    again = unpacked(model)
    assert is_packed(model)
    assert not is_packed(again)
    assert torch.equal(logits(again), logits(plain))
    for name, each in plain.named_parameters():
        assert torch.equal(again.get_parameter(name), each)
    found, embedded = again.lm_head.weight, model.get_input_embeddings().weight
    assert again.get_input_embeddings().weight is embedded
    assert (found is embedded) == tied


@pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="oneDNN has no bfloat16 here"
)
def test_bfloat16():
    plain, model = tiny_model("llama").bfloat16(), tiny_model("llama").bfloat16()
    assert pack_linears(model) == len(linears(plain))
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(model.lm_head.weight, plain.lm_head.weight)
    right = logits(plain).float()
    assert (logits(model).float() - right).norm() < 0.02 * right.norm()


def test_what_is_not_faster_stays_plain_and_is_said(gains, caplog):
    gains.ratio = 1.0
    model = tiny_model("llama")
    with caplog.at_level(logging.INFO, "ngramkit"):
        assert pack_linears(model) == 0
    assert not is_packed(model)
    assert "4096 x 32 in float32 stay plain: packed ones are not faster" in caplog.text
    assert "0 of 15 linear layers packed" in caplog.text


@pytest.mark.parametrize(
    ("packed", "gains"),
    [
        ({1: 1.0, 16: 1.2}, True),  # as one thread: only drafts gain
        ({1: 1.0, 16: 1.9}, True),
        ({1: 1.3, 16: 1.5}, True),
        ({1: 1.0, 16: 1.95}, False),  # too little
        ({1: 2.0, 16: 1.0}, False),
    ],
)
def test_drafts_and_single_tokens_decide_together(monkeypatch, packed, gains):
    times = {"plain": {1: 1.0, 16: 2.0}, "packed": packed}
    turns = []

    def seconds(layers, inputs):
        turns.append(layers[0])
        stalled = 9 * (len(turns) == 6)  # other programs
        return times[layers[0]][inputs.shape[1]] + stalled

    monkeypatch.setattr(packed_weights, "seconds_of", seconds)
    monkeypatch.setattr(packed_weights, "inputs_for", lambda linear, rows: torch.zeros(1, rows, 4))
    assert trial(["plain"], ["packed"]) == (gains, True)
    first, second = ["packed", "packed", "plain", "plain"], ["plain", "plain", "packed", "packed"]
    assert turns[:8] == [*first, *second]


@pytest.mark.parametrize("later", [0.7, 1.3])
def test_rounds_that_contradict_each_other_are_followed_by_more(monkeypatch, later):
    """As in a busy moment, after which most rounds agree."""
    ratios = [0.7, 1.4, 0.8, 1.3, 1.5, 0.9, 1.6, 1.2, 0.75, *[later] * 36]
    turns = []

    def seconds(layers, inputs):
        turns.append(layers[0])
        return ratios[(len(turns) - 1) // 4] if layers[0] == "packed" else 1.0

    monkeypatch.setattr(packed_weights, "seconds_of", seconds)
    monkeypatch.setattr(packed_weights, "inputs_for", lambda linear, rows: torch.zeros(1, rows, 4))
    assert trial(["plain"], ["packed"]) == (later < 1, True)
    assert 4 * 9 < len(turns) < 4 * packed_weights.MAX_ROUNDS


def test_long_rounds_that_agree_are_enough(monkeypatch):
    """As those of a large layer, one of which takes a second."""
    monkeypatch.setattr(packed_weights, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(packed_weights, "seconds_of", lambda layers, _: 0.7 + (layers == ["plain"]))
    monkeypatch.setattr(packed_weights, "inputs_for", lambda linear, rows: torch.zeros(1, rows, 4))
    assert trial(["plain"], ["packed"]) == (True, True)


def test_long_rounds_that_disagree_decide_only_for_this_process(monkeypatch, gains, cache):
    monkeypatch.setattr(packed_weights, "MAX_SECONDS", 0.0)
    packed_seconds = cycle([0.7, 0.7, 1.3, 1.3])  # two sizes of a pass in each round

    def seconds(layers, inputs):
        return 1.0 if isinstance(layers[0], nn.Linear) else next(packed_seconds)

    monkeypatch.setattr(packed_weights, "seconds_of", seconds)
    monkeypatch.setattr(packed_weights, "saves_time", trial)
    pack_linears(nn.Sequential(nn.Linear(8, 8)))
    assert not list(cache.iterdir())
    assert len(packed_weights.PACKING_DECISIONS) == 1
    packed_weights.PACKING_DECISIONS.clear()  # as another process begins
    monkeypatch.setattr(packed_weights, "saves_time", gains)
    assert pack_linears(nn.Sequential(nn.Linear(8, 8))) == 1
    assert [each.read_text() for each in cache.iterdir()] == [PACKED]


def test_one_process_computes_one_way_without_a_cache(gains, cache):
    cache.parent.mkdir(mode=0o700)
    cache.touch()  # no folder
    assert pack_linears(nn.Sequential(nn.Linear(8, 8))) == 1
    gains.ratio = 2.0
    assert pack_linears(nn.Sequential(nn.Linear(8, 8))) == 1


def test_shapes_are_tried_once(gains, cache):
    pack_linears(tiny_model("llama"))
    shapes = {(each.in_features, each.out_features) for each in linears(tiny_model("llama"))}
    assert len(gains.asked) == len(shapes) == len(list(cache.iterdir()))
    gains.ratio = 2.0  # nobody asks any more
    assert pack_linears(tiny_model("llama")) == 15
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert pack_linears(tiny_model("llama")) == 0  # with other threads somebody does
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "body", ["", "packed", "packed\npacked\n", "\0" * 9, "fits\n", "0.5 nan\n"]
)
def test_what_is_broken_in_the_cache_is_tried_again(gains, cache, body):
    pack_linears(tiny_model("llama"))
    for each in cache.iterdir():
        assert each.read_text() == PACKED
        each.write_text(body)
    gains.ratio = 2.0
    assert pack_linears(tiny_model("llama")) == 0
    assert {each.read_text() for each in cache.iterdir()} == {PLAIN}


def test_a_cache_that_others_can_write_to_is_not_read(gains, cache):
    pack_linears(tiny_model("llama"))
    cache.chmod(0o777)
    gains.ratio = 2.0
    assert pack_linears(tiny_model("llama")) == 0


def require_plain(caplog, why):
    """A model is left as it is, and the log says why."""
    model = tiny_model("llama")
    with caplog.at_level(logging.INFO, "ngramkit"):
        assert pack_linears(model) == 0
    assert f"stay plain: {why}" in caplog.text
    assert torch.equal(logits(model), logits(tiny_model("llama")))


def test_missing_operations_leave_the_model_as_it_is(monkeypatch, caplog):
    def missing(*_):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(packed_weights, "packed_product", missing)
    require_plain(caplog, "'_OpNamespace' 'mkldnn' object has no attribute")


@pytest.mark.parametrize("rows", [1, 16])
def test_another_output_leaves_the_model_as_it_is(monkeypatch, caplog, rows):
    right = packed_weights.packed_product

    def off(inputs, packed, bias):
        return right(inputs, packed, bias) * (1.001 if inputs.shape[-2] == rows else 1)

    monkeypatch.setattr(packed_weights, "packed_product", off)
    require_plain(caplog, "the output differs")


def test_one_layer_with_another_output_stays_plain(monkeypatch, caplog):
    right, bad = (
        packed_weights.packed_product,
        tiny_model("llama").model.layers[1].mlp.up_proj.weight,
    )
    wrong = bad.detach().clone()

    def off(inputs, packed, bias):
        found = right(inputs, packed, bias)
        same = packed.shape == wrong.shape and torch.equal(packed.to_dense(), wrong)
        return found + 1 if same else found

    monkeypatch.setattr(packed_weights, "packed_product", off)
    model = tiny_model("llama")
    with caplog.at_level(logging.INFO, "ngramkit"):
        assert pack_linears(model) == 14
    assert linears(model) == [model.model.layers[1].mlp.up_proj]
    assert "the output of one differs" in caplog.text


class Scaled(nn.Linear):
    """Somebody's own layer."""


def test_only_plain_layers_of_torch_are_replaced():
    model = nn.Sequential(Scaled(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    wrapped = model[1].forward
    model[1].forward = lambda inputs: 2 * wrapped(inputs)
    model[2].double()
    assert pack_linears(model) == 1
    assert [type(each) for each in model] == [Scaled, nn.Linear, nn.Linear, PackedLinear]


def test_a_layer_takes_what_a_plain_one_takes():
    plain = nn.Linear(48, 20)
    packed = nn.Sequential(copy.deepcopy(plain))
    assert pack_linears(packed) == 1
    wide = torch.randn(6, 96)
    with torch.no_grad():
        for inputs in (wide[0, :48], wide[:0, :48], wide[:, ::2], wide.view(2, 3, 96)[..., 48:]):
            torch.testing.assert_close(packed(inputs), plain(inputs))
            assert packed(inputs).is_contiguous()


def test_outside_inference_gradients_pass():
    plain, model = tiny_model("llama"), tiny_model("llama")
    pack_linears(model)
    for each in (plain, model):
        each(input_ids=IDS).logits.sum().backward()
    right, found = (each.get_input_embeddings().weight.grad for each in (plain, model))
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)


def test_loaded_models_are_packed_and_measurements_say_so():
    model = load_model("demo", device="cpu")
    assert device_facts(model.model)["device"].endswith("threads, packed weights")
    assert device_facts(unpacked(model.model))["device"].endswith("threads")
    assert model.model.get_output_embeddings() is not None


def test_transformers_own_ways_run_on_the_model_that_they_are_given():
    packed = tiny_model("llama")
    pack_linears(packed)
    seen = []
    plain = LanguageModel("tiny", unpacked(packed), load_tokenizer("demo"))
    plain.model.register_forward_hook(lambda *_: seen.append("plain"))
    packed.register_forward_hook(lambda *_: seen.append("packed"))

    model = LanguageModel("tiny", packed, plain.tokenizer)
    task = Decoder.settle(model, DecodeOptions(budget=4, max_new_tokens=8))
    seen.clear()
    assert len(answer_by("generate", plain, task, np.arange(1, 9, dtype=np.int32)).token_ids)
    assert set(seen) == {"plain"}
