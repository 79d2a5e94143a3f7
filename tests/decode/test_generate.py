"""Drafts inside model.generate: the same text, in fewer passes; what cannot be honoured."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from scripted import NoisyOracle, WideOracle
from tiny_models import tiny_model
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MaxTimeCriteria,
    StoppingCriteriaList,
)

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.drafters.cacheback import Cacheback

VOCABULARY = 60
PAD = 0
PROMPT = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])
GREEDY = {"do_sample": False, "max_new_tokens": 30}


def endless_model():
    """One that never ends a text by itself."""
    return tiny_model("llama", vocab_size=VOCABULARY, eos_token_id=None, bos_token_id=None)


def oracle(model, prompt, seed=0, **options):
    """A drafter that knows what is coming, and lies about some of it."""
    torch.manual_seed(0)
    row = model.generate(prompt, **{**GREEDY, **options})[0, prompt.shape[1] :]
    return NoisyOracle(row.tolist(), VOCABULARY, seed)


class Passes:
    """Counts the model's forward passes."""

    def __init__(self, model):
        self.count = 0
        self.hook = model.register_forward_hook(self)

    def __call__(self, *_):
        self.count += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hook.remove()


def both(model, prompt=PROMPT, **options):
    """What transformers writes alone, and with drafts; fewer passes or it proves nothing."""
    options = {**GREEDY, **options}
    drafter = oracle(model, prompt, **options)
    torch.manual_seed(0)
    with Passes(model) as alone:
        expected = model.generate(prompt, **options)
    torch.manual_seed(0)
    with Passes(model) as drafted:
        found = ngramkit.generate(model, prompt, drafter=drafter, budget=8, **options)
    assert drafted.count < alone.count
    assert drafter.finished == 1
    return expected, found


@pytest.fixture(scope="module")
def model():
    return endless_model()


class NoThirdTime:
    """A processor with a memory: it must be called once per token, in order."""

    def __init__(self):
        self.lengths = []

    def __call__(self, ids, scores):
        self.lengths.append(ids.shape[1])
        if ids[0, -1] == ids[0, -2]:
            scores[0, ids[0, -1]] = -torch.inf
        return scores


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_new_tokens": 4},
        {"generation_config": GenerationConfig(max_length=21, do_sample=False)},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"bad_words_ids": [[int(t)] for t in range(1, 30)]},
        {"min_new_tokens": 10, "eos_token_id": list(range(40)), "pad_token_id": PAD},
        {"eos_token_id": [29, 12], "pad_token_id": PAD},
        {"do_sample": True, "temperature": 0.9, "top_k": 20, "top_p": 0.95},
        {"do_sample": True, "min_p": 0.01},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_the_text_is_that_of_model_generate(model, options):
    if "generation_config" in options:
        options = {**options, "max_new_tokens": None, "do_sample": None}
    expected, found = both(model, **options)
    assert found.dtype == torch.int64
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_processor_is_called_once_per_token_and_in_order(model):
    processor = NoThirdTime()
    drafter = oracle(model, PROMPT, logits_processor=LogitsProcessorList([NoThirdTime()]))
    found = ngramkit.generate(
        model, PROMPT, drafter=drafter, logits_processor=LogitsProcessorList([processor]), **GREEDY
    )
    expected = model.generate(
        PROMPT, logits_processor=LogitsProcessorList([NoThirdTime()]), **GREEDY
    )
    assert torch.equal(found, expected)
    assert processor.lengths == list(range(PROMPT.shape[1], found.shape[1]))


class Matcher:
    """A grammar as xgrammar and outlines have it: an error to ask after its end."""

    def __init__(self, end):
        self.end, self.lengths, self.ended = end, [], False

    def __call__(self, ids, scores):
        if self.lengths:
            self.ended = self.ended or int(ids[0, -1]) == self.end
            if self.ended:
                raise RuntimeError("the matcher has terminated")
        self.lengths.append(ids.shape[1])
        return scores.index_fill(1, ids[0, -2:], -torch.inf)


@pytest.mark.parametrize(
    "drafter", ["oracle", "prompt-lookup", "context", "cacheback", "recycling"]
)
@pytest.mark.parametrize("end", ["eos", "criterion", "length"])
def test_a_processor_is_never_asked_after_the_end(model, drafter, end):
    free = model.generate(PROMPT, logits_processor=[Matcher(-1)], **GREEDY)[0].tolist()
    begin = len(PROMPT[0])
    last = begin + 9
    last = next(at for at in range(last, len(free)) if free[at] not in free[begin:at])
    options = {
        "eos": {"eos_token_id": free[last], "pad_token_id": PAD},
        "criterion": {
            "stopping_criteria": StoppingCriteriaList([lambda ids, _: ids.shape[1] > last])
        },
        "length": {"max_new_tokens": last - begin + 1},
    }[end]
    options = {**GREEDY, **options}
    matchers = [Matcher(free[last] if end == "eos" else -1) for _ in range(2)]
    expected = model.generate(PROMPT, logits_processor=[matchers[0]], **options)
    if drafter == "oracle":  # knows what would come after the end, too
        drafter = NoisyOracle(free[begin:], VOCABULARY)
    found = ngramkit.generate(
        model, PROMPT, drafter=drafter, budget=16, logits_processor=[matchers[1]], **options
    )
    assert torch.equal(found, expected)
    assert matchers[0].lengths == matchers[1].lengths


def test_stopping_criteria_end_the_text_inside_an_accepted_path(model):
    expected = model.generate(PROMPT, **GREEDY)
    for length in range(9, 15):
        criteria = StoppingCriteriaList([lambda ids, scores, n=length: ids.shape[1] >= n])
        drafter = oracle(model, PROMPT)
        found = ngramkit.generate(
            model, PROMPT, drafter=drafter, stopping_criteria=criteria, **GREEDY
        )
        assert torch.equal(found, expected[:, :length])


def test_a_streamer_gets_the_prompt_and_every_token_once(model):
    got = []

    class Streamer:
        def put(self, ids):
            got.append(ids.flatten().tolist())

        def end(self):
            got.append("end")

    drafter, streamer = oracle(model, PROMPT), Streamer()
    found = model.generate(
        PROMPT,
        custom_generate=functools.partial(ngramkit.custom_generate, streamer=streamer),
        drafter=drafter,
        streamer=streamer,
        **GREEDY,
    )[0].tolist()
    begin = PROMPT.shape[1]
    assert got == [found[:begin], *([token] for token in found[begin:]), "end"]


def test_return_dict_gives_the_sequences(model):
    found = ngramkit.generate(
        model, PROMPT, drafter="cacheback", return_dict_in_generate=True, **GREEDY
    )
    assert torch.equal(found.sequences, model.generate(PROMPT, **GREEDY))


@pytest.mark.parametrize("prompt", [[5, 17, 3], torch.tensor([5, 17, 3]), np.array([[5, 17, 3]])])
def test_prompts_of_any_kind(model, prompt):
    expected = model.generate(torch.tensor([[5, 17, 3]]), **GREEDY)
    assert torch.equal(ngramkit.generate(model, prompt, drafter="cacheback", **GREEDY), expected)


@pytest.mark.parametrize("budget", [8, 64])
def test_a_model_whose_biases_count_columns_writes_its_own_text(budget):
    model = tiny_model("mpt", vocab_size=100, eos_token_id=None, bos_token_id=None)
    for seed in range(6):
        torch.manual_seed(seed)
        prompt = torch.randint(1, 100, (1, 9))
        expected = model.generate(prompt, do_sample=False, max_new_tokens=80)
        drafter = WideOracle(expected[0, 9:].tolist(), siblings=budget - 4)
        found = ngramkit.generate(
            model, prompt, drafter=drafter, budget=budget, do_sample=False, max_new_tokens=80
        )
        assert torch.equal(found, expected)


def left_padded():
    """Three prompts of different lengths and their mask."""
    rows = [[5, 17, 3, 44, 9], [8, 2], [33, 17, 41, 20, 11, 6, 50]]
    longest = max(map(len, rows))
    ids = torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return rows, ids, mask


@pytest.mark.parametrize("kind", ["list", "factory", "one"])
def test_rows_of_a_batch_equal_one_at_a_time(model, kind):
    rows, ids, mask = left_padded()
    options = {**GREEDY, "eos_token_id": [41, 13, 58], "pad_token_id": PAD}
    singly = [
        model.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row)), **options)
        for row in rows
    ]
    drafters = {
        "list": [oracle(model, torch.tensor([row]), seed) for seed, row in enumerate(rows)],
        "factory": lambda: Cacheback(None),
        "one": Cacheback(None),
    }
    found = ngramkit.generate(model, ids, attention_mask=mask, drafter=drafters[kind], **options)
    for row, alone, together in zip(rows, singly, found, strict=True):
        begin = ids.shape[1]
        new = alone[0, len(row) :]
        assert torch.equal(together[begin : begin + len(new)], new)
        assert torch.all(together[begin + len(new) :] == PAD)
    assert len({len(alone[0]) - len(row) for row, alone in zip(rows, singly, strict=True)}) > 1


class Asked:
    """A processor or criterion that keeps what it is given, and state for each row."""

    def __init__(self):
        self.ids, self.rows = [], {}

    def __call__(self, ids, scores):
        self.ids.append(ids.tolist())
        for row, written in enumerate(ids):
            self.rows.setdefault(row, []).append(int(written[-1]))
        if scores is None:
            return torch.tensor([len(self.rows[row]) > 5 + 4 * row for row in self.rows])
        for row, seen in self.rows.items():
            scores[row, seen[row::3]] = -torch.inf  # by the row's number and its own tokens
        return scores


ROWS = {
    "allowed": lambda: {
        "prefix_allowed_tokens_fn": lambda row, ids: [[3, 4, 5], [20, 21], [31, 8, 9]][row]
    },
    "penalty": lambda: {"repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 2},
    "sequences": lambda: {
        "num_return_sequences": 2, "do_sample": True, "repetition_penalty": 1.2, "top_k": 9,
    },
    "sampled": lambda: {"do_sample": True, "temperature": 0.8},
    "guidance": lambda: {"guidance_scale": 1.6},
    "processor": lambda: {"logits_processor": LogitsProcessorList([Asked()])},
    "criterion": lambda: {"stopping_criteria": StoppingCriteriaList([Asked()])},
    "on-and-on": lambda: {
        "stopping_criteria": StoppingCriteriaList([Asked()]), "eos_token_id": None,
    },
    "time": lambda: {"max_time": 600.0},
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_given_what_generate_gives_them(model, name):
    _, ids, mask = left_padded()
    options = {
        **GREEDY, "max_new_tokens": 14, "eos_token_id": [41, 13, 58], "pad_token_id": PAD,
        "attention_mask": mask,
    }  # fmt: skip
    given = [{**options, **ROWS[name]()} for _ in range(2)]
    torch.manual_seed(5)
    with Passes(model) as alone:
        expected = model.generate(ids, **given[0])
    begin, answers = ids.shape[1], iter(expected.tolist())
    torch.manual_seed(5)
    with Passes(model) as drafted:
        oracle = lambda: NoisyOracle(next(answers)[begin:], VOCABULARY)  # noqa: E731
        found = ngramkit.generate(model, ids, drafter=oracle, budget=8, **given[1])
    assert torch.equal(found, expected)
    assert drafted.count < alone.count * len(expected)  # a row's passes are its own
    for kind in ("logits_processor", "stopping_criteria"):
        asked = [each[kind][0].ids for each in given if kind in each]
        assert asked[1:] == asked[:-1]


def test_a_streamer_of_several_rows_gets_a_token_of_each(model):
    class Streamer(list):
        def put(self, ids):
            self.append(ids.tolist())

        def end(self):
            self.append("end")

    ids, streamers = PROMPT.repeat(2, 1), (Streamer(), Streamer())
    model.generate(ids, streamer=streamers[0], **GREEDY)
    ngramkit.generate(model, ids, drafter="cacheback", streamer=streamers[1], **GREEDY)
    assert streamers[0] == streamers[1]


BATCH = {"input_ids": PROMPT.repeat(2, 1)}


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("num_beams=3", {"num_beams": 3}),
        ("assistant_model", {"assistant_model": None}),
        ("prompt_lookup_num_tokens=4", {"prompt_lookup_num_tokens": 4}),
        ("output_scores", {"output_scores": True, "return_dict_in_generate": True}),
        ("output_logits", {"output_logits": True, "return_dict_in_generate": True}),
        ("penalty_alpha", {"penalty_alpha": 0.6, "top_k": 4}),
        ("holes", {"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1, 1]])}),
        ("padding on the right", {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])}),
        ("attention_mask must be .*got .1, 6", {"attention_mask": torch.ones(1, 6)}),
        ("attention_mask must be .*got .1, 7", {**BATCH, "attention_mask": torch.ones(1, 7)}),
        ("attention_mask must be .*got list", {"attention_mask": [[1] * 7]}),
        ("position_ids", {"position_ids": torch.arange(7)[None] + 3}),
        ("one per row", {**BATCH, "drafter": Cacheback(None), "no_repeat_ngram_size": 2}),
        ("got 3 for 2 rows", {**BATCH, "drafter": [Cacheback(None)] * 3}),
        ("drafter must be given", {"drafter": None}),
        ("'cachback'", {"drafter": "cachback"}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(model, named, options):
    if "assistant_model" in options:
        options = {"assistant_model": model}
    call = {"input_ids": PROMPT, "drafter": "cacheback", **GREEDY, **options}
    with pytest.raises(UsageError, match=named):
        ngramkit.generate(model, **call)


def test_a_list_of_drafters_may_hold_names_and_functions(model):
    call = {**BATCH, **GREEDY, "no_repeat_ngram_size": 2}
    expected = ngramkit.generate(model, drafter="cacheback", **call)
    for given in (["cacheback", "context"], ("cacheback", lambda: Cacheback(None))):
        assert torch.equal(ngramkit.generate(model, drafter=given, **call), expected)
    with pytest.raises(UsageError, match="unknown drafter 'cachback'"):
        ngramkit.generate(model, drafter=["cacheback", "cachback"], **call)


def test_time_limits_hold_for_one_row(model):
    criteria = StoppingCriteriaList([MaxTimeCriteria(0.0)])
    found = ngramkit.generate(
        model, PROMPT, drafter="cacheback", stopping_criteria=criteria, **GREEDY
    )
    assert found.shape[1] == PROMPT.shape[1] + 1


@pytest.mark.parametrize("part", ["model", "layer"])
def test_a_model_in_training_mode_is_refused(part):
    model = endless_model()
    model.gradient_checkpointing_enable()
    (model if part == "model" else model.model.layers[1]).train()
    with pytest.raises(UsageError, match="training mode") as refused:
        ngramkit.generate(model, PROMPT, drafter="cacheback", **GREEDY)
    assert "eval()" in refused.value.hint
    model.eval()
    found = ngramkit.generate(model, PROMPT, drafter="cacheback", **GREEDY)
    assert torch.equal(found, model.generate(PROMPT, **GREEDY))
