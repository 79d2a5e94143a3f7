"""Batches in model.generate: row by row, and by name what cannot be honoured."""

from __future__ import annotations

import pytest
import torch
from generated import GREEDY, PAD, PROMPT, endless_model, oracle
from transformers import (
    MaxTimeCriteria,
    StoppingCriteriaList,
)

import ngramkit
from ngramkit.drafters.cacheback import Cacheback
from ngramkit.errors import UsageError

pytestmark = pytest.mark.usefixtures("probed_at_once")


@pytest.fixture(scope="module")
def model():
    return endless_model()


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


BATCH = {"input_ids": PROMPT.repeat(2, 1)}


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("num_beams=3", {"num_beams": 3}),
        ("assistant_model", {"assistant_model": "the model"}),
        ("prompt_lookup_num_tokens=4", {"prompt_lookup_num_tokens": 4}),
        ("output_scores", {"output_scores": True, "return_dict_in_generate": True}),
        ("output_logits", {"output_logits": True, "return_dict_in_generate": True}),
        ("penalty_alpha", {"penalty_alpha": 0.6, "top_k": 4}),
        ("holes", {"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1, 1]])}),
        ("padding on the right", {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])}),
        ("position_ids", {"position_ids": torch.arange(7)[None] + 3}),
        ("streamer with several rows", {**BATCH, "streamer": "a streamer"}),
        ("max_time with several rows", {**BATCH, "max_time": 9.0}),
        ("3 drafters for 2 rows", {**BATCH, "drafter": [Cacheback(None)] * 3}),
        ("no drafter", {"drafter": None}),
        ("no drafter is called", {"drafter": "cachback"}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(model, named, options):
    class Streamer:
        def put(self, ids): ...
        def end(self): ...

    stand_ins = {"the model": model, "a streamer": Streamer()}
    options = {
        name: stand_ins.get(value, value) if isinstance(value, str) else value
        for name, value in options.items()
    }
    call = {"input_ids": PROMPT, "drafter": "cacheback", **GREEDY, **options}
    with pytest.raises(UsageError, match=named):
        ngramkit.generate(model, **call)


def test_time_limits_hold_for_one_row(model):
    criteria = StoppingCriteriaList([MaxTimeCriteria(0.0)])
    found = ngramkit.generate(
        model, PROMPT, drafter="cacheback", stopping_criteria=criteria, **GREEDY
    )
    assert found.shape[1] == PROMPT.shape[1] + 1
