"""Lengths at which a model turns positions differently, or has no more: generate's own text."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from scripted import NoisyOracle
from tiny_models import ARCHITECTURES, RECURRENT, tiny_model

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.corpus.chat import Message
from ngramkit.decode.conversation import Conversation
from ngramkit.decode.length_limits import LengthLimits, restore_frequencies, rope_limits
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import decode
from ngramkit.decode.prompts import chat_ids
from ngramkit.decode.request import Request
from ngramkit.decode.verifiers import choose_verify_mode, open_verifier
from ngramkit.drafters.registry import NoDraft

SWITCH = 30
WITHOUT_ROPE = ("gpt2", "opt", "gptj", "gpt_bigcode", "granitemoehybrid", "mamba2")
NEW_TOKENS = 10
TURNED = [name for name in (*ARCHITECTURES, *RECURRENT) if name not in WITHOUT_ROPE]
# Every architecture with one kind of rope, in turns: tiny models of all would take too long.
CASES = [(name, ("longrope", "dynamic")[turn % 2]) for turn, name in enumerate(TURNED)]


def turned(name, kind, at=SWITCH):
    """A model whose rope changes after so many tokens."""
    sizes = {"head_dim": 16} if "qwen3" in name else {}  # a quarter of it turns
    first = tiny_model(name, **sizes)
    half = min(len(each) for part, each in first.named_buffers() if part.endswith("inv_freq"))
    settings = {"rope_type": kind, "factor": 4.0}
    if kind == "longrope":
        sizes["original_max_position_embeddings"] = at
        settings |= {"short_factor": [1.0] * half, "long_factor": [2.0 + i for i in range(half)]}
        settings["original_max_position_embeddings"] = at
    else:
        sizes["max_position_embeddings"] = at
    rope = first.config.rope_parameters
    by_layer = {key: {**value, **settings} for key, value in rope.items() if type(value) is dict}
    model = tiny_model(name, **sizes, rope_parameters=by_layer or {**rope, **settings})
    assert rope_limits(model.config).lengths == (at,)
    return model


def generated(model, prompt, new_tokens=NEW_TOKENS, **options):
    """What a new model's generate writes: dynamic scaling leaves frequencies of other lengths."""
    for part in model.modules():
        if hasattr(part, "original_max_seq_len"):
            restore_frequencies(part)
    ids = torch.from_numpy(prompt)[None].long()
    options = {"do_sample": False, "max_new_tokens": new_tokens, "eos_token_id": None, **options}
    return model.generate(ids, pad_token_id=0, **options)[0, len(prompt) :].tolist()


def prompts(lengths):
    random = np.random.default_rng(5)
    return [random.integers(1, 4096, length).astype(np.int32) for length in lengths]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_text_is_generates_across_a_switch_of_rope(name, kind):
    model, steps = turned(name, kind), []
    modes = ("chain", "batch") if name in RECURRENT else ("tree", "batch")
    for mode, prompt in zip(modes, prompts((SWITCH, 24)), strict=True):
        answer = generated(model, prompt)
        verifier = open_verifier(model, choose_verify_mode(model, mode), room=len(prompt) + 2)
        oracle = NoisyOracle(answer, 4096)
        run = decode(verifier, oracle, Request(prompt, NEW_TOKENS, 8))
        assert run.token_ids.tolist() == answer, (mode, len(prompt))
        steps.append(run.tokens_per_step)
    assert max(steps) > 1


@pytest.mark.parametrize("name", ["llama", "phi3"])  # phi3 reads its text again at the switch
@pytest.mark.parametrize("mode", ["tree", "batch", "chain"])
def test_every_length_of_a_prompt_around_a_switch(name, mode):
    model = turned(name, "longrope")
    for prompt in prompts((SWITCH + 1, SWITCH, SWITCH - 1, SWITCH - 6)):
        answer = generated(model, prompt)
        for drafter in (NoDraft(), NoisyOracle(answer, 4096, len(prompt))):
            verifier = open_verifier(model, choose_verify_mode(model, mode), room=64)
            run = decode(verifier, drafter, Request(prompt, NEW_TOKENS, 8))
            assert run.token_ids.tolist() == answer, len(prompt)


def test_requests_of_two_threads_do_not_share_frequencies():
    """The longer one's frequencies are set while the shorter one's pass begins."""
    model = turned("llama", "dynamic")
    longer, shorter = prompts((50, 40))
    logits = {}

    def read(prompt):
        with torch.inference_mode():
            logits[len(prompt)] = open_verifier(model, "tree", room=64).prefill(prompt)

    for prompt in (longer, shorter):
        read(prompt)
    alone = dict(logits)
    begun, turned_, done = (threading.Event() for _ in range(3))

    def before(*_):
        if threading.current_thread().name == "longer":
            begun.wait(0.3)
        else:
            begun.set()
            turned_.wait(0.3)

    def after(*_):
        if threading.current_thread().name == "longer":
            turned_.set()
            done.wait(0.3)
        else:
            done.set()

    model.model.rotary_emb.register_forward_pre_hook(before)
    model.model.rotary_emb.register_forward_hook(after)
    threads = [
        threading.Thread(target=read, args=(prompt,), name=name)
        for name, prompt in (("longer", longer), ("shorter", shorter))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for length, expected in alone.items():
        torch.testing.assert_close(logits[length], expected)


def test_a_longer_request_leaves_no_frequencies_behind():
    model = turned("llama", "dynamic")
    long, short = prompts((50, SWITCH + 2))
    answer = generated(model, short)
    for prompt in (long, short):
        verifier = open_verifier(model, choose_verify_mode(model), room=64)
        run = decode(verifier, NoDraft(), Request(prompt, NEW_TOKENS, 8))
    assert run.token_ids.tolist() == answer


def test_turns_of_a_conversation_are_read_again_across_a_switch(tokenizer):
    model = LanguageModel("tiny/llama", turned("llama", "longrope", at=100), tokenizer)
    talk = Conversation(model, drafter=NoDraft, template="chatml", max_new_tokens=8)
    held = []
    for text in ("a b", "c d", "e f", "g h"):
        messages = [*talk.messages, Message("user", text)]
        reply = talk.ask(text)
        prompt = chat_ids(tokenizer, talk.template, messages)
        answer = generated(model.model, prompt, 8, eos_token_id=0)
        assert reply.run.token_ids.tolist() == answer, len(prompt)
        held.append(reply.held)
    assert [each > 0 for each in held] == [False, True, False, True]


def test_rows_of_several_lengths_across_a_switch_are_refused_by_name():
    model = turned("llama", "longrope")
    ids = torch.randint(1, 4096, (2, 20))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    call = {"drafter": "context", "attention_mask": mask, "pad_token_id": 0, "do_sample": False}
    assert ngramkit.generate(model, ids, max_new_tokens=4, **call).shape == (2, 24)
    with pytest.raises(UsageError, match="rope"):
        ngramkit.generate(model, ids, max_new_tokens=20, **call)


@pytest.mark.parametrize("name", ["gpt2", "opt", "gptj"])
def test_drafts_end_where_learned_positions_end(name):
    size = "max_position_embeddings" if name == "opt" else "n_positions"
    model, prompt = tiny_model(name, **{size: 40}), prompts((28,))[0]
    answer = generated(model, prompt, 12)
    left = iter(range(len(answer) - 1, -1, -1))
    request = Request(prompt, 100, 8, stop=lambda _: not next(left))
    oracle = NoisyOracle([*answer, *range(1, 100)], 4096)
    run = decode(open_verifier(model, choose_verify_mode(model), room=128), oracle, request)
    assert run.token_ids.tolist() == answer


def test_room_ends_at_an_edge():
    limits = LengthLimits((10, 20))
    assert [limits.room(length) for length in (4, 9, 10, 11, 19, 20, 21)] == [
        5,
        0,
        0,
        8,
        0,
        0,
        None,
    ]
    assert LengthLimits((10,), dynamic=10).room(30) == 0
