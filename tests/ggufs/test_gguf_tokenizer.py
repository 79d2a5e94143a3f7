"""The tokenizer of a GGUF file: the same ids as the model's own repository gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gguf_files import demo_metadata, write_gguf
from tokenizers import Regex, Tokenizer, pre_tokenizers

from ngramkit.basics.errors import NgramkitError
from ngramkit.corpus.chat import OWN, Message, find_template
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.tokenizer_record import PROBE_TEXTS
from ngramkit.gguf.header import read_header
from ngramkit.gguf.model_folders import tokenizer_folder
from ngramkit.gguf.tokenizer import end_ids


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def gguf(tmp_path, **changed):
    return str(write_gguf(tmp_path / "a.gguf", demo_metadata(**changed)))


def test_the_embedded_model_as_a_gguf_file_has_its_tokenizer(tmp_path):
    found, demo = load_tokenizer(gguf(tmp_path)), load_tokenizer("demo")
    assert found.record.encodes == demo.record.encodes
    assert found.record.is_same_tokenizer(demo.record)
    assert found.record.vocabulary == demo.record.vocabulary
    assert found.record.eos == demo.record.eos
    assert found.special == demo.special
    for text in PROBE_TEXTS:
        assert found.encode(text).tolist() == demo.encode(text).tolist()
        assert found.decode(found.encode(text)) == text


def pre_tokenizer(tmp_path, pre):
    path = write_gguf(tmp_path / f"{pre}.gguf", demo_metadata(tokenizer__ggml__pre=pre))
    return Tokenizer.from_file(str(tokenizer_folder(path) / "tokenizer.json")).pre_tokenizer


def pieces(splits, text):
    """Return the parts into which a pre-tokeniser splits a text."""
    return [text[a:b] for _, (a, b) in splits.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", [":", "\n", "\n", "1234", " it", "'s", " IT", "'", "S", " 56"]),
        ("smollm", [":", "\n\n", "1", "2", "3", "4", " it", "'s", " IT", "'", "S", " ", "5", "6"]),
        ("llama-bpe", [":\n\n", "123", "4", " it", "'s", " IT", "'S", " ", "56"]),
        ("qwen2", [":\n\n", "1", "2", "3", "4", " it", "'s", " IT", "'S", " ", "5", "6"]),
    ],
)
def test_text_is_split_as_llama_cpp_does_by_the_name_in_the_file(tmp_path, pre, expected):
    assert pieces(pre_tokenizer(tmp_path, pre), ":\n\n1234 it's IT'S 56") == expected


def test_the_pre_tokenisers_are_their_published_expressions(tmp_path):
    """llama.cpp, src/llama-vocab.cpp: of Llama 3 and Qwen 2; of SmolLM digits, then GPT-2's."""
    llama3 = (
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    for pre, regex in (("llama-bpe", llama3), ("qwen2", llama3.replace("{1,3}", ""))):
        ours, split = pre_tokenizer(tmp_path, pre), pre_tokenizers.Split(Regex(regex), "isolated")
        for text in PROBE_TEXTS:
            assert pieces(ours, text) == pieces(split, text)


def test_bos_template_and_special_tokens(tmp_path):
    tokens = [*demo_metadata()["tokenizer.ggml.tokens"], "<|user|>", "[PAD1]"]
    types = [3, *[1] * (len(tokens) - 3), 4, 5]
    found = load_tokenizer(
        gguf(
            tmp_path,
            tokenizer__ggml__tokens=tokens,
            tokenizer__ggml__token_type=types,
            tokenizer__ggml__add_bos_token=True,
            tokenizer__chat_template="{{ messages[0].content }}!",
        )
    )
    user = len(tokens) - 2
    assert found.encode_prompt("a")[0] == 0
    assert found.encode("a<|user|>")[-1] == user
    assert found.record.vocabulary == len(tokens) - 1, "an unused row is no token"
    assert find_template(OWN, found).prompt([Message("user", "hi")]) == "hi!"


@pytest.mark.parametrize(
    ("added", "roles", "ends"),
    [
        ([], {}, [0]),  # demo's eos, <|endoftext|>
        (["<x>", "<|im_end|>"], {"eot": -2}, [0, -2, -1]),
        (["<x>", "<y>"], {"eom": -1}, [0, -1]),
        (["<|end|>", "<|return|>"], {}, [0, -2, -1]),
        (["<|end|>", "<|return|>", "<|call|>"], {}, [0, -2, -1]),  # gpt-oss: <|end|> goes on
    ],
)
def test_a_text_ends_where_llama_cpp_ends_it(tmp_path, added, roles, ends):
    tokens = [*demo_metadata()["tokenizer.ggml.tokens"], *added]
    changed = {
        f"tokenizer__ggml__{role}_token_id": len(tokens) + back for role, back in roles.items()
    }
    path = gguf(tmp_path, tokenizer__ggml__tokens=tokens, **changed)
    assert end_ids(read_header(Path(path))) == [end % len(tokens) for end in ends]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer__ggml__tokens": None}, "holds no tokenizer"),
        ({"tokenizer__ggml__tokens": 3}, "is not of type list"),
        ({"tokenizer__ggml__model": 3}, "is not of type str"),
        ({"tokenizer__ggml__merges": None}, "merges"),
        ({"tokenizer__ggml__merges": ["a"]}, "merges"),
        ({"tokenizer__ggml__merges": ["no such"]}, "merges"),
        ({"tokenizer__ggml__tokens": ["a", "a"], "tokenizer__ggml__token_type": None}, "one text"),
        ({"tokenizer__ggml__token_type": [1, 2]}, "differ in number"),
        ({"tokenizer__ggml__token_type": "x"}, "differ in number"),
        ({"tokenizer__ggml__eos_token_id": 1 << 31}, "outside the vocabulary"),
        ({"tokenizer__ggml__model": "\x1b[2J"}, "cannot convert|the package gguf is missing"),
    ],
)
def test_an_inconsistent_tokenizer_is_refused(tmp_path, changed, said):
    with pytest.raises(NgramkitError, match=said):
        load_tokenizer(gguf(tmp_path, **changed))
    kept = list((tmp_path / "cache").rglob("tokenizer.json"))
    assert not kept, "nothing half made is kept"


def test_an_unknown_pre_tokeniser_is_a_warning(tmp_path, caplog):
    pytest.importorskip("gguf", reason="gguf is not installed")
    found = load_tokenizer(gguf(tmp_path, tokenizer__ggml__pre="of tomorrow"))
    assert "unknown pre-tokeniser 'of tomorrow'" in caplog.text
    assert found.decode(found.encode("Hello world")) == "Hello world"


def test_a_tokenizer_is_converted_once_and_again_after_a_change(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", demo_metadata())
    first = tokenizer_folder(path)
    written = (first / "tokenizer.json").stat().st_mtime_ns
    assert tokenizer_folder(path) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == written
    write_gguf(path, demo_metadata(tokenizer__ggml__pre="smollm"))
    second = tokenizer_folder(path)
    assert second != first
    assert "Digits" in json.dumps(json.loads((second / "tokenizer.json").read_text()))
