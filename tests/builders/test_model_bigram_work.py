"""How a bigram table is built: batches, memory, killed and resumed, what is said and refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from bigram_tables import WIDTH, K, build
from tiny_lms import HOLE, PADDED, VOCABULARY, tiny_lm, tiny_tokenizer

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders import model_bigram, model_topk
from ngramkit.builders.model_bigram import build_model_bigram
from ngramkit.builders.model_table import weights_fingerprint
from ngramkit.builders.model_topk import Passes


@pytest.fixture(scope="module")
def llama():
    return tiny_lm("llama")


@pytest.mark.parametrize("extend", ["bigram", "model"])
def test_the_batch_size_does_not_show(llama, extend, tmp_path, monkeypatch):
    tables = []
    for rows in (1, 10, 512):
        monkeypatch.setattr(model_topk, "CPU_ROWS", rows)
        tables.append(build(llama, tmp_path / str(rows), extend=extend, k=2, width=3))
    files = [(table.path / "table.safetensors").read_bytes() for table in tables]
    assert files[0] == files[1] == files[2]


def limit_rows(model, monkeypatch, most):
    """Any pass of more rows than `most` is too much for the memory."""
    forward, seen = model.forward, []

    def limited(input_ids, **inputs):
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        seen.append(len(input_ids))
        return forward(input_ids=input_ids, **inputs)

    monkeypatch.setattr(model, "forward", limited)
    return seen


@pytest.mark.parametrize("extend", ["bigram", "model"])
def test_out_of_memory_halves_the_batch(extend, llama, tmp_path, monkeypatch):
    whole = build(llama, tmp_path / "whole", extend=extend)
    seen = limit_rows(llama, monkeypatch, 5)
    halved = build(llama, tmp_path / "halved", extend=extend)
    assert max(seen) == 4  # 512 halved until it fits
    for name in ("next_tokens", "log_probs", "extended"):
        assert np.array_equal(whole.table[name], halved.table[name])


def test_out_of_memory_with_one_row_is_said(llama, tmp_path, monkeypatch):
    limit_rows(llama, monkeypatch, 0)
    passes = Passes(llama, VOCABULARY, np.array([HOLE]))
    with pytest.raises(InputError, match="out of memory with one token"):
        list(passes.likeliest(np.arange(3), 2))


def test_other_errors_are_not_taken_for_memory(llama, monkeypatch):
    def broken(**inputs):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(llama, "forward", broken)
    with pytest.raises(RuntimeError, match="multiplied"):
        list(Passes(llama, VOCABULARY, np.array([HOLE])).likeliest(np.arange(3), 2))


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_logits_that_are_not_finite_are_refused(value, tmp_path):
    model = tiny_lm("llama")
    with torch.no_grad():
        model.lm_head.weight[5, 0] = value
    with pytest.raises(InputError, match="logits"):
        build(model, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("extend", ["bigram", "model"])
def test_a_killed_build_resumes_with_the_same_bytes(extend, llama, tmp_path, monkeypatch):
    monkeypatch.setattr(model_topk, "CPU_ROWS", 16)
    monkeypatch.setattr(model_bigram, "SAVE_SECONDS", 0.0)
    whole = build(llama, tmp_path / "whole", extend=extend)
    forward, passes = llama.forward, []

    def dies(**inputs):
        passes.append(None)
        if len(passes) == dies.after:
            raise KeyboardInterrupt
        return forward(**inputs)

    monkeypatch.setattr(llama, "forward", dies)
    dies.after = 3 if extend == "bigram" else 44  # of 4 and 100: 4 batches, 24 times 4
    deaths = 0
    while not (tmp_path / "t").exists():
        passes.clear()
        try:
            resumed = build(llama, tmp_path / "t", extend=extend)
        except KeyboardInterrupt:
            deaths += 1
            assert not (tmp_path / "t").exists()
    assert deaths == 2
    names = sorted(path.name for path in resumed.path.iterdir())
    assert names == ["README.md", "manifest.json", "table.safetensors"]
    for name in names:
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_built_again_it_is_up_to_date_and_other_weights_are_not(tmp_path):
    model = tiny_lm("llama")
    build(model, tmp_path / "t")
    built = build_model_bigram(model, tiny_tokenizer(), tmp_path / "t", k=K, width=WIDTH)
    assert built.seconds is None
    with torch.no_grad():
        model.lm_head.weight[5, 0] += 1
    with pytest.raises(UsageError, match="exists"):
        build(model, tmp_path / "t")
    build(model, tmp_path / "t", force=True)


def test_the_manifest_says_what_was_asked(llama, tmp_path):
    manifest = build(llama, tmp_path / "t", prefix="bos", extend="model").manifest
    assert manifest.parameters == {
        "model": "tiny",
        "dtype": "float64",
        "k": K,
        "width": WIDTH,
        "prefix": "bos",
        "extend": "model",
    }
    assert manifest.counts == {"rows": VOCABULARY, "drafts": VOCABULARY * K}


def test_fingerprints_tell_weights_apart():
    model = tiny_lm("llama")
    before = weights_fingerprint(model)
    assert before == weights_fingerprint(tiny_lm("llama"))
    with torch.no_grad():
        row = model.lm_head.weight
        row[[3, 4]] = row[[4, 3]]  # the same numbers in other places
    assert weights_fingerprint(model) != before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"k": 0}, "k must be"),
        ({"width": 0}, "width must be"),
        ({"k": VOCABULARY}, "1 to 52"),  # 53 ids, one of them a hole
        ({"prefix": "eos"}, "prefix must be"),
        ({"extend": "greedy"}, "extend must be"),
    ],
)
def test_nonsense_is_refused(wrong, says, llama, tmp_path):
    with pytest.raises(UsageError, match=says):
        build(llama, tmp_path / "t", **wrong)
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_without_bos_has_no_prefix(llama, tmp_path):
    with pytest.raises(UsageError, match="no BOS"):
        build(llama, tmp_path / "t", tiny_tokenizer(bos=None), prefix="bos")


def test_models_that_cannot_have_a_table_are_refused(llama, tmp_path):
    with pytest.raises(InputError, match="no output embedding"):
        build(llama.model, tmp_path / "t")
    with pytest.raises(InputError, match=r"64 ids, .*, got 65"):
        build(llama, tmp_path / "t", tiny_tokenizer(PADDED + 1))
    config = transformers.T5Config(
        vocab_size=PADDED, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    with pytest.raises(InputError, match="encoder-decoder"):
        build(transformers.T5ForConditionalGeneration(config).eval(), tmp_path / "t")
    config = transformers.BertConfig(
        vocab_size=PADDED, hidden_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    config.architectures = ["BertForMaskedLM"]
    with pytest.raises(InputError, match=r"a masked model \(BertForMaskedLM\)"):
        build(transformers.BertForMaskedLM(config).eval(), tmp_path / "t")
    assert not list(tmp_path.iterdir())
