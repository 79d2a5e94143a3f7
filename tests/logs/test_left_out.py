"""Nothing of a log is lost, joined or guessed without a line that counts it."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
from dataclasses import replace
from itertools import permutations
from operator import attrgetter
from pathlib import Path

import pytest

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import Message
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.evaluate.records import read_records
from ngramkit.formats.history import History
from ngramkit.logs import containers, request_tokenizer
from ngramkit.logs.history_commands import history_import, history_inspect
from ngramkit.logs.read import NewestItems, read_log
from ngramkit.logs.request import LoggedRequest
from ngramkit.logs.request_tokenizer import RequestTokenizer

ASKED = {"messages": [{"role": "user", "content": "q"}]}
GEMMA = """{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}\
{% endif %}{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}\
{% if add_generation_prompt %}<s>model\n{% endif %}"""


class Notes(Reporter):
    def __init__(self):
        self.text = ""

    def note(self, text):
        self.text += f"{text}\n"


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("demo")


def write(path, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read(path, **options):
    notes = Notes()
    return list(read_log(path, reporter=notes, **options)), notes.text


def outputs(path, **options):
    return [request.output for request in read(path, **options)[0]]


def call(answer, request=ASKED, **more):
    return {"request": request, "response": answer, **more}


def chat(text, **more):
    return {"choices": [{"message": {"role": "assistant", "content": text}, **more}]}


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": "b", "output": None},
        {"prompt": "b", "output": ""},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": 3}]},
        {"other": 1},
        '{"prompt": "b", "out',  # cut
        '{"prompt": "b", "output": ' + "1" * 5000 + "}",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_record_is_counted(tmp_path, bad, place):
    rows = [{"prompt": "a", "output": "x"}, {"prompt": "c", "output": "z"}]
    rows.insert(place, bad)
    path = write(tmp_path / "a.jsonl", *rows)
    requests, said = read(path)
    assert [request.output for request in requests] == ["x", "z"]
    assert "skipped 1 record, read 2 requests" in said
    assert f"a.jsonl, line {place + 1}" in said
    with pytest.raises(InputError, match=r"a\.jsonl"):
        read(write(path, bad, bad))


def test_reasons_are_counted_in_one_line(tmp_path):
    rows = [call({"error": "x"}), call(chat("x"), cache_hit="True"), call(chat("a"))] * 50
    _, said = read(write(tmp_path / "a.jsonl", *rows))
    assert "the request failed (50), the answer came from a cache (50)" in said
    assert said.count("\n") == 2


def test_a_refused_conversation_is_counted(tokenizer, tmp_path):
    own = replace(tokenizer, chat_template=GEMMA)
    good = [*ASKED["messages"], {"role": "assistant", "content": "an answer"}]
    odd = [{"role": "system", "content": "be kind"}, *good]
    path = write(tmp_path / "a.jsonl", *({"messages": m} for m in (good, odd, good)))
    notes = Notes()
    records, _ = read_records(path, None, own, "auto", reporter=notes)
    assert len(records) == 2
    assert "No system role" in notes.text
    assert "a.jsonl, line 2" in notes.text
    with pytest.raises(InputError, match="No system role"):
        read_records(write(path, {"messages": odd}), None, own, "auto")


def test_a_batch_of_another_day_keeps_its_answers(tmp_path):
    def asked(text):
        return {"custom_id": "1", "body": {"prompt": text}}

    def answered(text):
        return {"custom_id": "1", "response": {"body": {"choices": [{"text": text}]}}}

    for day in ("one", "two"):
        write(tmp_path / f"a/input/{day}.jsonl", asked(f"q {day}"))
        write(tmp_path / f"a/output/{day}.jsonl", answered(f"a {day}"))
        write(tmp_path / f"b/{day}/results.jsonl", answered(f"a {day}"))
        write(tmp_path / f"b/{day}/requests.jsonl", asked(f"q {day}"))
    for folder in "ab":
        pairs = {(r.prompt, r.output) for r in read(tmp_path / folder)[0]}
        assert pairs == {("q one", "a one"), ("q two", "a two")}
    write(tmp_path / "c/x.jsonl", asked("q one"), asked("q two"), answered("?"), asked("q"))
    write(tmp_path / "c/x.jsonl", asked("q one"), asked("q two"), answered("?"))
    with pytest.raises(InputError, match="custom_id"):
        read(tmp_path / "c")


def vllm(name, prompt, output):
    return (
        f"INFO Received request {name}: prompt: {prompt!r}, params: SamplingParams(n=1), "
        "prompt_token_ids: None, lora_request: None.",
        f"INFO Generated response {name}: output: {output!r}, output_token_ids: [1], "
        "finish_reason: stop",
    )


def test_the_ids_of_an_answer_that_vllm_logs_too_are_no_cut_line(tmp_path):
    asked, answered = vllm("chatcmpl-1", "q", "o")
    ids = "DEBUG Generated response chatcmpl-1 details: output_token_ids: [1, 2]"
    write(tmp_path / "a.log", asked, ids, answered, ids[:40])
    requests, said = read(tmp_path)
    assert [(r.prompt, r.output) for r in requests] == [("q", "o")]
    assert "truncated, or not from the server (1)" in said


@pytest.mark.parametrize(("reason", "finished"), [("length", False), ("stop", True)])
def test_a_streamed_answer_of_vllm_ends_as_its_last_part(tmp_path, reason, finished):
    """Its whole text, as vLLM 0.33.0 logs it at level DEBUG, comes without the reason."""
    begin = "INFO Generated response a (streaming"
    write(
        tmp_path / "a.log",
        vllm("a", "q", "")[0],
        f"{begin} delta) details: output_token_ids: [1]",
        f"{begin} delta): output: 'on', finish_reason: None",
        f"{begin} delta) details: output_token_ids: [2]",
        f"{begin} delta): output: 'e', finish_reason: {reason}",
        f"{begin} complete) details: output_token_ids: None",
        f"{begin} complete): output: 'one', finish_reason: streaming_complete",
    )
    ((request,), said) = read(tmp_path)
    assert (request.prompt, request.output, request.finished) == ("q", "one", finished)
    assert "truncated" not in said


def test_two_servers_that_share_an_id_keep_their_prompts(tmp_path):
    asked, _ = vllm("1", "q of a", "")
    _, answered = vllm("1", "", "answer of b")
    write(tmp_path / "a.log", asked, vllm("2", "q", "o")[1])
    write(tmp_path / "b.log", answered)
    requests, said = read(tmp_path)
    assert [(r.prompt, r.output) for r in requests] == [("", "o"), ("", "answer of b")]
    assert "whose prompt the log does not hold (2)" in said


@pytest.mark.parametrize("docker", [False, True])
def test_lines_that_a_container_cut_are_joined(tmp_path, monkeypatch, docker):
    monkeypatch.setattr(containers, "MAX_DOCUMENT", 1000)
    lines = [*vllm("a", "def f():", "x = 1; " * 50), *vllm("b", "a " * 99, "yes")]
    lines += [*vllm("c", "p", "z" * 2000)]
    wrapped = []
    for line in [*lines, *vllm("d", "cut", "off")[:1]]:
        parts = [line[at : at + 100] for at in range(0, len(line), 100)]
        for number, part in enumerate(parts, 1):
            ends = number == len(parts) and "'cut'" not in line
            if docker:
                body = {"log": part + "\n" * ends, "stream": "stderr", "time": "t"}
                wrapped.append(json.dumps(body))
            else:
                wrapped.append(f"2026-11-24T12:00:00.0Z stderr {'F' if ends else 'P'} {part}")
                wrapped.append("2026-11-24T12:00:00.0Z stdout F between")
    path = write(tmp_path / "a.log", *wrapped)
    requests, said = read(path)
    assert [(r.prompt, r.output) for r in requests] == [
        ("def f():", "x = 1; " * 50), ("a " * 99, "yes"),
    ]  # fmt: skip
    assert containers.JOINED in said
    assert f"{containers.INCOMPLETE} (1)" in said
    assert "a line of more than" in said


def test_a_line_that_was_cut_is_counted(tmp_path):
    asked, answered = vllm("a", "a long prompt", "a long answer")
    path = write(tmp_path / "a.log", asked[:40], answered, *vllm("b", "q", "o"), answered[:45])
    requests, said = read(path)
    assert [(r.prompt, r.output) for r in requests] == [("", "a long answer"), ("q", "o")]
    assert "skipped 2 records" in said


def test_rotated_files_are_read_and_others_counted(tmp_path):
    def answer(name):
        return vllm("x", "", name)[1]

    folder = tmp_path / "logs"
    for name in ("new.log", "new.log.1", "0.log.20261124-120000", "0.log", ".git/a.log",
                 "__MACOSX/._new.log", ".b.log", "notes.md"):  # fmt: skip
        write(folder / name, answer(name))
    (folder / "new.log.2.gz").write_bytes(gzip.compress(answer("new.log.2.gz").encode()))
    (folder / "new.log.3.zip").write_bytes(b"PK\x05\x06")
    (folder / "link.log").symlink_to(folder / "new.log")
    requests, said = read(folder)
    assert [request.output for request in requests] == [
        "0.log.20261124-120000", "0.log", "new.log.2.gz", "new.log.1", "new.log",
    ]  # fmt: skip
    for counted in ("hidden files (3)", "files of other names (2)", "links", "(1)"):
        assert counted in said


@pytest.mark.parametrize("columns", [None, {"prompt": "prompt", "output": "output", "run": "run"}])
def test_a_whole_number_selects_however_it_is_written(tmp_path, columns):
    runs = [1, 1.0, "1", "1.0", 2.0, "v1"]
    rows = [{"prompt": "p", "output": str(n), "run": run} for n, run in enumerate(runs)]
    path = write(tmp_path / "a.jsonl", *rows)

    def selected(run):
        requests = read_log(path, where={"run": run}, columns=columns)
        return "".join(request.output for request in requests)

    assert [selected(run) for run in ("1", "1.0", "2", "2.0")] == ["012", "0123", "4", "4"]
    with pytest.raises(InputError, match=r"none has run='v1\.0'"):
        selected("v1.0")


def test_folders_of_a_log_that_cannot_be_read_are_counted(tmp_path, monkeypatch):
    write(tmp_path / "a.log", vllm("x", "", "answer")[1])
    (tmp_path / "closed").mkdir()
    listed = os.scandir

    def scandir(path):  # tests may run as root, who can read any folder
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert "folders that cannot be read (1)" in read(tmp_path)[1]


def test_files_that_cannot_be_opened_are_counted(tmp_path, monkeypatch):
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", {"prompt": "a", "output": name})
    opened = os.open
    failures = {"b.jsonl": errno.EACCES, "c.jsonl": errno.ENOENT}  # one was rotated away

    def open_(path, *options, **more):
        if code := failures.get(Path(path).name):
            raise OSError(code, os.strerror(code), str(path))
        return opened(path, *options, **more)

    monkeypatch.setattr(os, "open", open_)
    requests, said = read(tmp_path)
    assert [request.output for request in requests] == ["a"]
    assert "files that cannot be opened (2)" in said


@pytest.mark.parametrize("ids", [5, 0.5, {"a": 1}, "text"])
def test_a_branch_after_a_node_with_odd_ids_is_read_as_messages(tmp_path, ids):
    asked, said = ({"role": role, "content": role} for role in ("user", "assistant"))
    nodes = [
        {"parent": None, "message": asked, "token_ids": ids},
        *({"parent": 0, "sampled": True, "message": said, "token_ids": [1]} for _ in range(2)),
    ]
    path = write(tmp_path / "traces.jsonl", {"id": "a", "task": {}, "nodes": nodes})
    assert outputs(path) == ["assistant"] * 2


def test_how_an_answer_was_made_and_ended(tokenizer, tmp_path):
    prompt, answer = "def f(x):\n", "    return x\n"
    echo = {"prompt": prompt, "echo": True}
    rows = [
        call({"choices": [{"text": prompt + answer, "finish_reason": "stop"}]}, echo),
        call({"choices": [{"text": answer, "finish_reason": "length"}]}, {"prompt": prompt}),
        call({"choices": [{"text": answer}]}, {"prompt": [3, 4], "echo": True}),
        call({"generated_text": prompt + answer, "details": {"finish_reason": "length"}},
             {"inputs": prompt, "parameters": {"return_full_text": True}}),
        {"prompt": prompt, "output": answer, "finish_reason": "length"},
    ]  # fmt: skip
    requests, said = read(write(tmp_path / "a.jsonl", *rows[:4]))
    requests += read(write(tmp_path / "b.jsonl", rows[4]))[0]
    assert [(r.output, r.finished) for r in requests] == [
        (answer, True), (answer, False), (answer, False), (answer, False),
    ]  # fmt: skip
    assert "(echo) (1)" in said
    encode = RequestTokenizer(tokenizer)
    whole, cut, *_ = (encode(request).output.tolist() for request in requests)
    assert whole == [*cut, tokenizer.record.eos]


@pytest.mark.parametrize(("matched", "finished"), [(2, True), ("\n\n", False)])
def test_a_stop_string_of_sglang_ends_no_answer(tmp_path, matched, finished):
    """As text, as JSON, and in the answers of its APIs. A number is an end's id."""
    reason = {"type": "stop", "matched": matched}
    out = {"text": "o", "output_ids": [1], "meta_info": {"id": "r", "finish_reason": reason}}
    line = f"[2026-11-24] Finish: obj=GenerateReqInput(rid='r', text='q'), out={out!r}"
    body = {"event": "request.finished", "rid": "r", "obj": {"text": "q"}, "out": out}
    choice = {"message": {"content": "o"}, "finish_reason": "stop", "matched_stop": matched}
    messages = {"messages": [{"role": "user", "content": "q"}]}
    for row in (
        line,
        json.dumps(body),
        call({"choices": [choice]}, messages),
        call(out, {"text": "q"}),
    ):
        (request,), _ = read(write(tmp_path / "a.log", row))
        assert (request.output, request.finished) == ("o", finished)


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (
            {"reasoning_content": "I add.", "content": "<think>\nI add.\n</think>\n\nFour."},
            "<think>\nI add.\n</think>\n\nFour.",
        ),
        (
            {"reasoning": "I add.", "content": "Four."},
            "<think>\nI add.\n</think>\n\nFour.",
        ),
        (
            {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Go."},
                         {"type": "tool_use", "name": "f", "input": {"x": 1}}]},
            '<think>\nHm.\n</think>\n\nGo.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n'
            "</tool_call>",
        ),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"content": None, "reasoning_content": "So"}, "<think>\nSo"),  # cut
    ],
)  # fmt: skip
def test_what_the_model_wrote_is_read_once_and_whole(tmp_path, message, written):
    answer = {"choices": [{"message": message}]}
    assert outputs(write(tmp_path / "a.json", call(answer))) == [written]


def test_a_tools_result_in_blocks_and_parts_that_are_no_text(tmp_path):
    result = {"type": "tool_result", "content": [{"type": "text", "text": "four degrees"}]}
    image = {"type": "image_url", "image_url": {}}
    said = [{"role": "user", "content": [result, image]}, {"role": "assistant", "content": "Cold."}]
    (request,), notes = read(write(tmp_path / "a.json", {"messages": said}))
    assert request.prompt[0].content == "<tool_response>\nfour degrees\n</tool_response>"
    assert "not text (1)" in notes


def test_an_answer_that_goes_on_with_the_last_message(tokenizer, tmp_path):
    last = {"role": "assistant", "content": "one two"}
    messages = [*ASKED["messages"], last]
    blocks = [{"type": "text", "text": " three"}]
    rows = [
        call(chat(" three"), {"messages": messages, "continue_final_message": True}),
        call(chat(" three"), {"messages": [*ASKED["messages"], {**last, "prefix": True}]}),
        call({"type": "message", "role": "assistant", "content": blocks}, {"messages": messages}),
        call(chat(" three"), {"messages": messages}),
    ]
    *continued, new = read(write(tmp_path / "a.jsonl", *rows))[0]
    encode = RequestTokenizer(tokenizer, "chatml")
    for request in continued:
        assert tokenizer.decode(encode(request).prompt).endswith("<|im_start|>assistant\none two")
    assert tokenizer.decode(encode(new).prompt).endswith("<|im_start|>assistant\n")


def test_thoughts_that_the_template_begins(tokenizer):
    own = replace(tokenizer, chat_template="{{ messages[0].content }}<think>{{ '\n' }}")
    request = LoggedRequest([Message("user", "q")], "<think>\nHm.\n</think>\n\nA.")
    tokens = RequestTokenizer(own)(request)
    assert tokenizer.decode(tokens.output[:-1]) == "Hm.\n</think>\n\nA."


def test_answers_from_a_cache_are_not_the_models(tmp_path):
    rows = [
        call(chat("a"), cache_hit=False),
        call(chat("b"), cache_hit=True),
        call(chat("b"), metadata={"cacheStatus": "HIT"}),
        {"prompt": "p", "output": "b", "cache_hit": "True"},
    ]
    assert outputs(write(tmp_path / "a.jsonl", *rows[:3])) == ["a"]
    with pytest.raises(InputError, match="came from a cache"):
        read(write(tmp_path / "b.jsonl", rows[3]))


def test_one_of_several_models_is_chosen(tmp_path):
    path = write(tmp_path / "a.jsonl", *(call({"model": m, **chat(m)}) for m in ("x", "y", "x")))
    assert "2 models are mixed: x (2), y (1)" in read(path)[1]
    requests, said = read(path, where={"model": "x"})
    assert [request.output for request in requests] == ["x", "x"]
    assert "not selected: 1 request" in said
    assert "mixed" not in said
    with pytest.raises(InputError, match="model='z'"):
        read(path, where={"model": "z"})
    with pytest.raises(UsageError, match="'modell'"):
        read(path, where={"modell": "x"})


def test_an_adapter_of_a_server_is_a_model_of_its_own(tmp_path):
    asked, answered = vllm("a", "q", "o")
    asked = asked.replace("lora_request: None", "lora_request: LoRARequest(lora_name='sql', x=1)")
    (request,), _ = read(write(tmp_path / "a.log", asked, answered))
    assert request.model == "sql"


@pytest.mark.parametrize("number", [int, str, float, lambda n: n * 10**9])
def test_times_in_any_unit(tmp_path, number):
    rows = [{"prompt": f"q{i}", "output": "a", "time": number(1764115200 + i)} for i in (3, 1, 2)]
    requests, _ = read(write(tmp_path / "a.jsonl", *rows))
    requests.sort(key=attrgetter("time"))
    assert [request.prompt for request in requests] == ["q1", "q2", "q3"]


def test_a_null_gives_no_name(tmp_path):
    rows = [{"id": None, "category": None, "prompt": f"q{i}", "output": "a"} for i in (1, 2)]
    requests, _ = read(write(tmp_path / "a.jsonl", *rows))
    assert [(each.name, each.kind) for each in requests] == [("", "all")] * 2
    said = {"parent": 0, "sampled": True, "message": {"role": "assistant", "content": "a"}}
    nodes = [{"message": {"role": "user", "content": "q"}}, said]
    traces = [{"id": None, "task": {"type": None}, "nodes": nodes}] * 2
    requests, notes = read(write(tmp_path / "traces.jsonl", *traces))
    assert [(each.name, each.kind) for each in requests] == [("", "prime-rl")] * 2
    assert "another stream" not in notes


def test_numbers_that_are_none_are_counted(tmp_path):
    rows = [
        {"prompt": "q", "output": "a", "time": time, "turn": turn}
        for time, turn in ((10**400, "1"), ("noon", 1.0), (True, "x"))
    ]
    requests, said = read(write(tmp_path / "a.jsonl", *rows))
    assert [(request.time, request.turn) for request in requests] == [
        (-math.inf, 1),
        (-math.inf, 1),
        (-math.inf, 0),
    ]
    assert "a `time` that is not a number (3), a `turn` that is not a number (1)" in said


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"content": "llama", "stop": True, "stop_type": "eos"}, "llama"),
        ({"generated_text": "tgi"}, "tgi"),
        ([{"generated_text": "tgi"}], "tgi"),
        ({"text": "sglang", "meta_info": {"finish_reason": {"type": "stop"}}}, "sglang"),
        ({"response": "ollama", "done_reason": "stop"}, "ollama"),
        ({"message": {"role": "assistant", "content": "ollama"}}, "ollama"),
        ({"type": "message", "content": [{"type": "text", "text": "claude"}]}, "claude"),
        (json.dumps(chat("text")), "text"),
    ],
)
def test_answers_of_other_servers(tmp_path, answer, output):
    path = tmp_path / "a.json"
    assert outputs(write(path, call(answer, {"prompt": "q"}))) == [output]
    assert outputs(write(path, {**ASKED, "response": answer})) == [output]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"object": "chat.completion.chunk", "choices": [{"delta": {"content": "a"}}]}, "chunk"),
        ([{"choices": [{"delta": {"content": "a"}}]}] * 2, "chunk"),
        ({"error": {"code": 429}}, "failed"),
        ({"status_code": 429, "body": {"message": "slow down"}}, "failed"),
        ({"type": "error", "message": "overloaded"}, "failed"),
        (chat(""), "no text"),
        ({"verdict": "a"}, "keys are verdict"),
    ],
)
def test_why_an_answer_is_not_read(tmp_path, answer, reason):
    with pytest.raises(InputError, match=reason):
        read(write(tmp_path / "a.json", call(answer)))


def test_columns_that_hold_json_or_dots(tmp_path):
    asked = json.dumps(ASKED["messages"])
    answer = json.dumps({"role": "assistant", "content": "one\ntwo"})
    columns = {"prompt": "a.in.put", "output": "a.out.put"}
    row = {"a": {"in.put": asked, "out.put": answer}}
    (request,), said = read(write(tmp_path / "a.json", row), columns=columns)
    assert (list(request.prompt), request.output) == ([Message("user", "q")], "one\ntwo")
    assert "JSON in a text (2)" in said
    asked = {"messages": ASKED["messages"], "temperature": 0}
    for prompt in (asked, json.dumps(asked)):
        row = {"a": {"in.put": prompt, "out.put": "one"}}
        (request,), _ = read(write(tmp_path / "a.json", row), columns=columns)
        assert list(request.prompt) == [Message("user", "q")]
    row = {"a": {"in.put": "q", "out.put": '{"content": "of the answer"}'}}  # its own JSON
    assert outputs(write(tmp_path / "a.json", row), columns=columns) == [row["a"]["out.put"]]


def test_conversations_as_sharegpt_writes_them(tmp_path):
    talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    talk += [{"from": "observation", "value": "4"}, {"from": "gpt", "value": "b"}]
    requests, _ = read(write(tmp_path / "a.jsonl", {"id": "x", "conversations": talk}))
    assert [request.output for request in requests] == ["a", "b"]
    assert requests[1].prompt[-1].content == "<tool_response>\n4\n</tool_response>"


def test_all_choices_of_an_answer_are_replayed(tokenizer, tmp_path):
    questions = write(tmp_path / "q.jsonl", {"question_id": 1, "turns": ["one", "two"]})
    choices = [{"turns": ["a", "b"]}, {"turns": ["c", ""]}]
    answers = write(tmp_path / "a.jsonl", {"question_id": 1, "choices": choices})
    notes = Notes()
    records, _ = read_records(answers, questions, tokenizer, "none", reporter=notes)
    assert [len(record.turns) for record in records] == [2, 1]
    assert "the answer has no text (1)" in notes.text


def test_a_long_session_takes_time_in_proportion(tokenizer, tmp_path, monkeypatch):
    """Messages and ids of earlier turns are shared; an import encodes ends of prompts alone."""
    count = 100
    talk = [{"role": role, "content": "x " * 20} for role in ("user", "assistant")] * count
    requests, _ = read(write(tmp_path / "a.json", {"messages": talk}))
    assert len({id(request.prompt.shared) for request in requests}) == 1
    sizes = []
    encode = type(tokenizer).encode
    monkeypatch.setattr(
        type(tokenizer),
        "encode",
        lambda self, text, **how: sizes.append(len(text)) or encode(self, text, **how),
    )
    encode_ends = RequestTokenizer(tokenizer, "chatml", prompts=False)
    assert len(list(encode_ends.encoded(requests))) == count
    assert max(sizes) < 4096
    nodes = [
        {"parent": n - 1 if n else None, "sampled": n % 2 == 1, "token_ids": [n], "mask": [1]}
        for n in range(2 * count)
    ]
    (*_, last), _ = read(write(tmp_path / "b.json", {"task": {}, "nodes": nodes}))
    assert last.prompt.tolist() == list(range(2 * count - 1))
    assert last.prompt.base is not None


def test_a_text_that_is_too_long_is_counted(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(request_tokenizer, "MAX_TEXT_CHARS", 1000)
    rows = [{"prompt": "q", "output": "a" * size} for size in (10, 2000)]
    notes = Notes()
    path = write(tmp_path / "a.jsonl", *rows)
    imported = history_import(path, tmp_path / "past", model="demo", reporter=notes)
    assert imported.imported == 1
    assert "a text must have at most 1,000 characters (1)" in notes.text


def test_an_import_keeps_the_newest_requests_and_adds_them_by_time(tmp_path):
    """A request without a time stays after the one before it."""
    said = [("zero", 30), ("after zero", None), ("one", 20), ("two", 10)]
    rows = [{"prompt": "q", "output": f"answer {word}", "time": time} for word, time in said]
    path = write(tmp_path / "a.jsonl", *rows)

    def imported(name, tokens=None):
        past = tmp_path / name
        found = history_import(path, past, model="demo", tokens=tokens)
        shown = history_inspect(past, last=9).last
        return found, [each.output.removesuffix("<|endoftext|>") for each in shown]

    by_time = ["answer two", "answer one", "answer zero", "answer after zero"]
    found, kept = imported("all")
    assert kept == by_time
    tokens = [request.tokens for request in History.open(tmp_path / "all").read().requests]
    for count in range(1, 5):
        most = sum(map(len, tokens[-count:]))
        found, kept = imported(str(count), most)
        assert kept == by_time[-count:]
        assert (found.imported, found.dropped, found.tokens) == (4, 4 - count, most)


def test_the_newest_items_of_any_order_leave_no_gap():
    """An item that is older than a dropped one is dropped, even if it would fit."""
    given = [(3, 4), (2, 4), (1, 2), (5, 1), (4, 1)]
    for order in permutations(given):
        newest = NewestItems(6)
        for time, size in order:
            newest.add(time, size, time)
        assert newest.in_order() == [3, 4, 5]
        assert newest.given == 5
        large = NewestItems(0, least=1)
        for time, size in order:
            large.add(time, size, time)
        assert large.in_order() == [5]


def test_half_a_surrogate_pair_is_replaced_and_counted(tmp_path, tokenizer):
    answers = ("a good answer", "half \ud83d of a pair", "and \udc00 another")
    rows = [
        {"request": ASKED, "response": {"choices": [{"message": {"content": answer}}]}}
        for answer in answers
    ]
    notes = Notes()
    path = write(tmp_path / "log.jsonl", *rows)
    records, _ = read_records(path, None, tokenizer, "none", reporter=notes)
    written = [tokenizer.decode(record.turns[0].answer[:-1]) for record in records]
    assert written == ["a good answer", "half \ufffd of a pair", "and \ufffd another"]
    assert "a request with half a surrogate pair, which became U+FFFD (2)" in notes.text


def test_the_hole_at_the_beginning_of_a_rotated_log_is_skipped(tmp_path):
    """A server that goes on writing where it was leaves zero bytes after `copytruncate`."""
    path = write(tmp_path / "a.jsonl", {"prompt": "q", "output": "a"})
    path.write_bytes(bytes(5000) + path.read_bytes())
    assert outputs(path) == ["a"]


def test_requests_that_another_file_holds_are_counted(tmp_path):
    """They are read: only a time and an id together could tell a copy, and few logs have both."""
    rows = [{"id": str(i), "prompt": "q", "output": f"a{i}"} for i in range(3)]
    write(tmp_path / "app.log", *rows, {**rows[0], "output": "other"})
    write(tmp_path / "app.log.1", *rows[1:])
    requests, told = read(tmp_path)
    assert len(requests) == 6
    assert "a request that another file holds, too (a rotated log may be a copy) (2)" in told
    assert "another file" not in read(tmp_path / "app.log")[1]


def test_refusals_and_the_details_of_thoughts_are_read(tmp_path):
    parts = [{"type": "reasoning.text", "text": "Hm."}, {"type": "reasoning.encrypted", "data": ""}]
    answers = [
        {"content": None, "refusal": "I will not."},
        {"content": "Four.", "refusal": None, "reasoning_details": parts},
    ]
    rows = [call({"choices": [{"message": {"role": "assistant", **a}}]}) for a in answers]
    requests, told = read(write(tmp_path / "a.jsonl", *rows))
    assert [request.output for request in requests] == [
        "I will not.", "<think>\nHm.\n</think>\n\nFour."
    ]  # fmt: skip
    assert "a part of a message that is not text (1)" in told
