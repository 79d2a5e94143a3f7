"""Sessions of Claude Code, Codex and Pi: every record type, from small files made by hand."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_formats import LS, Notes, spoken

from ngramkit.basics.errors import InputError
from ngramkit.corpus import unpacking
from ngramkit.corpus.agent_sessions import transcript
from ngramkit.corpus.agent_sessions.blocks import Call, OpenAnswer, notation_of
from ngramkit.corpus.agent_sessions.codex import Codex
from ngramkit.corpus.agent_sessions.pi import Pi
from ngramkit.corpus.agent_sessions.read import AGENTS, Reading, trace_lines
from ngramkit.corpus.agent_sessions.transcript import Answer, Copies
from ngramkit.corpus.chat import Message
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.logs import containers
from ngramkit.logs.conversations import find_predecessors
from ngramkit.logs.read import read_log
from ngramkit.logs.request import LoggedRequest

SAMPLES = Path(__file__).with_name("samples") / "sessions"
CALL = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'


def read(*paths, **options):
    notes = Notes()
    return list(read_log(paths, reporter=notes, **options)), "\n".join(notes.lines)


@pytest.fixture(scope="module")
def claude(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claude") / "projects"
    shutil.copytree(SAMPLES / "claude-code", folder)
    about = folder / "-work-app/5e55-1/subagents/agent-0a1b.meta.json"
    about.write_text('{"agentType": "general-purpose"}')
    return read(folder)


def test_claude_codes_records_become_the_requests_that_the_server_saw(claude):
    requests, said = claude
    assert "log: 3 files, sessions of agents (by its content)" in said
    by_name = {}
    for each in requests:
        by_name.setdefault(each.name, []).append(each)
    first, edit, cut, shorter, rewound, aside, compacted = by_name["5e55-1"]
    # One message of several records, whose calls answer later records; one is repeated.
    grep = CALL.format("Grep", '{"pattern": "add"}')
    reads = CALL.format("Read", '{"file_path": "app.py"}')
    assert first.output == f"<think>\nIt is in add.\n</think>\n\nI look.\n{reads}\n{grep}"
    assert spoken(first.prompt) == [("user", "Fix the bug in app.py.")]
    # Parts of a result, an image among them, and a result without content.
    code = "def add(a, b):\n    return a - b\n"
    results = f"<tool_response>\n{code}\n</tool_response>\n<tool_response>\n\n</tool_response>"
    assert spoken(edit.prompt)[1:] == [
        ("assistant", f"I look.\n{reads}\n{grep}"),
        ("user", results),
    ]
    failed = "<tool_response>\napp.py changed on disk\n</tool_response>"
    assert spoken(cut.prompt)[-1] == ("user", failed)  # a retry: the error is no message
    assert (cut.output, cut.finished) == ("Fixed, but", False)
    asked = "[Request interrupted by user]\nSay it shorter."
    assert spoken(shorter.prompt)[-2:] == [("assistant", "Fixed, but"), ("user", asked)]
    assert spoken(rewound.prompt)[-1] == ("user", f"{failed}\nInstead, add a test.")
    assert "Fixed, but" not in str(spoken(rewound.prompt))
    assert spoken(aside.prompt) == [("user", "Find add.")]  # a side chain of the same file
    kept = ("assistant", CALL.format("Bash", '{"command": "pytest"}'))
    passed = ("user", "<tool_response>\n1 passed\n</tool_response>")
    summary = ("user", "This session is being continued. The bug was fixed.")
    assert spoken(compacted.prompt) == [summary, kept, passed]
    assert [r.kind for r in by_name["5e55-1"]] == [
        "tool calls", "edits", "prose", "prose", "tool calls", "prose", "prose",
    ]  # fmt: skip
    assert {r.model for r in requests} == {"claude-sonnet-4-5"}
    assert all(r.finished for r in (first, edit, shorter, rewound, compacted))
    assert [r.turn for r in by_name["5e55-1"]] == list(range(7))
    (linter,) = by_name["agent-0a1b"]
    assert spoken(linter.prompt) == [("user", "Run the linter.")]


def test_a_resumed_session_is_counted_once(claude):
    requests, said = claude
    (resumed,) = [r for r in requests if r.name == "5e55-2"]
    assert (resumed.output, resumed.finished) == ("It says a + b now.", False)
    assert len(resumed.prompt) == 5
    assert "an answer that an earlier session holds (2)" in said


def test_a_servers_id_makes_no_copy_of_another_text():
    copies, nothing = Copies(), MessagePrefix([], 0)
    for text, held in (("one", False), ("one", True), ("two", False), ("one", True)):
        copies.begin()
        assert copies.holds_or_adds(Answer(nothing, text, "prose", id="chatcmpl-0")) is held


def test_what_was_recorded_in_part_is_counted(claude):
    _, said = claude
    for what in (
        "a session without its system prompt and tools (3)",
        "an answer whose thoughts are hidden (2)",
        "an attachment whose text is not recorded (2)",
        "a message that the client wrote in the model's place (1)",
        "a compaction whose request is not recorded (1)",
        "a record of an unknown type (1)",
        "a part of a message that is not text (2)",
        "not JSON (1)",  # the last line, which is still being written
        "files in no known format (1)",
    ):
        assert what in said, what


def test_codexs_present_and_older_files():
    requests, said = read(SAMPLES / "codex")
    oldest, old, *now, forked = requests
    assert (spoken(oldest.prompt), oldest.output) == ([("user", "2 + 2?")], "4")
    assert (spoken(old.prompt), old.output) == (
        [("user", "1 + 1?")], "<think>\nEasy.\n</think>\n\n2",
    )  # fmt: skip
    first, patch, patched, shell, cut, rolled_back, compacted = now
    context = "<environment_context>\n  <cwd>/work/app</cwd>\n</environment_context>"
    assert spoken(first.prompt) == [
        ("system", "You are Codex.\n\nBe brief."), ("user", f"{context}\nList the files."),
    ]  # fmt: skip
    called = CALL.format("shell", '{"command": ["ls"]}')
    searched = CALL.format("web_search", '{"type": "search", "query": "ls"}')
    assert first.output == f"I list them.\n{called}\n{searched}"
    assert "*** Begin Patch\n*** End Patch" in patch.output
    assert patched.output == "Patched."
    assert '"command": ["rm", "app.py"]' in shell.output
    assert spoken(cut.prompt)[-1] == ("user", "<tool_response>\ngone\n</tool_response>")
    assert (cut.output, cut.finished) == ("It is", False)
    assert spoken(rolled_back.prompt)[-2:] == [("assistant", "Patched."), ("user", "Keep it.")]
    assert spoken(compacted.prompt) == [("user", "Keep it.\nA summary.\nStatus?")]
    assert [r.kind for r in now[:4]] == ["tool calls", "edits", "prose", "tool calls"]
    assert {r.model for r in now} == {"gpt-5-codex"}
    assert spoken(forked.prompt)[-1] == ("user", "And in the fork?")
    for what in (
        "an answer that an earlier session holds (3)",
        "an answer whose thoughts are hidden (2)",
        "a compaction whose summary is encrypted (1)",
        "a record of an unknown type (2)",
        "a session without its system prompt and tools (2)",
    ):
        assert what in said, what


def test_codexs_compactions_without_items_or_by_reference():
    def item(role, text, name):
        kind = "output_text" if role == "assistant" else "input_text"
        return {
            "type": "message",
            "role": role,
            "id": name,
            "content": [{"type": kind, "text": text}],
        }

    def prompt_after(compacted):
        unread = Counter()
        codex = Codex(unread)
        for each in (item("user", "One?", "m1"), item("assistant", "One.", "m2")):
            codex.read({"type": "response_item", "payload": each})
        output = {"type": "function_call_output", "call_id": "c", "output": "seen"}
        codex.read({"type": "response_item", "payload": output})
        codex.read({"type": "compacted", "payload": compacted})
        for each in (item("user", "Two?", "m3"), item("assistant", "Two.", "m4")):
            codex.read({"type": "response_item", "payload": each})
        codex.end()
        first, last = codex.ended
        assert (first.text, last.text) == ("One.", "Two.")
        return spoken(last.before), unread

    assert prompt_after({"message": "Sum."})[0] == [("user", "One?\nSum.\nTwo?")]
    entries = [
        {"type": "reference", "item_id": "m1"},
        {"type": "reference_v2", "item_id": "m2", "source_digest": "x"},
        {"type": "inline", "item": item("user", "Sum.", "m9")},
        {"type": "reference", "item_id": "lost"},
        "nonsense",
    ]
    said, unread = prompt_after({"message": "", "replacement_history_entries": entries})
    assert said == [("user", "One?"), ("assistant", "One."), ("user", "Sum.\nTwo?")]
    assert unread["an item of a compacted prompt that the file does not hold"] == 2
    bad = [{"type": "message", "role": role, "content": 4} for role in ("user", "assistant")]
    history = [item("user", "One?", "m1"), *bad, item("user", "Sum.", "m9")]
    said, unread = prompt_after({"message": "", "replacement_history": history})
    assert said == [("user", "One?"), ("user", "Sum.\nTwo?")]
    assert unread["a part of a message that is not text"] == 2


def test_codexs_thoughts_without_a_text_are_hidden_and_counted_once_an_answer():
    unread = Counter()
    codex = Codex(unread)
    empty = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": ""}]}
    for each in (empty, {"type": "reasoning", "content": None}, empty):
        codex.read({"type": "response_item", "payload": each})
    assert unread == {"an answer whose thoughts are hidden": 1}


def session_of(reader, *records):
    unread = Counter()
    session = reader(unread)
    for record in records:
        session.read(record)
    session.end()
    return [each.text for each in session.ended], unread


def test_a_bad_item_of_an_old_document_is_counted_alone():
    user, bad, good = (
        {"type": "message", "role": role, "content": content}
        for role, content in (("user", "q"), ("assistant", 4), ("assistant", "Good."))
    )
    document = {"session": {"id": "a"}, "items": [3, None, user, bad, user, good]}
    texts, unread = session_of(Codex, document)
    assert texts == ["Good."]
    assert unread["a record of an unknown type"] == 2
    assert unread["a part of a message that is not text"] == 1


def test_what_pi_recorded_wrongly_is_counted():
    said = {"type": "message", "message": {"role": "user", "content": "q"}}
    wrote = {"role": "assistant", "content": "Good.", "toolCalls": [5]}
    texts, unread = session_of(
        Pi,
        {"type": "session", "id": "p"},
        {"type": "compaction", "summary": 5},
        said,
        {"type": "message", "message": wrote},
        {"type": "branch_summary", "summary": [1]},
    )
    assert texts == ["Good."]
    assert unread["a part of a message that is not text"] == 3
    with pytest.raises(TypeError, match="got int"):
        session_of(Pi, {"type": "message", "message": {"role": "assistant", "content": 0}})


def test_another_call_with_the_same_id_is_no_copy():
    calls = [
        {"type": "tool_use", "id": "call_0", "name": name, "input": {}} for name in ("a", "a", "b")
    ]
    answer = OpenAnswer(Counter(), model="m")
    answer.add(calls)
    assert answer.shown() == f"{CALL.format('a', '{}')}\n{CALL.format('b', '{}')}"


def test_pis_sessions_of_each_version():
    requests, said = read(SAMPLES / "pi")
    by_name = {}
    for each in requests:
        by_name.setdefault(each.name, []).append(each)
    wrote, cut, written, says, bye, again = by_name["2026-11-24_91-1"]
    code = "<tool_call>\n<function=write>\n<parameter=path>\nhi.py\n</parameter>\n"
    code += "<parameter=content>\nprint('hi')\n\n</parameter>\n</function>\n</tool_call>"
    assert wrote.output == f"<think>\nShort.\n</think>\n\nI write it.\n{code}"
    assert (cut.output, cut.finished) == ("Writ", False)
    assert spoken(written.prompt) == spoken(cut.prompt)  # a retry
    ran = "Ran `python hi.py`\n```\nhi\n```\n\nCommand exited with code 1\nAnd?"
    assert spoken(says.prompt)[-2:] == [("assistant", "Written."), ("user", ran)]
    summary, kept, asked = spoken(bye.prompt)
    assert "hi.py was written.\n</summary>" in summary[1]
    assert (kept, asked) == (("assistant", "It says hi."), ("user", "A note.\nBye."))
    assert spoken(again.prompt)[0][1].startswith("Write hi.py.\nThe following is a summary of a b")
    assert [r.kind for r in (wrote, written)] == ["edits", "prose"]
    (copied,) = by_name["2026-11-25_91-2"]
    assert copied.output == "Copied."
    one, two = by_name["2024-12-03_old"]
    assert (one.output, two.output) == ("One.", "Two.")
    assert spoken(two.prompt)[0][1].endswith("</summary>\nTwo?")
    hello, bye = by_name["harness"]
    called = CALL.format("get_time", "{}")
    assert spoken(hello.prompt) == [("user", "Hi.")]
    assert hello.output == f"<think>\nGreet.\n</think>\n\nHello.\n{called}"
    answered = "<tool_response>\n12:00\n</tool_response>\nBye."
    assert spoken(bye.prompt)[1:] == [("assistant", f"Hello.\n{called}"), ("user", answered)]
    assert "an answer that an earlier session holds (3)" in said


def test_sessions_are_read_from_the_oldest_to_the_newest():
    requests, said = read(SAMPLES / "pi", SAMPLES / "codex", SAMPLES / "claude-code")
    names = list(dict.fromkeys(r.name for r in requests))
    assert names[0] == "2024-12-03_old"
    assert names.index("rollout-2025-06-01-old") < names.index("5e55-1") < names.index("5e55-2")
    assert "log: 11 files" in said
    named, _ = read(SAMPLES / "codex", format="sessions")
    assert [r.output for r in named] == [r.output for r in requests if "rollout" in r.name]


@pytest.mark.parametrize("column", ["trace", "traces", "one line"])
def test_the_hubs_conversion_to_parquet_gives_the_same_requests(tmp_path, column):
    """A row is a file, as `datasets` writes it: a text as JSON, or a list."""
    files = sorted(SAMPLES.glob("codex/2026/**/rollout-2026*.jsonl"))
    traces = [path.read_text() for path in files]
    if column == "trace":
        values = pa.array([json.dumps(text) for text in traces], pa.json_())
    elif column == "traces":
        values = pa.array([text.splitlines() for text in traces])
    else:
        values, column = pa.array(traces), "trace"
    rows = {"harness": ["codex"] * 2, "session_id": ["c0-1", "c0-2"], column: values}
    more = {"messages": [["x" * 100]] * 2, "prompt": ["p"] * 2}
    pq.write_table(pa.table({**rows, **more}), tmp_path / "0000.parquet")
    requests, _ = read(tmp_path / "0000.parquet")
    plain, _ = read(*files)
    assert [(spoken(r.prompt), r.output, r.time) for r in requests] == [
        (spoken(r.prompt), r.output, r.time) for r in plain
    ]
    assert {r.name for r in requests} == {"c0-1", "c0-2"}


def test_other_tables_are_rows_with_columns(tmp_path):
    table = pa.table({"prompt": ["a", "b"], "output": ["c", "d"]})
    pq.write_table(table, tmp_path / "a.parquet")
    requests, said = read(tmp_path)
    assert [(r.prompt, r.output) for r in requests] == [("a", "c"), ("b", "d")]
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and then nothing")
    requests, said = read(tmp_path)
    assert len(requests) == 2
    assert "files in no known format (1)" in said


def test_a_models_own_notation_of_tool_calls_or_one_for_all():
    call = Call("bash", {"command": "ls"})
    assert notation_of("claude-opus-4-1")(call) == LS
    assert notation_of("")(call) == LS
    coder = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n"
    assert notation_of("Qwen/Qwen3-Coder-30B-A3B")(call) == f"{coder}</tool_call>"
    assert notation_of("qwen3-coder")(Call("bash", "not JSON")).startswith('<tool_call>\n{"name"')
    assert notation_of("openai/gpt-oss-120b")(Call("bash", '{"a":1}')) == (
        "<|start|>assistant<|channel|>commentary to=functions.bash "
        '<|constrain|>json<|message|>{"a":1}<|call|>'
    )


def stream(*rows):
    """Return the answers of records without parentUuid, as `claude -p` prints them."""
    reading = Reading(Counter())
    for number, row in enumerate(rows):
        yield from reading.read({"session_id": "s", "uuid": f"n{number}", **row})
    yield from reading.end()


def test_printed_records_are_in_their_order():
    def says(role, text, **more):
        return {"type": role, "message": {"role": role, "content": text, **more}}

    subagent = {"parent_tool_use_id": "t1"}
    answers = list(
        stream(
            {"type": "system", "subtype": "init"},
            says("user", "One?"),
            says("assistant", "One.", id="m1"),
            {**says("user", "Look."), **subagent},
            {**says("assistant", "Seen.", id="m2"), **subagent},
            says("user", "Two?"),
            says("assistant", "Two.", id="m3"),
            {"type": "result", "subtype": "success"},
        )
    )
    assert {each.text: spoken(each.before) for each in answers} == {
        "One.": [("user", "One?")],
        "Seen.": [("user", "Look.")],
        "Two.": [("user", "One?"), ("assistant", "One."), ("user", "Two?")],
    }


def test_an_answer_without_a_parent_follows_the_record_before_it():
    def says(role, text):
        return {"type": role, "parentUuid": None, "message": {"role": role, "content": text}}

    answers = list(stream(says("user", "One?"), says("assistant", "One."), says("user", "Two?"),
                          says("assistant", "Two.")))  # fmt: skip
    assert [(a.text, spoken(a.before)) for a in answers] == [
        ("One.", [("user", "One?")]), ("Two.", [("user", "Two?")]),
    ]  # fmt: skip


def test_messages_that_a_compaction_kept_may_be_named_one_by_one():
    """The last of them is written after the summary."""

    def says(role, text, name, parent, **more):
        message = {"role": role, "content": text, "id": f"msg_{name}"}
        return {"type": role, "uuid": name, "parentUuid": parent, "message": message, **more}

    reading = Reading(Counter())
    kept = {"anchorUuid": "s", "uuids": ["a1", "u2", "a2"]}
    segment = {"headUuid": "a1", "anchorUuid": "s", "tailUuid": "a2"}
    rows = [
        says("user", "One?", "u1", None), says("assistant", "One.", "a1", "u1"),
        says("user", "Two?", "u2", "a1"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None,
         "compactMetadata": {"preservedMessages": kept, "preservedSegment": segment}},
        says("user", "Sum.", "s", "c"), says("assistant", "Two.", "a2", "s"),
        says("user", "Three?", "u3", "a2"), says("assistant", "Three.", "a3", "u3"),
    ]  # fmt: skip
    answers = [a for row in rows for a in reading.read(row)] + list(reading.end())
    prompts = {each.text: [m.content for m in each.before] for each in answers}
    assert prompts["Two."] == ["Sum.", "One.", "Two?"]
    assert prompts["Three."] == ["Sum.", "One.", "Two?", "Two.", "Three?"]


def test_an_answer_without_text_leaves_no_trace():
    pi = Pi(Counter())
    for role, content in (("user", "One?"), ("assistant", []), ("user", "Again?"),
                          ("assistant", "One.")):  # fmt: skip
        pi.read({"type": "message", "message": {"role": role, "content": content}})
    pi.end()
    assert [(a.text, spoken(a.before)) for a in pi.ended] == [("One.", [("user", "One?\nAgain?")])]


def chain(count, words=3):
    """Return the records of a session of `count` questions and answers."""
    rows, parent = [], None
    for number in range(count):
        for role in ("user", "assistant"):
            name = f"{role}{number}"
            content = " ".join([role, str(number), *["word"] * words])
            message = {"role": role, "content": content, "id": f"msg{number}"}
            rows.append({"type": role, "uuid": name, "parentUuid": parent, "sessionId": "s",
                         "message": message})  # fmt: skip
            parent = name
    return rows


def test_a_long_session_is_stored_once(tmp_path):
    """Prompts share their messages, whose number is that of the records, not its square."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in chain(2500)))
    requests = list(read_log(path))
    assert [len(r.prompt) for r in requests] == list(range(1, 5000, 2))
    assert len({id(r.prompt.shared) for r in requests}) == 1
    before = find_predecessors(requests, str)
    assert before == [None, *range(2499)]


def test_the_beginning_of_an_endless_prompt_is_dropped(monkeypatch):
    monkeypatch.setattr(transcript, "MAX_PROMPT_CHARS", 400)
    unread = Counter()
    reading = Reading(unread)
    answers = [a for row in chain(200) for a in reading.read(row)] + list(reading.end())
    assert len(answers) == 200
    sizes = [sum(len(m.content) for m in a.before) for a in answers]
    assert max(sizes) <= 400
    assert {a.before[0].role for a in answers} == {"user"}  # as templates expect
    assert spoken(answers[-1].before)[-1] == ("user", "user 199 word word word")
    assert unread[transcript.TOO_LONG] > 10


def test_a_message_longer_than_a_prompt_is_dropped_once(monkeypatch):
    """Later prompts share their messages again."""
    monkeypatch.setattr(transcript, "MAX_PROMPT_CHARS", 400)
    rows = chain(12, words=0)
    rows[0]["message"]["content"] = "long" * 300
    unread = Counter()
    reading = Reading(unread)
    answers = [a for row in rows for a in reading.read(row)] + list(reading.end())
    assert len(answers) == 12
    assert len({id(a.before.shared) for a in answers[2:]}) == 1
    assert unread[transcript.TOO_LONG] == 2  # with it, and when it is left behind


def test_many_branches_of_branches_take_linear_time():
    """Each answer is retried from the one before it: no prompt is walked through all of them."""
    rows, parent = [], None
    for number in range(1500):
        for role, name in (("user", f"u{number}"), ("assistant", f"a{number}"),
                           ("assistant", f"b{number}")):  # fmt: skip
            message = {"role": role, "content": f"{name} text", "id": f"m{name}"}
            rows.append({"type": role, "uuid": name, "parentUuid": parent, "sessionId": "s",
                         "message": message})  # fmt: skip
            parent = f"u{number}" if name != f"b{number}" else name
    reading = Reading(Counter())
    answers = [a for row in rows for a in reading.read(row)] + list(reading.end())
    assert len(answers) == 3000
    assert max(len(a.before.segments()) for a in answers) <= transcript.MAX_SEGMENTS + 1
    last = spoken(answers[-1].before)
    assert last[:3] == [("user", "u0 text"), ("assistant", "b0 text"), ("user", "u1 text")]
    assert len(last) == 2999


def test_a_line_without_end_stops_only_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "MAX_DOCUMENT", 2000)
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT", 2000)
    for name in ("a", "b"):
        rows = [{**row, "sessionId": name} for row in chain(2)]
        for row in rows:
            row["message"] = {**row["message"], "id": name + row["message"]["id"]}
        lines = [json.dumps(row) for row in rows]
        if name == "a":
            lines.insert(2, json.dumps({"type": "user", "x": "y" * 3000}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    requests, said = read(tmp_path)
    assert [r.name for r in requests] == ["a", "b", "b"]
    assert "a.jsonl, line 3: a document of more than 2,000 bytes" in said
    with pytest.raises(InputError, match="a document of more than 2,000 bytes"):
        read(tmp_path / "a.jsonl")


def test_only_the_newest_prompts_are_kept():
    """A compaction lets go of the prompt before the last one."""
    unread = Counter()
    reading = Reading(unread)
    rows = chain(3)
    answers = [a for row in rows for a in reading.read(row)]
    for number in range(2):
        boundary = {"type": "system", "subtype": "compact_boundary", "uuid": f"c{number}",
                    "parentUuid": None, "sessionId": "s"}  # fmt: skip
        answers += reading.read(boundary)
    late = {**rows[-1], "uuid": "late", "parentUuid": "user2"}
    answers += [*reading.read(late), *reading.end()]
    assert (len(answers), len(answers[-1].before)) == (4, 0)
    assert unread[transcript.ORPHAN] == 1


def test_prefixes_of_branches_share_what_comes_before():
    first = [Message("user", str(n)) for n in range(5)]
    trunk = MessagePrefix(first, 5)
    branch = MessagePrefix([Message("user", "a"), Message("user", "b")], 2, trunk.first(3))
    twig = MessagePrefix([Message("user", "c")], 1, branch.first(4))
    said = [m.content for m in twig]
    assert said == ["0", "1", "2", "a", "c"]
    assert [m.content for m in twig[1:]] == said[1:]
    assert [twig[i].content for i in range(-1, -6, -1)] == said[::-1]
    assert (len(twig), twig[-1].content) == (5, "c")
    assert [len(twig.first(n)) for n in range(7)] == [0, 1, 2, 3, 4, 5, 5]
    assert twig == [*trunk.first(3), Message("user", "a"), Message("user", "c")]
    with pytest.raises(IndexError):
        twig[5]
    # A request of a branch continues the one that it left, whatever comes after it.
    asked = MessagePrefix(first, 3)
    requests = [
        LoggedRequest(MessagePrefix(first, 1), "1"),
        LoggedRequest(asked, "3"),
        LoggedRequest(branch, "x"),
    ]
    first[1], first[3] = Message("assistant", "1"), Message("assistant", "3")
    assert find_predecessors(requests, str) == [None, 0, 0]


VALUES = (None, True, 7, -1.5, "", "text", [], {}, [None], [{"type": "text"}], {"type": 3}, [[[]]],
          "\ud800", [{"type": "tool_use", "id": [], "name": {}, "input": []}],
          {"content": {"a": 1}}, [{"type": "tool_result", "content": 3}])  # fmt: skip


def test_no_value_of_any_field_stops_the_reading(tmp_path):
    """Each record of the samples, with wrong values drawn for its fields."""
    draw = random.Random(7)
    rows = [
        json.loads(line)
        for path in sorted(SAMPLES.rglob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line.endswith("}")
    ]

    def spoiled(value, depth=0):
        if draw.random() < 0.12:
            return draw.choice(VALUES)
        if isinstance(value, dict):
            return {k: spoiled(v, depth + 1) for k, v in value.items() if draw.random() > 0.03}
        if isinstance(value, list):
            return [spoiled(each, depth + 1) for each in value]
        return value

    path = tmp_path / "a.jsonl"
    read_any = 0
    for _ in range(12):
        begin = draw.randrange(len(rows))
        first, *others = rows[begin:] + rows[:begin]
        bodies = [first, *map(spoiled, others)]
        lines = [json.dumps(body).encode() for body in bodies]
        lines[3:3] = [b"\xff\xfe{", b"{" * 2000, b'{"a": 1e999}', b"[]", b'"x"']
        path.write_bytes(b"\n".join(lines) + b'\n{"type": "user", "mes')
        requests, _ = read(path, format="sessions")
        read_any += len(requests)
    assert read_any > 20


def test_every_agent_recognises_its_own_records_only():
    for agent, folder in zip(AGENTS, ("claude-code", "codex", "pi"), strict=True):
        for path in (SAMPLES / folder).rglob("*.jsonl"):
            for line in path.read_text().splitlines():
                if not line.endswith("}"):
                    continue
                names = [each.name for each in AGENTS if each.matches(json.loads(line))]
                assert names in ([], [agent.name]), (path, line)
    assert trace_lines({"harness": "pi", "trace": 3}) is None
    assert trace_lines({"trace": "{}"}) is None
