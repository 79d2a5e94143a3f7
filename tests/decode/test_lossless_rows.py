"""Several rows and a generation config x kinds of architecture: model.generate's tokens."""

from __future__ import annotations

import pytest
import torch
from scripted import NoisyOracle
from tiny_models import RECURRENT, VOCABULARY, tiny_model

import ngramkit

NEW = 8
KINDS = (
    "llama", "qwen2", "gemma2", "gpt2", "gpt_oss", "deepseek_v3",  # trees
    "mpt", "gpt_neo",  # rows
    "qwen3_next", "mamba2", "lfm2",  # chains
)  # fmt: skip
CONFIG = {"repetition_penalty": 0.6, "no_repeat_ngram_size": 2, "suppress_tokens": [5, 9]}


@pytest.mark.parametrize("name", KINDS)
def test_drafts_change_nothing_but_the_passes(name):
    model = tiny_model(name)
    for setting, value in CONFIG.items():
        setattr(model.generation_config, setting, value)
    ids = torch.randint(10, VOCABULARY, (2, 21), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if name not in RECURRENT:  # which read padding, too
        ids[0, :4], mask[0, :4] = 0, 0
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(ids, max_new_tokens=NEW, **options)
    # An end of text that one row writes, the other does not.
    end = next(t for t in expected[0, 24:].tolist() if t not in expected[1].tolist())
    options["eos_token_id"] = [end, 1]
    expected = model.generate(ids, max_new_tokens=NEW, **options)
    oracles = [NoisyOracle(row, VOCABULARY, 3) for row in expected[:, ids.shape[1] :].tolist()]
    passes = []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    ngramkit.generate(model, ids, drafter="none", max_new_tokens=2, **options)  # with the probe
    passes.clear()
    found = ngramkit.generate(model, ids, drafter=oracles, budget=12, max_new_tokens=NEW, **options)
    hook.remove()
    assert torch.equal(found, expected)
    assert len(passes) < NEW + int((expected[0, ids.shape[1] :] != 0).sum())
