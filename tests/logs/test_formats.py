"""Every format of a log, by a small file made to its writer's letter, is recognised and read."""

from __future__ import annotations

import dataclasses
import json
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import Message
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.logs.read import FORMATS, read_log
from ngramkit.logs.request import FilePlace, LoggedRequest
from ngramkit.logs.request_tokenizer import RequestTokenizer

SAMPLES = Path(__file__).with_name("samples")
LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
PWD = LS.replace("ls", "pwd")
USER = '<tool_call>\n{"name": "get_user", "arguments": {"id": "mia"}}\n</tool_call>'


class Notes(Reporter):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("demo")


def read(*names, **options):
    """Return the requests, and what was said."""
    notes = Notes()
    return list(
        read_log([SAMPLES / name for name in names], reporter=notes, **options)
    ), notes.lines


def plain(requests):
    """Return the requests as values that can be compared."""
    fields = [field.name for field in dataclasses.fields(LoggedRequest) if field.name != "where"]
    rows = [[getattr(request, field) for field in fields] for request in requests]
    return [[v.tolist() if isinstance(v, np.ndarray) else v for v in row] for row in rows]


def ids(numbers):
    return np.array(numbers, np.int32)


def spoken(prompt):
    return [(message.role, message.content) for message in prompt]


def texts(tokenizer, requests):
    return [
        tuple(tokenizer.decode(each) if isinstance(each, np.ndarray) else each for each in pair)
        for pair in ((request.prompt, request.output) for request in requests)
    ]


def test_a_batch_of_openai_is_joined_by_its_ids():
    requests, said = read("openai/batch-input.jsonl", "openai/batch-output.jsonl")
    assert [(r.name, r.prompt, r.output, r.kind) for r in requests] == [
        ("b", "def f(", "x):", "completion"),
        ("b", "def f(", "y):", "completion"),
        ("a", [Message("user", "Say one.")], "One.", "chat"),
    ]
    assert requests[0].time == 1795521600
    assert said[0] == "log: 2 files, requests of OpenAI's API (by its content)"
    assert "the request failed (1)" in said[1]
    other_way, _ = read("openai/batch-output.jsonl", "openai/batch-input.jsonl")
    assert plain(other_way) == plain(requests)
    alone, said = read("openai/batch-output.jsonl")
    assert [(r.prompt, r.output) for r in alone] == [("", "x):"), ("", "y):"), ("", "One.")]
    assert "whose prompt the log does not hold (2)" in said[-1]  # answers with one prompt


def test_a_gateway_keeps_requests_beside_answers():
    tools, thought, response = read("openai/gateway.jsonl")[0]
    (system, asked), called = spoken(tools.prompt), tools.output
    assert system[1].startswith('Be brief.\n\n<tools>\n{"type": "function"')
    assert (asked, called, tools.kind) == (("user", "Who is Mia?"), USER, "tools")
    assert (thought.output, thought.time) == ("<think>\nHm.\n</think>\n\nDone.", 1795521603)
    assert spoken(response.prompt) == [("system", "Be brief."), ("user", "Say two.")]
    assert response.output == 'Two.\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'


def test_texts_that_came_with_a_request_are_references(tmp_path):
    parts = [{"type": "text", "text": "old "}, {"type": "text", "text": "file"}]
    given = [
        {"prediction": {"type": "content", "content": "whole"}},
        {"prediction": {"type": "content", "content": parts}},
        {"vllm_xargs": {"ngramkit_reference": "one"}},
        {"custom_params": {"ngramkit_reference": ["one", [1, 2]]}, "prediction": None},
    ]
    request = {"messages": [{"role": "user", "content": "Edit."}]}
    response = {"choices": [{"message": {"content": "x"}}]}
    log = tmp_path / "log.jsonl"
    lines = [json.dumps({"request": {**request, **each}, "response": response}) for each in given]
    log.write_text("\n".join(lines))
    notes = Notes()
    requests = read_log(log, reporter=notes)
    expected = [("whole",), ("old file",), ("one",), ("one",)]
    assert [request.references for request in requests] == expected
    assert "references that are not texts (1)" in notes.lines[-1]


def test_openhands_calls_and_trajectories():
    (call,), said = read("openhands/completions")
    assert (spoken(call.prompt), call.output) == (
        [("system", "You act."), ("user", "Fix it.")], f"I look.\n{LS}",
    )  # fmt: skip
    assert "OpenAI" in said[0]
    first, last = read("openhands/trajectory.json")[0]
    assert first.output == f"I look.\n{LS}\n{PWD}"  # of two actions
    assert "<tools>" in spoken(first.prompt)[0][1]
    assert [role for role, _ in spoken(last.prompt)] == ["system", "user", "assistant", "user"]
    assert (last.output, last.turn) == ("It is fixed.", 1)
    assert last.time - first.time == 2
    evaluated, _ = read("openhands/output.jsonl")
    assert [r.output for r in evaluated] == [first.output, last.output]
    assert {r.name for r in evaluated} == {"django__1"}


def test_swe_agent_steps_with_the_calls_of_their_history():
    first, last = read("swe-agent/repo__1.traj")[0]
    assert (spoken(first.prompt), first.output) == (
        [("system", "You act."), ("user", "Fix it.")], f"I look.\n{LS}",
    )  # fmt: skip
    assert spoken(last.prompt)[-1] == ("user", "<tool_response>\na.py\n</tool_response>")
    assert (last.output, last.name, last.turn) == ("Submit now.", "repo__1", 1)


def test_swe_agent_steps_are_read_whatever_their_history_holds(tmp_path):
    step = {"query": [{"role": "user", "content": "q"}], "response": "an answer"}
    body = {"trajectory": [step], "history": ["not a message", {"role": "tool"}], "info": {}}
    path = tmp_path / "a.traj"
    path.write_text(json.dumps(body))
    (request,) = read_log(path)
    assert request.output == "an answer"


def test_mini_swe_agent_with_answers_of_either_api():
    first, last = read("mini-swe-agent/django__2.traj.json")[0]
    assert (first.output, first.time, first.name) == ("```bash\nls\n```", 1795521600.5, "django__2")
    assert last.output == LS.replace('"ls"', '"submit"')
    assert len(last.prompt) == 4


def test_tau_bench_conversations():
    requests, said = read("tau-bench.json")
    assert [(r.name, r.run, r.turn, r.output) for r in requests] == [
        ("3", "0", 0, USER), ("3", "0", 1, "Hi Mia."),
    ]  # fmt: skip
    assert "a conversation that failed (1)" in said[-1]


def test_verl_and_its_steps():
    (request,), said = read("verl/7.jsonl")
    assert (request.prompt, request.output) == ("user\n1 + 1?\nassistant\n", "It is 2.")
    assert request.run == "7"
    assert "the answer has no text (1)" in said[-1]


def test_nemo_rl_masks_say_what_the_model_wrote(tokenizer):
    requests, _ = read("nemo-rl/train_data_step3.jsonl")
    begin = "def f(x):\n"
    assert texts(tokenizer, requests) == [
        (begin, "    return x\n"),
        (f"{begin}    return x\n# ran\n", "    return 2 * x\n"),
        (begin, "    return x\n"),
    ]
    assert [(r.run, r.name, r.turn) for r in requests] == [
        ("3", "0", 0),
        ("3", "0", 1),
        ("3", "1", 0),
    ]
    old, validated = read("nemo-rl/old")[0]
    assert (old.prompt, old.output) == (begin, "    return x\n")
    assert (spoken(validated.prompt), validated.output) == ([("user", "1 + 1?")], "It is 2.")


def test_prime_rl_traces_count_once_and_branch(tokenizer):
    requests, said = read("prime-rl/rollouts")
    begin = "def f(x):\n"
    assert texts(tokenizer, requests[:3]) == [
        (f"{begin}#", "    return x\n"),
        (f"{begin}#    return x\n# ran\n", "    return 2 * x\n"),
        (begin, "    return 2 * x\n"),
    ]
    (bare,) = requests[3:]
    assert (spoken(bare.prompt), bare.output) == ([("user", begin)], "    return x\n")
    assert [r.run for r in requests] == ["2", "2", "2", "10"]  # by number, not by letter
    assert "a trace that another stream holds" in said[-1]
    of_ids, of_texts = read("prime-rl/before")[0]
    assert texts(tokenizer, [of_ids]) == [(begin, "    return x\n")]
    assert (spoken(of_texts.prompt), of_texts.output) == ([("user", "2 + 2?")], "It is 4.")


def test_slime_samples_of_torch_and_of_json(tokenizer, tmp_path):
    import torch

    listed = [json.loads(line) for line in (SAMPLES / "slime/rollout_3.jsonl").open()]
    torch.save({"rollout_id": 3, "samples": listed}, tmp_path / "rollout_3.pt")
    requests, _ = read("slime/rollout_3.jsonl")
    assert texts(tokenizer, requests[:2]) == [
        ("def f(x):\n", "    return x\n"),
        ("def f(x):\n    return x\n# ran\n", "    return 2 * x\n"),
    ]
    assert (spoken(requests[2].prompt), requests[2].output) == ([("user", "1 + 1?")], "It is 2.")
    assert plain(read_log(tmp_path)) == plain(requests)


@pytest.mark.parametrize("ending", ["pt", "jsonl"])
def test_parts_of_slimes_prompts_that_are_not_text_are_reported(ending, tmp_path):
    import torch

    parts = [{"type": "text", "text": "1 + 1?"}, {"type": "image_url"}]
    sample = {
        "prompt": [{"role": "user", "content": parts}],
        "response": "2.",
        "response_length": 2,
    }
    path = tmp_path / f"rollout_3.{ending}"
    if ending == "pt":
        torch.save({"samples": [sample]}, path)
    else:
        path.write_text(json.dumps(sample) + "\n")
    (request,), said = read(path)
    assert (spoken(request.prompt), request.output) == ([("user", "1 + 1?")], "2.")
    assert said[-1] == "noticed while reading: a part of a message that is not text (1)"


def test_a_servers_own_log():
    requests, said = read("vllm.log")
    assert [row[:2] for row in plain(requests)] == [
        ["It's \\n\n'one'", "One."],
        [[7, 8], [9, 10]],
        ["old", "er"],
        ["", "alone"],
    ]
    assert [r.finished for r in requests] == [True, False, True, True]
    assert "the answer has no text (1)" in said[1]
    assert "whose prompt the log does not hold (1)" in said[2]
    requests, said = read("sglang.log")
    assert [[r.name, *row[:2]] for r, row in zip(requests, plain(requests), strict=True)] == [
        ["r1", 'Say "one"\n', "One: it's"], ["r2", [7, 8], [9, 10]],
    ]  # fmt: skip
    assert "the log cut its text" in said[-1]
    (request,), said = read("sglang-json.log")
    assert (request.prompt, request.output, request.time) == ("Say one.", "One.", 1795521602)
    assert "the log cut its text" in said[-1]


def test_any_lines_by_the_names_of_their_columns(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [
        {"q": {"text": "1 + 1?"}, "a": "2", "at": "2026-11-24T12:00:01+00:00", "who": "b"},
        {"q": {"text": "2 + 2?"}, "a": ["x"], "at": 1795521600, "who": "a", "old": "3"},
        {"q": {"text": "3 + 3?"}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:1] + rows[2:]))
    columns = {"prompt": "q.text", "output": "a", "time": "at", "kind": "who", "reference": "old"}
    notes = Notes()
    (request,) = read_log(path, columns=columns, reporter=notes)
    assert (request.prompt, request.output, request.kind) == ("1 + 1?", "2", "b")
    assert request.time == 1795521601
    assert "the column 'a' must have a value (1)" in notes.lines[-1]
    path.write_text(json.dumps(rows[1]))
    with pytest.raises(InputError, match="line 1: `output` must be"):
        list(read_log(path, columns=columns))
    for wrong, said in (
        ({"prompt": "q"}, "must name the output"),
        ({"prompt": "q", "output": "a", "hue": "h"}, "unknown field 'hue'"),
    ):
        with pytest.raises(UsageError, match=said):
            list(read_log(path, columns=wrong))
    with pytest.raises(UsageError, match="with the format vllm"):
        list(read_log(path, columns=columns, format="vllm"))


def test_a_conversation_has_the_time_and_the_run_of_its_row(tmp_path):
    path = tmp_path / "talks.jsonl"
    said = [{"role": role, "content": role} for role in ("user", "assistant") * 2]
    said[1]["extra"] = {"timestamp": 50}
    row = {"time": 200, "run": 7, "model": "m", "finish_reason": "length", "messages": said}
    path.write_text(json.dumps(row))
    first, last = read_log(path)
    assert (first.time, first.run, first.model, first.finished) == (50, "7", "m", True)
    assert (last.time, last.run, last.model, last.finished) == (200, "7", "m", False)


def test_requests_without_a_time_follow_the_one_before(tmp_path):
    requests, _ = read("openai/batch-input.jsonl", "openai/batch-output.jsonl")
    by_time = attrgetter("time")
    last, second, first = reversed(requests)
    assert sorted([last, second, first], key=by_time) == [second, first, last]
    untimed, _ = read("verl/7.jsonl")
    assert sorted(untimed, key=by_time) == untimed
    times = {"begin": None, "third": 3, "after": None, "more": None, "first": 1, "second": 2}
    path = tmp_path / "mixed.jsonl"
    rows = [{"prompt": name, "output": "a", "time": time} for name, time in times.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    names = [each.prompt for each in sorted(read_log(path), key=by_time)]
    assert names == ["begin", "first", "second", "third", "after", "more"]


@pytest.mark.parametrize("name", [p.relative_to(SAMPLES).as_posix() for p in SAMPLES.rglob("*.*")])
def test_a_format_may_be_named(name):
    if (SAMPLES / name).is_dir():
        return
    requests, said = read(name)
    title = said[0].partition(", ")[2].removesuffix(" (by its content)") if said else ""
    (form,) = [form.name for form in FORMATS.values() if form.title == title]
    assert plain(read(name, format=form)[0]) == plain(requests)


def test_ids_of_another_tokenizer_are_refused(tokenizer):
    requests, _ = read("nemo-rl/train_data_step3.jsonl")
    notes = Notes()
    encode = RequestTokenizer(tokenizer, reporter=notes)
    tokens = encode(requests[0])
    assert tokenizer.decode(tokens.output) == "    return x\n"
    assert notes.lines == ["the log's token ids are read as those of demo"]
    other = requests[2].output + 1
    spaced = LoggedRequest(requests[2].prompt, requests[2].output, text=" return  x")
    assert len(RequestTokenizer(tokenizer)(spaced).output)
    with pytest.raises(InputError, match="cannot use demo: the token ids in the log are"):
        RequestTokenizer(tokenizer)(LoggedRequest(ids([]), other, text="    return x\n"))
    place = FilePlace(Path("a.jsonl"), "line", 7)
    with pytest.raises(InputError, match=r"the token ids in a\.jsonl, line 7 are not its own"):
        encode(LoggedRequest(ids([1]), ids([1 << 30]), where=place))
    assert encode(LoggedRequest(ids([]), requests[2].output)).prompt.tolist() == []


def test_outputs_alone_need_no_whole_prompts(tokenizer):
    source = Path(__file__).read_text(encoding="utf-8")
    whole, near = RequestTokenizer(tokenizer), RequestTokenizer(tokenizer, prompts=False)
    for cut in range(2000, 6000, 97):
        request = LoggedRequest(source[:cut], source[cut : cut + 200])
        assert near(request).output.tolist() == whole(request).output.tolist()
        assert len(near(request).prompt) < len(whole(request).prompt)


def test_a_conversation_becomes_the_models_own_prompt(tokenizer):
    (_, last), _ = read("tau-bench.json")
    tokens = RequestTokenizer(tokenizer, "chatml")(last)
    prompt = tokenizer.decode(tokens.prompt)
    assert f"<|im_start|>assistant\n{USER}<|im_end|>" in prompt
    assert "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>" in prompt
    assert tokenizer.decode(tokens.output[:-1]) == "Hi Mia."
    assert tokens.output[-1] == tokenizer.record.eos
