"""Drafts for models with recurrent layers: model.generate's tokens, in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from auto_budgets import auto_of
from lossless import decoded, references
from scripted import ChainOracle
from tiny_models import INEXACT, RECURRENT, tiny_model

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import Message
from ngramkit.decode.cache import InPlaceCache, InPlaceLayer, RecurrentLayer, is_recurrent
from ngramkit.decode.calibrate import measure_best_rounds
from ngramkit.decode.conversation import Conversation
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.kept_costs import profile_path
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.prompts import chat_ids
from ngramkit.decode.request import Request
from ngramkit.decode.verifiers import choose_verify_mode, open_verifier
from ngramkit.decode.verify_rows import BatchVerifier, ChainVerifier
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.cacheback import Cacheback
from ngramkit.drafters.registry import NoDraft

BUDGETS = (16, 5, 3, 12)
KINDS = {"chain": ChainVerifier, "batch": BatchVerifier}


@pytest.mark.parametrize("name", RECURRENT)
def test_prompts_are_answered_as_the_model_does(tokenizer, name):
    model, steps = tiny_model(name), []
    for seed, reference in enumerate(references(model, tokenizer, count=8)):
        mode = ("chain", "batch")[seed // len(BUDGETS) % 2]
        run = decoded(
            model,
            ChainOracle(reference.answer, seed),
            reference,
            BUDGETS[seed % len(BUDGETS)],
            verified_by=lambda model, room, mode=mode: open_verifier(model, mode, room=room),
        )
        np.testing.assert_array_equal(run.token_ids, reference.answer)
        steps.append(run.tokens_per_step)
    assert np.mean(steps) > 1.5  # drafts were accepted, wholly and in part


@pytest.mark.parametrize("name", ["qwen3_next", "lfm2"])
def test_such_models_are_given_chains_and_rows_where_asked(name):
    model = tiny_model(name)
    assert is_recurrent(model)
    assert choose_verify_mode(model) == choose_verify_mode(model, "tree") == "chain"
    assert type(open_verifier(model, "chain", room=8)) is ChainVerifier
    assert type(open_verifier(model, "batch", room=8)) is BatchVerifier


@pytest.mark.parametrize("name", INEXACT)
def test_a_model_that_transformers_reads_in_two_ways_is_refused(name):
    model = tiny_model(name)
    for mode in (None, "tree", "chain", "batch"):
        with pytest.raises(InputError, match=f"cannot draft for {name}: "):
            choose_verify_mode(model, mode)


def test_models_with_attention_alone_take_chains_too(tokenizer):
    model = tiny_model("mistral")
    assert not is_recurrent(model)
    for seed, reference in enumerate(references(model, tokenizer, count=8)):
        chain = lambda model, room: open_verifier(model, "chain", room=room)  # noqa: E731
        oracle = ChainOracle(reference.answer, seed)
        run = decoded(model, oracle, reference, 8, verified_by=chain)
        np.testing.assert_array_equal(run.token_ids, reference.answer)


def chain(*tokens):
    count = len(tokens)
    parents = np.arange(-1, count - 1, dtype=np.int32)
    return DraftTree(
        np.array(tokens, np.int32), parents, np.ones(count, np.float32), np.zeros(count, np.uint8)
    )


@pytest.mark.parametrize("kind", KINDS.values())
def test_what_did_not_come_true_rides_along_and_no_pass_only_repairs(kind):
    model = tiny_model("qwen3_next")
    verifier, widths = kind(model, room=8), []
    model.register_forward_pre_hook(
        lambda _, args, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    with torch.inference_mode():
        verifier.prefill(np.arange(1, 6, dtype=np.int32))
        verifier.verify(7, chain(8, 9, 10))
        verifier.keep([0])  # 7 and 8 are written, 9 is not
        assert (verifier.length, verifier.replayed) == (7, 2)
        verifier.verify(11, chain(12))
        verifier.keep([0])  # all of it: the states have caught up
        assert (verifier.length, verifier.replayed) == (9, 0)
        verifier.verify(13, chain())
        verifier.keep([])
    assert widths == [5, 4, 4, 1]
    assert (verifier.length, verifier.replayed) == (10, 0)


def test_convolutions_alone_are_cut_and_nothing_rides():
    model = tiny_model("lfm2")
    verifier = ChainVerifier(model, room=8)
    with torch.inference_mode():
        verifier.prefill(np.arange(1, 6, dtype=np.int32))
        verifier.verify(7, chain(8, 9, 10))
        verifier.keep([0])
    assert (verifier.length, verifier.replayed) == (7, 0)


def test_a_pass_has_no_more_rows_than_the_budget_allows():
    verifier = ChainVerifier(tiny_model("mamba2"), room=8)
    with torch.inference_mode():
        verifier.prefill(np.arange(1, 6, dtype=np.int32))
        verifier.verify(7, chain(8, 9, 10))
        verifier.keep([0])
    whole = chain(*range(1, 9))
    assert len(verifier.fit(whole, 5)) == 3
    assert len(verifier.fit(whole, 2)) == 0  # the states catch up


def test_an_auto_budget_counts_the_rows_that_ride():
    unsure = chain(5, 6, 7, 8)
    unsure.scores[:] = [0.6, 0.3, 0.1, 0.05]
    kept = {}
    for per_row in (0.0, 0.2, 2.0):
        cuts = [auto_of(per_row).cut(unsure, 9, replayed) for replayed in (0, 8)]
        kept[per_row] = [len(each) for each in cuts]
        assert len(auto_of(per_row).cut(unsure, 9)) >= kept[per_row][0]
    assert kept == {0.0: [4, 4], 0.2: [1, 0], 2.0: [0, 0]}


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("verify", [None, "batch"])
def test_an_auto_budget_decodes_with_it(tmp_path, monkeypatch, tokenizer, calibrated, verify):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = LanguageModel("tiny/mamba2", tiny_model("mamba2"), tokenizer)
    reference = references(model.model, tokenizer, count=1)[0]
    if calibrated:
        found = measure_best_rounds(model, sizes=(0, 1, 4, 8), contexts=(8, 32), seconds=0)
        found.save(profile_path(model))
    decoder = Decoder.settle(model, DecodeOptions(verify=verify))
    assert (decoder.verify, decoder.shown_budget) == (verify or "chain", "auto")
    assert (decoder.costs.unit(8) > 0) == calibrated
    request = Request(reference.prompt, 12, decoder.budget, eos=frozenset({0}))
    run = decoder.decode(request, ChainOracle(reference.answer))
    np.testing.assert_array_equal(run.token_ids, reference.answer)


def rewound(verifier, prompt, length):
    """Logits behind the prompt, of a verifier that has read and written something else before."""
    with torch.inference_mode():
        verifier.prefill(np.append(prompt[:6], 3).astype(np.int32))
        verifier.verify(7, chain(8, 9, 10))
        verifier.keep([0])
        verifier.rewind(length)
        return verifier.prefill(prompt)


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "lfm2", "mamba2"])
@pytest.mark.parametrize("length", [0, 5, 6])
def test_rewound_it_answers_as_a_new_one(name, length):
    model, prompt = tiny_model(name), np.arange(1, 12, dtype=np.int32)
    with torch.inference_mode():
        right = ChainVerifier(model, room=8).prefill(prompt)
    found = rewound(ChainVerifier(model, room=8), prompt, length)
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("name", ["qwen3_next", "lfm2"])
def test_turns_of_a_conversation_go_on_from_the_states(tokenizer, name):
    model = LanguageModel(f"tiny/{name}", tiny_model(name), tokenizer)
    made = Conversation(
        model, drafter=lambda: Cacheback(None), template="chatml", max_new_tokens=12
    )
    task = Decoder.settle(model, DecodeOptions(budget=1, max_new_tokens=12))
    for turn, text in enumerate(("def main(", "and again: def main(", "once more")):
        messages = [*made.messages, Message("user", text)]
        reply = made.ask(text)
        request = task.request(chat_ids(tokenizer, made.template, messages))
        expected = task.decode(request, NoDraft())
        np.testing.assert_array_equal(reply.run.token_ids, expected.token_ids)
        assert (reply.held > 0) == (turn > 0)


def test_generate_takes_the_cache_that_some_models_name_otherwise():
    model, ids = tiny_model("mamba2"), torch.tensor([[5, 6, 7, 8, 5, 6, 7]])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 12}
    found = ngramkit.generate(model, ids, drafter="context", max_new_tokens=12)
    assert torch.equal(found, model.generate(ids, **options))
    filled = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, cache_params=filled, use_cache=True)
    with pytest.raises(UsageError, match="cannot honour cache_params"):
        ngramkit.generate(model, ids, drafter="context", cache_params=filled, **options)


# Interrupted passes.


class Interrupt:
    """Raises at one of the places where a pass may end: after a part of the model has run, or while
    the cache takes in what it read."""

    def __init__(self, monkeypatch, model):
        self.place, self.seen = None, 0
        for part in model.modules():
            part.register_forward_hook(self)
        for layer, name in ((RecurrentLayer, "ends"), (InPlaceLayer, "spread")):
            monkeypatch.setattr(layer, name, self.before(getattr(layer, name)))

    def before(self, method):
        def call(*args):
            self()
            return method(*args)

        return call

    def __call__(self, *_):
        self.seen += 1
        if self.seen == self.place:
            raise KeyboardInterrupt


def read(verifier, prompt, tokens):
    """The logits of a prompt's end, of passes with a draft each, half right, and what is held."""
    rows = [verifier.prefill(prompt)]
    for token in tokens:
        tree = verifier.fit(chain(*range(token + 1, token + 5)), 64)
        rows.append(verifier.verify(token, tree).clone())
        verifier.keep([0, 1])
    return torch.cat(rows)


@pytest.mark.parametrize("name", ["mamba2", "lfm2", "qwen3_next"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_pass_leaves_no_trace(monkeypatch, name, kind):
    model = tiny_model(name)
    first, second = np.arange(3, 20, dtype=np.int32), np.arange(50, 61, dtype=np.int32)
    with torch.inference_mode():
        right = read(KINDS[kind](model, room=8), second, [7, 90])
        interrupt = Interrupt(monkeypatch, model)
        read(KINDS[kind](model, room=8), first, [7])
        places = interrupt.seen
        for place in {3, places // 3, places // 2, places - 1, places}:
            verifier = KINDS[kind](model, room=8)
            interrupt.place, interrupt.seen = place, 0
            with pytest.raises(KeyboardInterrupt):
                read(verifier, first, [7])
            verifier.rewind(0)
            torch.testing.assert_close(read(verifier, second, [7, 90]), right)


def test_memory_that_runs_out_between_keys_and_values_changes_nothing(monkeypatch):
    cache = InPlaceCache(1, 2)
    first = torch.arange(12.0).view(1, 1, 4, 3)
    cache.update(first, -first, 0)
    cache.length = 4
    more = torch.ones(1, 1, 8, 3)

    class Full:
        shape = more.shape

        def __len__(self):
            return 1

        def new_empty(self, shape):
            raise MemoryError

    with pytest.raises(MemoryError):
        cache.update(more, Full(), 0)
    keys, values = cache.update(more, more, 0)
    assert torch.equal(keys[:, :, :4], first)
    assert torch.equal(values[:, :, :4], -first)
