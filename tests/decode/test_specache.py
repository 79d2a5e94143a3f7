"""SpeCache against a naive twin; the order of its copies; its use, and what is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays
from tiny_models import ARCHITECTURES, tiny_model
from twins import specache as naive

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.specache.attention import using_specache_attention
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.prefetching_cache import SpeCacheRun
from ngramkit.decode.specache.quantize import KEYS, VALUES, LowBits, quantize
from ngramkit.decode.specache.store import Copies
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft


def prompt_of(length, seed=0):
    return np.random.default_rng(seed).integers(1, 4000, length).astype(np.int32)


def written(model, prompt, options, new_tokens=6, room=None, drafter=None):
    """(tokens, verifier) of a run."""
    drafter = drafter or NoDraft()
    guesses = drafter if isinstance(drafter, Guesses) else None
    verifier = SpeCacheVerifier(
        model, options, room=room or len(prompt) + new_tokens, guesses=guesses
    )
    try:
        request = Request(prompt=prompt, max_new_tokens=new_tokens, budget=1)
        return decode(verifier, drafter, request).token_ids.tolist(), verifier
    finally:
        verifier.close()


def passes(model, prompt, options, new_tokens):
    """(tokens, asked): as naive.decode says them, without what the pre-decode asked for."""
    verifier = SpeCacheVerifier(model, options, room=len(prompt) + new_tokens)
    with torch.inference_mode():
        tokens, asked = [int(verifier.prefill(prompt)[0].argmax())], []
        while len(tokens) < new_tokens:
            tokens.append(int(verifier.verify(tokens[-1], DraftTree.empty())[0].argmax()))
            verifier.keep([])
            fetched = [layer.fetched for layer in verifier.run.low_layers]
            asked.append([None if f is None else f.positions.tolist() for f in fetched])
    verifier.close()
    return tokens, asked


UNSERVED = {"falcon", "gptj"}  # attend by functions of their own
MODELS = ["llama", "mistral", "qwen2", "gemma2", "gpt_neox", "phi3"]


BORDERS = [
    *((8, length) for length in (7, 15, 16, 17, 24, 41)),
    *((0, length) for length in (8, 15)),
    *((5, length) for length in (12, 13, 20)),
]  # (residual, length of a prompt)


def require_same_pairs(ours, twins):
    """The heaviest pairs, up to ties: the same weights, and each pair once."""
    for layer, heads in zip(ours, twins, strict=True):
        for head, (positions, weights) in enumerate(heads):
            mine = [] if layer is None else layer[head]
            assert len(set(mine)) == len(positions)
            heaviest = sorted(weights[list(positions)])
            np.testing.assert_allclose(sorted(weights[mine]), heaviest, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_fetched_pairs_are_the_twins(name, bits):
    """At prompt lengths around every border of a group and of the residual: half of them with each
    number of bits, which half changes from model to model."""
    model = tiny_model(name).double()
    for residual, length in BORDERS[(MODELS.index(name) + bits) % 2 :: 2]:
        options = SpeCache(bits=bits, group=8, top_k=5, residual=residual)
        prompt = prompt_of(length)
        right, wanted = naive.decode(model, prompt, options, 10)
        tokens, asked = passes(model, prompt, options, 10)
        assert tokens == right
        for ours, twins in zip(asked, wanted[1:], strict=True):
            require_same_pairs(ours, twins)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in UNSERVED])
@pytest.mark.parametrize(
    "options",
    [
        SpeCache(bits=1, group=8, top_k=1000, residual=0),
        SpeCache(bits=2, group=8, top_k=3, residual=1000),
    ],
    ids=["every pair fetched", "nothing quantised"],
)
def test_with_every_pair_in_full_precision_it_is_the_full_cache(name, options):
    model = tiny_model(name)
    prompt = prompt_of(30)
    ids = torch.from_numpy(prompt).long()[None]
    right = model.generate(
        ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    tokens, _ = passes(model, prompt, options, 12)
    assert tokens == right[0, 30:].tolist()


def test_what_is_mixed_of_fetched_pairs_is_bit_for_bit_the_full_cache():
    model = tiny_model("llama")
    keys = {}
    for top_k, residual in ((1000, 0), (3, 1000)):
        options = SpeCache(bits=1, group=8, top_k=top_k, residual=residual)
        verifier = SpeCacheVerifier(model, options, room=64)
        with torch.inference_mode():
            verifier.prefill(prompt_of(30))
            for token in (5, 6, 7, 8):
                verifier.verify(token, DraftTree.empty())
            rows = torch.zeros(1, 2, 1, 8)
            keys[top_k] = [layer.update(rows, rows)[0].clone() for layer in verifier.run.low_layers]
        verifier.close()
    for fetched, kept in zip(keys[1000], keys[3], strict=True):
        assert torch.equal(fetched, kept)


numbers = arrays.arrays(
    np.float32, st.tuples(st.just(2), st.sampled_from([8, 16, 32]), st.sampled_from([16, 32])),
    elements=st.floats(-1000, 1000, width=32),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(numbers, st.sampled_from([1, 2]), st.sampled_from([8, 16]), st.sampled_from([KEYS, VALUES]))
def test_codes_scales_and_packing_are_the_twins(pairs, bits, group, kind):
    pairs = pairs[:, : pairs.shape[1] // group * group]
    if not pairs.shape[1]:
        return
    low = LowBits(kind, bits, group, room=group)  # grows
    for begin in range(0, pairs.shape[1], group):
        low.append(torch.from_numpy(pairs[:, begin : begin + group]))
    out = torch.empty(pairs.shape)
    low.read_into(out)
    packed = quantize(torch.from_numpy(pairs), kind, bits, group).codes.numpy()
    per_byte = 8 // bits
    for head in range(2):
        read, codes = naive.low_bit(pairs[head], kind, bits, group)
        np.testing.assert_allclose(out[head].numpy(), read, rtol=1e-6, atol=1e-6)
        for channel in range(pairs.shape[2]):
            byte = packed[head, :, channel // per_byte]
            code = byte >> (channel % per_byte * bits) & (2**bits - 1)
            assert np.array_equal(code, codes[:, channel])


@pytest.mark.parametrize(
    ("bits", "group", "share"),
    [(2, 32, 0.1875), (2, 64, 0.15625), (1, 32, 0.125), (1, 64, 0.09375)],
)
def test_the_bytes_of_8192_tokens_are_those_of_the_paper(bits, group, share):
    options = SpeCache(bits=bits, group=group, top_k=64, residual=64)
    run = SpeCacheRun(options, 2, room=8192 + 64)
    keys = torch.randn(1, 3, 8192 + 64, 64).bfloat16()
    for layer in run.low_layers:
        layer.update(keys, keys)
    full = 2 * 2 * 3 * 8192 * 64 * 2  # layers, keys and values, heads, tokens, channels, bytes
    held = run.bytes
    assert held["low_bit"] == pytest.approx(share * full, rel=0.05)
    assert held["residual"] == full * 64 / 8192
    assert held["store"] == full


def test_a_group_is_quantised_once_and_never_again():
    options = SpeCache(bits=2, group=8, top_k=0, residual=4)
    layer = SpeCacheRun(options, 1, room=16).low_layers[0]
    layer.update(*[torch.randn(1, 1, 20, 8)] * 2)
    first = layer.update(*[torch.randn(1, 1, 1, 8)] * 2)[0][0, :, :16].clone()
    for _ in range(40):
        layer.update(*[torch.randn(1, 1, 1, 8)] * 2)
        layer.keep(1)
    assert torch.equal(layer.update(*[torch.randn(1, 1, 1, 8)] * 2)[0][0, :, :16], first)
    assert layer.length == 60
    assert layer.quantised == 56


class Recorded(Copies):
    """In place of a CUDA stream: writes down what would happen in which order."""

    def __init__(self):
        self.log, self.marks = [], 0

    def copy(self, target, source, *, now=False):
        self.log.append(("copy", tuple(source.shape), now))
        target.copy_(source)

    def mark(self):
        self.marks += 1
        self.log.append(("mark", self.marks))
        return self.marks

    def wait(self, mark):
        assert 1 <= mark <= self.marks
        self.log.append(("wait", mark))

    def wait_here(self, mark):
        assert 1 <= mark <= self.marks
        self.log.append(("wait here", mark))


def test_positions_are_waited_for_before_pairs_are_gathered_and_pairs_before_they_are_read():
    options = SpeCache(bits=2, group=8, top_k=3, residual=0)
    copies = Recorded()
    layer = SpeCacheRun(options, 1, room=32, copies=copies).low_layers[0]
    rows = torch.randn(1, 2, 16, 8)
    layer.update(rows, rows)
    stored = copies.marks
    layer.update(rows[:, :, :2], rows[:, :, :2])
    copies.log.clear()
    layer.select_heaviest(torch.rand(2, 18), 1)
    layer.keep(1)
    layer.fetch_selected()
    layer.update(rows[:, :, :2], rows[:, :, :2])
    asked, there = stored + 1, stored + 2
    assert copies.log == [
        ("copy", (2, 3), False),  # positions to the CPU, after the attention that chose them
        ("mark", asked),
        ("wait here", asked),
        ("wait here", stored),  # the store's own copies
        ("copy", (2, 3, 8), True),  # keys and values back, beside the rest of the pass
        ("copy", (2, 3, 8), True),
        ("mark", there),
        ("wait", there),  # the next pass reads them
    ]


def test_a_pass_does_not_write_where_the_last_one_still_reads():
    options = SpeCache(bits=2, group=8, top_k=3, residual=0)
    layer = SpeCacheRun(options, 1, room=32).low_layers[0]
    rows = torch.randn(1, 2, 16, 8)
    layer.update(rows, rows)
    places = []
    for _ in range(3):
        layer.update(rows[:, :, :2], rows[:, :, :2])
        layer.select_heaviest(torch.rand(2, 18), 0)
        layer.keep(0)
        layer.fetch_selected()
        places.append(layer.fetched.keys.data_ptr())
    assert places[0] == places[2] != places[1]


def test_hits_are_whole_where_every_pair_is_fetched_and_less_where_few_are():
    model = tiny_model("llama")
    shares = {}
    for top_k in (1000, 2):
        options = SpeCache(bits=2, group=8, top_k=top_k, residual=0, measure=True)
        _, verifier = written(model, prompt_of(40), options, 12)
        shares[top_k] = verifier.run.hits
    assert shares[1000].mass_held() == pytest.approx([1, 1])
    assert shares[1000].top_k_found() == [1, 1]
    assert all(0 < share < 1 for share in shares[2].mass_held())
    assert all(0 <= share < 1 for share in shares[2].top_k_found())


class Knows:
    """Drafts the next token of a text that it knows."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def start(self, prompt):
        self.at = 0

    def draft(self, budget):
        one = [
            np.array([x], d)
            for x, d in ((self.text[self.at], "i4"), (-1, "i4"), (1, "f4"), (0, "u1"))
        ]
        return DraftTree(*one)

    def accept(self, tokens, evidence=None):
        self.at += len(tokens)

    def finish(self):
        pass


def test_a_drafters_guess_stands_in_for_the_speculative_token(monkeypatch):
    model = tiny_model("llama")
    prompt = prompt_of(40)
    options = SpeCache(bits=2, group=8, top_k=1000, residual=0, speculative="drafter")
    right, _ = written(model, prompt, SpeCache(bits=2, group=8, top_k=1000, residual=0), 10)
    rows = []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward",
        lambda self, input_ids=None, **k: rows.append(input_ids[0].tolist())
        or forward(self, input_ids=input_ids, **k),
    )  # fmt: skip
    tokens, _ = written(model, prompt, options, 10, drafter=Guesses(Knows([*right, 1, 1])))
    assert tokens == right
    assert [row[1] for row in rows if len(row) == 2] == right[1:]


def test_a_guess_that_the_model_does_not_have_is_left_out(monkeypatch):
    """As from an artifact whose tokenizer has more ids than the model."""
    monkeypatch.setattr(Knows, "__module__", "ngramkit.drafters")
    model, prompt = tiny_model("llama"), prompt_of(40)
    options = SpeCache(bits=2, group=8, top_k=1000, residual=0, speculative="drafter")
    right, _ = written(model, prompt, options, 10)
    foreign = Knows([model.config.vocab_size] * 12)
    tokens, _ = written(
        model, prompt, options, 10, drafter=Guesses(foreign, model.config.vocab_size)
    )
    assert tokens == right


def test_requests_of_two_threads_leave_the_models_attention():
    """The second began within the first, and ended after it."""
    model = tiny_model("llama")
    before = model.config._attn_implementation
    events = [[threading.Event() for _ in range(2)] for _ in range(2)]

    def use(entered, leave):
        with using_specache_attention(model):
            entered.set()
            leave.wait(10)

    threads = [threading.Thread(target=use, args=each) for each in events]
    for thread, (entered, _) in zip(threads, events, strict=True):
        thread.start()
        entered.wait(0.5)
    for thread, (_, leave) in zip(threads, events, strict=True):
        leave.set()
        thread.join()
    assert model.config._attn_implementation == before


def test_the_model_attends_as_before_when_it_is_over():
    model = tiny_model("llama")
    before = model.config._attn_implementation
    written(model, prompt_of(20), SpeCache(group=8))
    assert model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 3}, "bits must be 1 or 2"),
        ({"group": 12}, "group must be a multiple of 8"),
        ({"top_k": -1}, "top_k must be 0 or more"),
        ({"residual": -1}, "residual must be at least 0"),
        ({"speculative": "luck"}, "speculative must be model or drafter"),
    ],
)
def test_numbers_that_make_no_sense_are_named(wrong, message):
    with pytest.raises(UsageError, match=message):
        SpeCache(**wrong)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("llama", SpeCache(group=16), "group must divide 8, .* got 16"),
        ("llama", SpeCache(group=8, top_k=(4, 4, 4)), "top_k must be .* 2 layers, got 3"),
        ("mpt", SpeCache(group=8), "attend through transformers"),
        ("gptj", SpeCache(group=8), "attend through transformers"),
        ("deepseek_v3", SpeCache(group=8, residual=0, measure=True), "compressed"),
        ("mamba", SpeCache(group=8), "mamba"),
    ],
)
def test_what_does_not_fit_a_model_is_said_before_anything_is_written(name, options, message):
    model = tiny_model(name)
    with pytest.raises((UsageError, InputError), match=message):
        written(model, prompt_of(20), options)
    assert model.config._attn_implementation != "specache"


def test_generate_takes_a_specache_row_by_row():
    model = tiny_model("llama")
    rows = torch.from_numpy(np.stack([prompt_of(24, 1), prompt_of(24, 2)])).long()
    cache = SpeCache(bits=2, group=8, top_k=3, residual=8)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = ngramkit.generate(model, rows, cache=cache, **options)[:, 24:].tolist()
    assert found == [passes(model, prompt_of(24, seed), cache, 8)[0] for seed in (1, 2)]


def test_a_drafter_beside_a_specache_is_refused_where_nothing_is_asked_of_it():
    model = tiny_model("llama")
    with pytest.raises(UsageError, match="cannot verify drafts with a SpeCache"):
        ngramkit.generate(model, [1, 2, 3], drafter="context", cache=SpeCache(group=8))


def test_decode_says_that_it_is_not_lossless_and_what_was_held(ngramkit_cli):
    line = ["decode", "--model", "demo", "--prompt", "ab", "--max-new-tokens", "4", "--json"]
    small = ["--kv-group", "8", "--kv-residual", "0", "--kv-top-k", "2", "--kv-bits", "1"]
    guessed = ["--speculative-token", "drafter", "--drafter", "context"]
    done, drafted, *wrong = ngramkit_cli(
        [*line, "--cache", "specache", *small],
        [*line, "--cache", "specache", *small, *guessed],
        [*line, "--cache", "specache", "--drafter", "context"],
        [*line, "--cache", "specache", "--kv-bits", "2,1"],
        [*line, "--cache", "specache", "--kv-group", "48"],
        [*line, "--cache", "specache", "--compare"],
        [*line, "--cache", "all"],
    )  # fmt: skip
    assert done.code == drafted.code == 0, done.err + drafted.err
    assert done.json["lossless"] is False
    assert done.json["cache"] == "specache"
    assert done.json["budget"] is drafted.json["budget"] is None
    assert done.json["cache_bytes"]["residual"] > 0
    assert "not lossless" in done.err
    assert [result.code for result in wrong] == [2] * 5
    assert "--speculative-token" in wrong[0].err
    assert all(len(result.err.splitlines()) <= 4 for result in wrong)


def test_a_conversation_does_not_pass_over_the_cache_it_was_asked_for():
    with pytest.raises(TypeError, match="cache"):
        ngramkit.Conversation("demo", template="chatml", cache=SpeCache(group=8))


def test_a_request_beside_one_with_a_specache_names_it():
    model, prompt = tiny_model("llama"), torch.from_numpy(prompt_of(20).astype(np.int64))
    said = []

    def ask_beside():
        with pytest.raises(UsageError, match="a SpeCache in another thread") as error:
            ngramkit.generate(model, prompt, drafter="context", max_new_tokens=2)
        said.append(error.value.hint)

    with using_specache_attention(model):
        other = threading.Thread(target=ask_beside)
        other.start()
        other.join()
    assert said
    assert ngramkit.generate(model, prompt, drafter="context", max_new_tokens=2).shape == (1, 22)
