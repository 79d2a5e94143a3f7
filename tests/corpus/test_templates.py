"""How conversations become prompts, and which template a model's are made by."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ngramkit.basics.errors import UsageError
from ngramkit.basics.models import resolve_model
from ngramkit.corpus.chat import KNOWN, Message, Template, find_template, known_for
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.prompts import chat_ids
from ngramkit.evaluate.records import read_records

TALK = [Message("user", "Q"), Message("assistant", "A"), Message("user", "R")]
# As FastChat builds it: {question} and {answer} of the first turn, then the next question.
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions. USER: {} ASSISTANT: {}</s>"
    "USER: {} ASSISTANT:"
)
LLAMA = "<s>[INST] Q [/INST] A </s><s>[INST] R [/INST]"
MISTRAL = "[INST] Q [/INST] A</s>[INST] R [/INST]"
CHATML = (
    "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture
def folder(tmp_path):
    """folder(name, **changes): the embedded model's tokenizer under another name."""

    def made(name, **changes):
        path = tmp_path / name
        path.mkdir()
        source = Path(resolve_model("demo"))
        for file in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            shutil.copy(source / file, path / file)
        config = json.loads((path / "tokenizer_config.json").read_text())
        (path / "tokenizer_config.json").write_text(json.dumps({**config, **changes}))
        return str(path)

    return made


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vicuna", VICUNA.format("Q", "A", "R")),
        ("llama-2", LLAMA),
        ("mistral", MISTRAL),
        ("chatml", CHATML),
        ("none", "Q\n\nA\n\nR"),
    ],
)
def test_two_turns_are_what_the_models_saw(name, text):
    assert Template(name, KNOWN[name]).prompt(TALK) == text


def test_a_system_message_has_its_place():
    talk = [Message("system", "S"), *TALK]
    said = {name: Template(name, KNOWN[name]).prompt(talk) for name in KNOWN}
    assert said["vicuna"] == "S USER: Q ASSISTANT: A</s>USER: R ASSISTANT:"
    assert said["llama-2"] == LLAMA.replace("Q", "<<SYS>>\nS\n<</SYS>>\n\nQ")
    assert said["mistral"] == MISTRAL.replace("Q", "S\n\nQ")
    assert said["chatml"] == f"<|im_start|>system\nS<|im_end|>\n{CHATML}"


def test_the_blanks_before_an_answer_are_its_own():
    joints = {name: Template(name, KNOWN[name]).joint for name in KNOWN}
    assert joints == {"vicuna": " ", "llama-2": " ", "mistral": " ", "chatml": "", "none": ""}
    thinking = "{% for m in messages %}{{ m.role }}\n{% if m.role == 'assistant' %}<think></think>"
    assert (
        Template("own", thinking + "{% endif %}{{ m.content }}{% endfor %}assistant\n").joint == ""
    )


def test_vicuna_without_a_template_of_its_own_is_known_by_its_name(folder):
    """lmsys/vicuna-7b-v1.5 ships none."""
    tokenizer = load_tokenizer(folder("vicuna-7b-v1.5"))
    template = find_template("auto", tokenizer)
    assert template.name == "vicuna"
    assert "known for" in str(template)
    ids = chat_ids(tokenizer, template, TALK)
    assert tokenizer.decode(ids) == VICUNA.format("Q", "A", "R")


def test_replayed_records_are_vicunas_two_turns(folder, tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"question_id": 1, "turns": ["Q", "R"]}))
    answers = tmp_path / "a.jsonl"
    answers.write_text(json.dumps({"question_id": 1, "choices": [{"turns": ["A", "B"]}]}))
    tokenizer = load_tokenizer(folder("Vicuna"))
    (record,), template = read_records(answers, questions, tokenizer, "auto")
    assert template.name == "vicuna"
    assert tokenizer.decode(record.turns[1].prompt) == VICUNA.format("Q", "A", "R")
    assert tokenizer.decode(record.turns[1].answer[:-1]) == " B"


def test_the_models_own_template_goes_first(folder):
    own = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[go]"
    tokenizer = load_tokenizer(folder("vicuna", chat_template=own))
    template = find_template("auto", tokenizer)
    assert (template.name, str(template)) == ("own", "template: the model's own")
    assert tokenizer.decode(chat_ids(tokenizer, template, TALK)) == "[user]Q[assistant]A[user]R[go]"
    assert find_template("vicuna", tokenizer).name == "vicuna"


def test_what_is_not_known_is_not_guessed(folder):
    tokenizer = load_tokenizer(folder("mine"))
    with pytest.raises(UsageError, match="none is known for its name") as caught:
        find_template("auto", tokenizer)
    assert "template=vicuna|llama-2|mistral|chatml|none;" in caught.value.hint
    assert caught.value.option == ("template",)
    with pytest.raises(UsageError, match="no chat template"):
        find_template("own", load_tokenizer(folder("vicuna-13b")))
    with pytest.raises(UsageError, match=r"template must be one of auto, own.*got 'alpaca'"):
        find_template("alpaca", tokenizer)


@pytest.mark.parametrize(
    ("model", "template"),
    [
        ("demo", "none"),
        ("vicuna-7b", "vicuna"),
        ("lmsys/vicuna-13b-v1.5", "vicuna"),
        ("llama-2-7b-chat", "llama-2"),
        ("llama-2-7b", None),
        ("codellama-7b-instruct", "llama-2"),
        ("mistral-7b-instruct", "mistral"),
        ("mistral-7b", None),
        ("me/Qwen2.5-7B-Instruct", "chatml"),
        ("qwen3-8b", None),
        ("vicuna/other", None),
    ],
)
def test_names_that_are_known(model, template):
    assert known_for(model) == template
