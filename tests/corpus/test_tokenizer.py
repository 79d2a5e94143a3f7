"""Tokenizers are those of transformers, from a folder, from the Hub and from the cache."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from tokenizer_folders import CHAT, SHAPES, byte_level, write, write_all

import ngramkit
from ngramkit.basics.errors import InputError
from ngramkit.basics.models import resolve_model
from ngramkit.corpus.chat import OWN, Message, find_template
from ngramkit.corpus.tokenizer import TokenizerFiles, load_tokenizer
from ngramkit.evaluate.records import answer_text
from ngramkit.formats.tokenizer_record import tokenizer_fingerprint

# Where tokenizers differ: spaces, digits, contractions, scripts, combining marks, code, marks.
PROBE = (
    "Hello  world, it's 12345 days \u2014 na\u00efve e\u0301 \u6f22\u5b57 \U0001f642\n"
    "\n\tdef f(x):\n"
    "  return 'a</s><s>b' <|endoftext|> <|im_end|>\n<unk>end "
)
TURNS = [{"role": "user", "content": "Hi <b> & 'you'"}, {"role": "assistant", "content": "Yes"}]


def chat(tokenizer):
    """The turns by the tokenizer's own template."""
    return find_template(OWN, tokenizer).prompt([Message(**turn) for turn in TURNS])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("tokenizers"))


def require_same(path):
    from transformers import AutoTokenizer

    ours, full = load_tokenizer(str(path)), AutoTokenizer.from_pretrained(path)
    ids = full(PROBE)["input_ids"]
    assert ours.encode_prompt(PROBE).tolist() == ids
    assert ours.encode(PROBE).tolist() == full(PROBE, add_special_tokens=False)["input_ids"]
    assert ours.decode(ids) == full.decode(ids)
    assert ours.record.fingerprint == tokenizer_fingerprint(full.backend_tokenizer)
    assert ours.record.eos == full.eos_token_id
    assert ours.bos == full.bos_token_id
    assert (ours.chat_template is None) == (full.chat_template is None)
    if full.chat_template:
        rendered = full.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True)
        assert chat(ours) == rendered


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_loaded_as_transformers_does(folders, name):
    require_same(folders[name])


def test_the_embedded_model_too():
    require_same(resolve_model("demo"))


@pytest.mark.parametrize("name", ["llama-2", "qwen3"])
def test_an_answer_keeps_its_first_space(folders, tmp_path, name):
    tokenizer, prompt, answer = load_tokenizer(folders[name]), "# \u6f22", "    return x\n"
    log, past = tmp_path / "log.jsonl", tmp_path / "past"
    log.write_text(json.dumps({"prompt": prompt, "output": answer}))
    ids = tokenizer.encode(prompt + answer)[len(tokenizer.encode(prompt)) :]
    plain = find_template("none", tokenizer)
    assert answer_text(tokenizer, plain, [*ids, tokenizer.record.eos]) == answer
    ngramkit.history_import(log, past, model=folders[name])
    shown = ngramkit.history_inspect(past, last=1).last[0].output
    assert shown == answer + tokenizer.eos_token
    assert ngramkit.history_forget(past, text=answer).dropped == 1


@pytest.mark.parametrize("text", ["a\udcff", "\ud83d"])  # a broken byte; half a pair
def test_invalid_text_is_refused(text):
    tokenizer = load_tokenizer(str(resolve_model("demo")))
    for encode in (tokenizer.encode, tokenizer.encode_prompt):
        with pytest.raises(InputError, match="must be valid Unicode"):
            encode(text)


def test_templates_get_the_names_that_transformers_gives(tmp_path):
    template = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.first %}"
        "{{ m | tojson }}{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}"
        "{% generation %}{{ m['content'] | trim }}{% endgeneration %}{% endfor %}"
        "{{ ns.n }}{{ tools is none }}{{ strftime_now('%Y') | length }}\n"
        "  {% if add_generation_prompt %}\nA:{% endif %}\n"
    )
    config = {"tokenizer_class": "GPT2Tokenizer", "chat_template": template}
    require_same(write(tmp_path / "m", byte_level().to_str(), config, "gpt2", {}))


def test_the_default_one_of_several_templates_is_taken(tmp_path):
    templates = [
        "no template",
        {"name": ["default"], "template": "of no name"},
        {"name": "tool_use", "template": "for tools"},
        {"name": "default", "template": "for people"},
    ]

    def chosen(several):
        config = {"tokenizer_config.json": json.dumps({"chat_template": several}).encode()}
        return TokenizerFiles("", tmp_path, config).chat_template()

    assert chosen(templates) == "for people"
    assert chosen({"tool_use": "for tools", "default": "for people"}) == "for people"
    assert chosen(templates[:3]) is None


def test_a_template_that_fails_or_leaves_the_sandbox_is_an_error(tmp_path):
    body = byte_level().to_str()
    refused = [
        "{{ raise_exception('no') }}",
        "{{ messages.append(1) }}",
        "{% for %}",
        "{{ 1 / 0 }}",
    ]
    for number, template in enumerate([*refused, "{{ ''.__class__.__mro__ }}"]):
        config = {"tokenizer_class": "GPT2Tokenizer", "chat_template": template}
        path = write(tmp_path / str(number), body, config, "gpt2", {})
        with pytest.raises(InputError):
            chat(load_tokenizer(str(path)))


def test_classes_with_steps_of_their_own(tmp_path):
    body = json.loads(byte_level().to_str())
    body["normalizer"] = {"type": "Lowercase"}
    config = {"tokenizer_class": "RobertaTokenizer", "bos_token": "<|endoftext|>"}
    require_same(write(tmp_path / "roberta", json.dumps(body), config, "roberta", {}))


def test_transformers_loads_a_tokenizer_once(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = load_tokenizer(str(folders["llama-2-more-tokens"]))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "transformers", None)
        without.setattr("ngramkit.corpus.tokenizer.tokenizer_digests", None)  # which are kept, too
        again = load_tokenizer(str(folders["llama-2-more-tokens"]))
        with pytest.raises(ImportError):
            load_tokenizer(str(folders["llama-2"]))
    assert again.record == first.record
    assert again.special == first.special
    assert again.backend.to_str() == first.backend.to_str()


def test_transformers_loads_again_after_a_change_of_files_or_version(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = write(tmp_path / "m", byte_level().to_str(), {"eos_token": "<|im_end|>"}, "gpt2", {})
    kept = tmp_path / "ngramkit/tokenizers"

    def texts():
        before = load_tokenizer(str(folder))
        assert before.record == load_tokenizer(str(folder)).record
        return len(list(kept.glob("*.txt")))

    assert texts() == 1
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    assert texts() == 2
    monkeypatch.setattr("importlib.metadata.version", lambda package: "99.0")
    assert texts() == 3
    for file in kept.glob("*.txt"):
        file.write_text(file.read_text()[:1000])
    assert texts() == 3


@pytest.mark.parametrize(
    "lie",
    [
        [],
        {"vocabulary": -1},
        {"vocabulary": 6.5},
        {"vocabulary": 1 << 40},
        {"fingerprint": "\x1b[2J"},
        {"encodes": None},
        {"more": 1},
    ],
)
def test_kept_digests_that_cannot_be_are_computed_again(tmp_path, monkeypatch, lie):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = write(tmp_path / "m", byte_level().to_str(), {"eos_token": "<|im_end|>"}, "gpt2", {})
    record = load_tokenizer(str(folder)).record
    [file] = (tmp_path / "ngramkit/tokenizers").glob("*.txt")
    head, _, body = file.read_text().partition("\n")
    facts = json.loads(head)
    facts["digests"] = facts["digests"] | lie if lie else lie
    file.write_text(f"{json.dumps(facts)}\n{body}")
    assert load_tokenizer(str(folder)).record == record
    assert file.read_text() == f"{head}\n{body}"  # kept anew


def test_a_configuration_that_names_other_tokenizer_files(tmp_path):
    config = {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}
    folder = write(tmp_path / "m", byte_level().to_str(), config, "gpt2", {})
    with pytest.raises(InputError, match="names several tokenizer files"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[" * 100_000),
        ("tokenizer_config.json", "null"),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"eos_token": {"content": 5}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": 7}'),
        ("special_tokens_map.json", "\ufeff"),
        ("config.json", "{"),
    ],
)
def test_broken_files_are_named(tmp_path, name, content):
    path = write(tmp_path / "m", byte_level().to_str(), None, "llama", {name: content})
    with pytest.raises(InputError):
        load_tokenizer(str(path))


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(InputError):
        load_tokenizer(str(tmp_path))


def test_from_the_hub_and_from_its_cache(hub, tmp_path, folders):
    """One request for the list of files, the small files only; then without a network."""
    files = {file.name: file.read_bytes() for file in folders["qwen3"].iterdir()}
    hub.add("model", "acme/qwen", {**files, "model.safetensors": b"large"})
    code = (
        "import sys; from ngramkit.corpus.tokenizer import load_tokenizer as load;"
        "one = load('acme/qwen'); print(one.record.fingerprint, one.record.eos, one.chat_template)"
    )
    expected = load_tokenizer(str(folders["qwen3"])).record
    hub.requests.clear()
    environment = hub.environment(tmp_path / "home")
    first = run(code, environment)
    assert first.stdout.split()[:2] == [expected.fingerprint, str(expected.eos)]
    assert CHAT.splitlines()[0] in first.stdout
    assert not [request for request in hub.requests if "safetensors" in request]
    again = run(code, {**environment, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert again.stdout == first.stdout
    missing = run(code.replace("acme/qwen", "acme/none"), environment)
    assert re.search("InputError: .*acme/none", missing.stderr)


def run(code, environment):
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
