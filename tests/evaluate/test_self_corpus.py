"""A model's own answers as a corpus: the same text however the work was cut, and never torn."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode import plain_batch
from ngramkit.decode.load import load_model
from ngramkit.decode.plain_batch import write_batch
from ngramkit.decode.sampling import Sampling
from ngramkit.evaluate.records import Question
from ngramkit_cli.main import app

TOKENS = 12


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


def questions(count=7):
    texts = ["def add(a, b):", "import os", "class Node:\n    def __init__(self", "x = [1, 2"]
    return [
        Question(i, "code", [f"# {i}\n{texts[i % 4]}", "\nreturn"][: 1 + i % 2])
        for i in range(count)
    ]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row_is_what_the_model_writes_alone(model):
    texts = ["def add(a, b):\n", "import", "class Node:\n    def __init__(self, value"]
    prompts = [model.tokenizer.encode_prompt(text) for text in texts]
    together = write_batch(model, prompts, max_new_tokens=TOKENS, sampling=Sampling())
    for prompt, written in zip(prompts, together, strict=True):
        alone = ngramkit.generate(
            model.model, np.array([prompt]), drafter="none", max_new_tokens=TOKENS
        )
        assert np.asarray(alone)[0, len(prompt) :].tolist() == written.tolist()


def test_a_row_ends_with_its_eos(model):
    prompt = model.tokenizer.encode_prompt("import os\n")
    free = write_batch(model, [prompt], max_new_tokens=6, sampling=Sampling())[0]
    model.model.generation_config.eos_token_id, before = (
        int(free[2]),
        model.model.generation_config.eos_token_id,
    )
    try:
        ended = write_batch(model, [prompt, prompt[:1]], max_new_tokens=6, sampling=Sampling())
    finally:
        model.model.generation_config.eos_token_id = before
    first = free.tolist().index(int(free[2]))
    assert ended[0].tolist() == free[: first + 1].tolist()


def test_the_answers_are_a_corpus(model, tmp_path):
    path = tmp_path / "own.jsonl"
    found = ngramkit.self_corpus(questions(), model, path, max_new_tokens=TOKENS, batch=np.int64(3))
    written = lines(path)
    assert len(written) == found.answers
    assert found.answers + found.repeated == sum(len(q.turns) for q in questions())
    assert found.tokens == sum(line["tokens"] for line in written)
    documents = ngramkit.open_corpus(str(path)).documents()
    assert [document.text for document in documents] == [line["text"] for line in written]
    order = [(line["question"], line["turn"]) for line in written]
    assert order == sorted(order)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9, "seed": 5}])
def test_an_interrupted_run_goes_on_to_the_same_bytes(model, tmp_path, monkeypatch, sampling):
    options = {"max_new_tokens": TOKENS, "batch": 2, **sampling}
    whole = tmp_path / "whole.jsonl"
    ngramkit.self_corpus(questions(), model, whole, **options)
    cut = tmp_path / "cut.jsonl"
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return write_batch(*args, **kwargs)

    monkeypatch.setattr(plain_batch, "write_batch", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        ngramkit.self_corpus(questions(), model, cut, **options)
    [note] = stopped.value.__notes__
    assert re.match(rf"kept in {cut}: \d of 7 questions; the same command goes on there$", note)
    asked_before = len(calls)
    with cut.open("a") as file:  # as a kill in the middle of a write leaves it
        file.write('{"text": "half a li')
    ngramkit.self_corpus(questions(), model, cut, **options)
    assert cut.read_bytes() == whole.read_bytes()
    calls_for_all = sum(max(len(q.turns) for q in questions()[i : i + 2]) for i in range(0, 7, 2))
    assert len(calls) < asked_before + calls_for_all  # what was finished is not asked again


def test_a_run_killed_before_its_first_answer_goes_on(model, tmp_path):
    path = tmp_path / "own.jsonl"
    ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)
    whole, plan = path.read_bytes(), tmp_path / "own.jsonl.plan"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "done": 0, "bytes": 0}))
    path.unlink()
    ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)
    assert path.read_bytes() == whole


def test_nothing_is_asked_twice_when_all_is_there(model, tmp_path, monkeypatch):
    path = tmp_path / "own.jsonl"
    first = ngramkit.self_corpus(questions(3), model, path, max_new_tokens=4)
    monkeypatch.setattr(plain_batch, "write_batch", None)
    again = ngramkit.self_corpus(questions(3), model, path, max_new_tokens=4)
    assert (again.answers, again.tokens, again.new_tokens) == (first.answers, first.tokens, 0)


def test_the_same_answer_is_written_once(model, tmp_path):
    twice = [Question(1, "a", ["import os\n"]), Question(2, "a", ["import os\n"])]
    found = ngramkit.self_corpus(twice, model, tmp_path / "own.jsonl", max_new_tokens=8)
    assert (found.answers, found.repeated) == (1, 1)


def test_what_does_not_fit_is_left_out(model, tmp_path):
    long = [Question(1, "a", ["x = 1\n" * 2000]), Question(2, "a", ["import os\n"])]
    found = ngramkit.self_corpus(long, model, tmp_path / "own.jsonl", max_new_tokens=8)
    assert (found.answers, found.left_out) == (1, 1)


def test_other_files_and_other_plans_are_kept(model, tmp_path):
    path = tmp_path / "thesis.jsonl"
    path.write_text("mine\n")
    for force in (False, True):
        with pytest.raises(UsageError, match="no plan of a self-corpus"):
            ngramkit.self_corpus(questions(1), model, path, force=force)
    assert path.read_text() == "mine\n"
    own = tmp_path / "own.jsonl"
    ngramkit.self_corpus(questions(1), model, own, max_new_tokens=4)
    before = own.read_bytes()
    with pytest.raises(UsageError, match=r"other answers: max new tokens was 4, is 5"):
        ngramkit.self_corpus(questions(1), model, own, max_new_tokens=5)
    assert own.read_bytes() == before
    ngramkit.self_corpus(questions(1), model, own, max_new_tokens=5, force=True)
    assert lines(own)[0]["tokens"] == 5


@pytest.mark.parametrize("damage", ["", "null", "[]", '{"plan": 3}'])
def test_a_damaged_plan_is_said(model, tmp_path, damage):
    path = tmp_path / "own.jsonl"
    ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)
    (tmp_path / "own.jsonl.plan").write_text(damage)
    with pytest.raises((UsageError, InputError)):
        ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)


def test_answers_that_were_cut_are_said(model, tmp_path):
    path = tmp_path / "own.jsonl"
    ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="shorter than it was"):
        ngramkit.self_corpus(questions(1), model, path, max_new_tokens=4)


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.txt").write_text("import os\ndef main(\n")
    command = ["self-corpus", "demo", "--prompts", "ask.txt", "--max-new-tokens", "6"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert "--corpus self-corpus/ask-demo.jsonl --model demo" in done.stdout
    again = CliRunner().invoke(app, [*command, "--json"])
    said = json.loads(again.stdout.splitlines()[-1])
    assert said["path"] == "self-corpus/ask-demo.jsonl"
    assert said["answers"] + said["repeated"] == 2
    refused = CliRunner().invoke(app, [*command, "--batch", "0"])
    assert refused.exit_code == 2
    assert "--batch must be 1 to 4096" in refused.stderr
