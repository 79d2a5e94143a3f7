"""The attention that passes run with."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_model
from torch.nn.attention import SDPBackend, sdpa_kernel

import ngramkit
from ngramkit.decode.passes import model_passes

CUDNN, MATH = SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH


def cudnn_may_attend() -> bool:
    return torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("rows", [1, 2])
def test_passes_with_drafts_run_without_cudnns_attention(rows):
    model, seen = tiny_model("llama"), []
    ids = torch.arange(2, 12).repeat(rows, 2)
    asked = {"drafter": "context", "max_new_tokens": 8, "do_sample": False}
    ngramkit.generate(model, ids, **asked)  # it also probes the model
    model.register_forward_hook(lambda *_: seen.append(cudnn_may_attend()))
    with sdpa_kernel([CUDNN, MATH]):
        ngramkit.generate(model, ids, **asked)
        assert cudnn_may_attend()
    assert set(seen) == {False}


@pytest.mark.parametrize(
    ("allowed", "during"), [([CUDNN, MATH], False), ([CUDNN], True), ([MATH], False)]
)
def test_a_callers_choice_of_attention_stays(allowed, during):
    with sdpa_kernel(allowed):
        with model_passes():
            assert cudnn_may_attend() == during
            assert torch.is_inference_mode_enabled()
        assert cudnn_may_attend() == (CUDNN in allowed)
