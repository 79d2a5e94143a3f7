"""Passes of fixed shape give what passes as they come give, recorded or not."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless import references
from scripted import NoisyOracle, tree_of
from tape import Tape
from tiny_models import FEW, VOCABULARY, tiny_model

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import static
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.static import StaticVerifier, pool_of
from ngramkit.decode.verifiers import open_verifier
from ngramkit.decode.verify_tree import TreeVerifier

ROWS = 40
PROMPT = np.arange(5, 30, dtype=np.int32)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module", params=[*FEW, "mistral-eager"])
def model(request):
    name, _, attention = request.param.partition("-")
    return tiny_model(name, **({"attn_implementation": attention} if attention else {}))


@pytest.fixture
def tape(monkeypatch):
    """Everything opened from now on is recorded, and replayed."""
    tape = Tape()
    monkeypatch.setattr(static, "recorder_for", lambda model: tape)
    monkeypatch.setattr(static, "POOLS", weakref.WeakKeyDictionary())
    return tape


def random_tree(nodes, random):
    parents = [int(random.integers(-1, node)) for node in range(nodes)]
    return tree_of([(int(random.integers(VOCABULARY)), parent) for parent in parents])


def random_path(tree, random):
    """From the top to any node, or no node."""
    node, path = int(random.integers(-1, len(tree))), []
    while node >= 0:
        path.append(node)
        node = int(tree.parents[node])
    return path[::-1]


def compared(model, seed, sizes, *, room=None, prompts=(1, 60)):
    """Both verifiers are led down the same random trees; room runs out on the way if little."""
    random = np.random.default_rng(seed)
    prompt = random.integers(VOCABULARY, size=int(random.integers(*prompts))).astype(np.int32)
    room = room or len(prompt) + 20
    ours, other = StaticVerifier(model, room=room), TreeVerifier(model, room=room)
    with torch.inference_mode():
        torch.testing.assert_close(ours.prefill(prompt), other.prefill(prompt), **CLOSE)
        for size in sizes:
            tree, root = random_tree(size, random), int(random.integers(VOCABULARY))
            expected = other.verify(root, tree)
            logits = ours.verify(root, tree)
            assert logits.shape == expected.shape == (size + 1, VOCABULARY)
            torch.testing.assert_close(logits, expected, **CLOSE)
            path = random_path(tree, random)
            ours.keep(path)
            other.keep(path)
            assert ours.length == other.length
    return ours


SIZES_OF_DRAFTS = st.lists(st.integers(0, 110), min_size=3, max_size=7)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=SIZES_OF_DRAFTS)
def test_logits_are_the_tree_verifiers(model, seed, sizes):
    compared(model, seed, sizes)


def test_windows_reach_back_along_the_path(model):
    """Past siblings of the draft that lie between in the cache."""
    siblings = [(100 + node, -1) for node in range(10)]
    chain = [(200 + node, node - 1 if node > 10 else -1) for node in range(10, 40)]
    tree = tree_of(siblings + chain)
    ours, other = StaticVerifier(model, room=90), TreeVerifier(model, room=90)
    with torch.inference_mode():
        for each in (ours, other):
            each.prefill(PROMPT)
        torch.testing.assert_close(ours.verify(1, tree), other.verify(1, tree), **CLOSE)


def test_a_replay_holds_for_other_tokens_trees_and_lengths(model, tape):
    """Nothing but shapes may be fixed in a recording; with the tape, that is tested here."""
    sizes = [5, 0, 7, 8, 0, 20, 30, 64, 0, 1, 50]
    for seed, prompts in enumerate([(1, 60), (1, 60), (200, 220), (240, 250)]):
        compared(model, seed, sizes, room=350, prompts=prompts)
    assert tape.recorded == 8  # 1, 9, 33 and 65 rows, each within 256 and 512 columns
    assert tape.replayed == 4 * len(sizes)
    assert tape.pools == 1


def test_greedy_text_is_the_models_own(model, tape):
    steps = []
    for seed, reference in enumerate(references(model, load_tokenizer("demo"))[:ROWS]):
        drafter = NoisyOracle(reference.answer, VOCABULARY, seed)
        request = Request(reference.prompt, 12, (1, 4, 24)[seed % 3], eos=frozenset({0}))
        verifier = open_verifier(model, engine="static", room=len(reference.prompt) + 2)
        assert isinstance(verifier, StaticVerifier)
        done = decode(verifier, drafter, request)
        np.testing.assert_array_equal(done.token_ids, reference.answer)
        steps.append(done.tokens_per_step)
    assert np.mean(steps) > 2
    assert tape.replayed > 5 * tape.recorded


def test_room_grows_and_what_was_recorded_is_forgotten(tape):
    model = tiny_model("qwen2")
    verifier = compared(model, 1, [60] * 20 + [0, 130, 5, 200], room=1)
    assert verifier.memory.cache.room == 512
    assert tape.waited == 1
    made = verifier.memory.recordings.made
    assert (225, 512) in made
    assert (65, 256) not in made


def test_a_draft_within_the_context_fits_whatever_its_padding(tape):
    """The model's context is full: rows that only fill up lie behind it."""
    model = tiny_model("gpt2", n_positions=64)
    verifier, other = StaticVerifier(model, room=64), TreeVerifier(model, room=64)
    prompt = np.arange(1, 63, dtype=np.int32)
    with torch.inference_mode():
        verifier.prefill(prompt)
        other.prefill(prompt)
        tree = tree_of([(3, -1)])
        torch.testing.assert_close(verifier.verify(7, tree), other.verify(7, tree), **CLOSE)
    assert verifier.memory.cache.room == 192  # 64 and the widest draft, aligned


def test_requests_after_each_other_share_memory_and_recordings(tape):
    model = tiny_model("llama")
    memory = compared(model, 1, [5, 0]).memory
    recorded = tape.recorded
    for seed in (2, 3):
        assert compared(model, seed, [5, 0, 8]).memory is memory
    assert tape.recorded == recorded == 2


def test_requests_at_once_have_memory_of_their_own(tape):
    model = tiny_model("llama")
    trees = [tree_of([(3, -1), (4, 0)]), tree_of([(8, -1), (9, -1)])]
    verifiers = [StaticVerifier(model, room=40) for _ in trees]
    others = [TreeVerifier(model, room=40) for _ in trees]
    with torch.inference_mode():
        for i, each in enumerate(verifiers + others):
            each.prefill(PROMPT + 100 * (i % 2))
        for _ in range(2):
            found = [each.verify(7, tree) for each, tree in zip(verifiers, trees, strict=True)]
            for logits, other, tree in zip(found, others, trees, strict=True):
                torch.testing.assert_close(logits, other.verify(7, tree), **CLOSE)
            for each in verifiers + others:
                each.keep([1])
    assert verifiers[0].memory is not verifiers[1].memory
    assert tape.pools == 2
    held = {id(each.memory) for each in verifiers}
    del verifiers, each
    assert {id(memory) for memory in pool_of(model).free} == held


def test_a_larger_request_takes_the_free_memory_and_makes_it_larger(tape):
    model = tiny_model("llama")
    small = compared(model, 1, [5]).memory
    large = StaticVerifier(model, room=400)
    assert large.memory is small
    assert small.cache.room == 512
    assert not small.recordings.made
    small_again = StaticVerifier(model, room=40)
    assert small_again.memory.cache.room == 256
    del large, small_again
    assert StaticVerifier(model, room=40).memory.cache.room == 256  # the smallest that has room


def test_a_broken_request_spoils_no_other(tape):
    model = tiny_model("llama")
    verifier = StaticVerifier(model, room=40)
    memory = verifier.memory
    with torch.inference_mode():
        for store in memory.cache.stores.values():
            store.fill_(torch.nan)
    del verifier
    assert compared(model, 3, [5, 0]).memory is memory


def test_weights_that_moved_are_not_read_where_they_were(tape):
    model = tiny_model("llama")
    compared(model, 1, [5, 0])
    before = pool_of(model)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 2)
    compared(model, 2, [5, 0])
    assert pool_of(model) is not before
    model.bfloat16()
    with torch.inference_mode():
        StaticVerifier(model, room=40).prefill(PROMPT)  # float32 memory would be an error


def test_a_model_is_not_kept_alive(tape):
    model = tiny_model("llama")
    compared(model, 1, [5, 0])
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
