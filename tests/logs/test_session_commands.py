"""Histories, corpora and forecasts of agents' sessions."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from reporters import Notes

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import KNOWN, Message, Template
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.history import History
from ngramkit.logs.read import NewestRequests, read_log
from ngramkit.logs.request import LoggedRequest
from ngramkit.logs.request_tokenizer import RequestTokenizer
from ngramkit.logs.shared_prompts import Borders

SAMPLES = Path(__file__).with_name("samples") / "sessions"


def texts(name, **options):
    return [document.text for document in open_corpus(name, **options).documents()]


@pytest.fixture
def projects(tmp_path):
    folder = tmp_path / "projects"
    shutil.copytree(SAMPLES / "claude-code", folder)
    (folder / "sessions-index.json").write_text('{"version": 1, "entries": []}')
    return folder


def is_owners(path):
    return path.stat().st_mode & 0o077 == 0


# Histories.


def test_an_imported_history_warns_and_is_for_its_owner(projects, tmp_path):
    notes = Notes()
    past = tmp_path / "past"
    added = ngramkit.history_import(projects, past, model="demo", reporter=notes)
    assert (added.imported, added.requests) == (9, 9)
    assert "sessions of agents hold code, paths and keys: only you can read" in notes
    assert History.open(past).manifest.private
    assert is_owners(past)
    assert all(is_owners(path) for path in past.iterdir())
    shown = ngramkit.history_inspect(past, last=9)
    assert [each.prompt for each in shown.last] == [""] * 9
    assert '"name": "Edit"' in shown.last[1].output
    left = ngramkit.history_forget(past, text="a + b")
    assert (left.dropped, left.requests) == (2, 7)


def test_half_a_surrogate_pair_spoils_its_own_text_only(tmp_path):
    said = ["Ask.", "half \ud800 of it", "Again.", "Whole."]
    lines = [{"type": "session", "id": "s"}] + [
        {"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}}
        for role, text in zip(["user", "assistant"] * 2, said, strict=True)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    notes = Notes()
    added = ngramkit.history_import(path, tmp_path / "past", model="demo", reporter=notes)
    assert added.requests == 2
    shown = ngramkit.history_inspect(tmp_path / "past", last=2).last
    written = [each.output.removesuffix("<|endoftext|>") for each in shown]
    assert written == ["half \ufffd of it", "Whole."]
    assert "a request with half a surrogate pair, which became U+FFFD" in notes


def test_prompts_of_sessions_are_remembered_once(projects, tmp_path):
    past = tmp_path / "past"
    ngramkit.history_import(projects, past, model="demo", prompts=True)
    shown = ngramkit.history_inspect(past, last=9)
    results = shown.last[1].prompt
    assert "return a - b" in results
    assert "Fix the bug" not in results
    assert sum("return a - b" in each.prompt for each in shown.last) == 1


# Corpora.


def test_sessions_are_a_private_corpus_of_messages(projects):
    notes = Notes()
    corpus = open_corpus(str(projects), reporter=notes)
    documents = [document.text for document in corpus.documents()]
    assert corpus.private
    assert corpus.record()["private"] is True
    assert "hold code, paths and keys: what is built from" in notes
    assert "1 file (without a session)" in notes
    assert documents.count("Fix the bug in app.py.") == 1  # also in the session that resumes it
    assert sum("It is in add." in text for text in documents) == 1
    requests = list(read_log(projects))
    assert {request.output for request in requests} < set(documents)
    joined = texts(str(projects), join_turns=True)
    assert len(joined) == 3
    assert "\n\n".join(documents) == "\n\n".join(joined)
    assert corpus.skipped.counts.bad == 1  # the cut last line


def test_a_column_of_sessions_is_private_too(projects):
    notes = Notes()
    corpus = open_corpus(str(projects), column="message.content", skip_bad=True, reporter=notes)
    assert corpus.private
    assert any("is marked private" in line for line in notes.lines)


def test_a_page_of_sessions_is_for_its_owner(projects, tmp_path):
    page = tmp_path / "page.html"
    ngramkit.replay(projects, model="demo", drafters=["context"], budgets=[4], html=page)
    assert is_owners(page)


def test_every_agents_files_are_a_corpus_alone_and_in_a_mixture(tmp_path):
    both = [SAMPLES / "codex", SAMPLES / "pi"]
    of_each = [text for folder in both for text in texts(str(folder))]
    mixed = open_corpus(both)
    assert [document.text for document in mixed.documents()] == of_each
    assert mixed.record()["mixed"][0]["private"] is True
    assert "Forked." in of_each
    assert "Once more." in of_each
    file = SAMPLES / "codex/rollout-2025-04-20-oldest.json"
    assert texts(str(file)) == ["2 + 2?", "4"]
    (tmp_path / "plain.jsonl").write_text('{"text": "no session"}\n')
    plain = open_corpus(str(tmp_path))
    assert not plain.private
    assert [document.text for document in plain.documents()] == ["no session"]
    with pytest.raises(InputError, match="unknown column 'text'"):
        texts(str(SAMPLES / "codex"), column="text")


def test_one_session_among_other_files_does_not_hide_them(projects, tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.jsonl").write_text(f'{{"text": "document {i}"}}\n')
    (folder / "big.json").write_text('[{"text": "a"}]')
    session = next(projects.rglob("5e55-2.jsonl"))
    shutil.copy(session, folder / "z.jsonl")
    found = texts(str(folder))
    assert found[:4] == ["document 0", "document 1", "document 2", "a"]
    assert found[4:] == texts(str(session))
    assert open_corpus(str(folder)).private
    (folder / "z.jsonl").unlink()
    assert not open_corpus(str(folder)).private


def test_a_session_with_a_large_record_is_not_left_out(projects):
    large = json.dumps({"type": "summary", "leafUuid": "x", "summary": "s" * 50_000}) + "\n"
    session = next(projects.rglob("5e55-2.jsonl"))
    session.write_text(large + session.read_text())
    corpus = open_corpus(str(projects), max_document=50_000)
    assert corpus.private
    with pytest.raises(InputError, match="line 1: a document of more than 50,000 bytes"):
        list(corpus.documents())


def test_a_datastore_of_sessions_is_private(projects, tmp_path):
    out = tmp_path / "mine"
    store = ngramkit.build_datastore(str(projects), out, model="demo", join_turns=True)
    assert store.manifest.private
    assert is_owners(out)


# Forecasts.


@pytest.fixture(scope="module")
def forecasts():
    notes = Notes()
    found = ngramkit.forecast(
        SAMPLES, model="demo", template="chatml", drafter="ssd",
        newest="1M", reporter=notes,
    )  # fmt: skip
    return found, notes


def test_a_forecast_answers_for_ones_own_work(forecasts):
    found, _ = forecasts
    assert found.concurrency == 1
    assert found.sentence.startswith("Look-up drafts would save ")
    assert set(found.best.by_kind()) == {"edits", "tool calls", "prose"}
    for kind in found.best.by_kind():
        assert f"{kind} " in found.sentence
    assert found.note.startswith("the texts are those of m, ")
    assert "not of demo" in found.note
    assert found.to_dict()["note"] == found.note


def test_only_the_newest_sessions_are_forecast(tmp_path, ngramkit_cli):
    names = [f"{number}.jsonl" for number in range(4)]
    for number, name in enumerate(names):
        rows = [
            {"type": role, "uuid": role, "parentUuid": None if role == "user" else "user",
             "sessionId": name, "timestamp": f"2026-11-{20 - number}T12:00:00Z",
             "message": {"role": role, "content": f"{role} {number} " + "word " * 40}}
            for role in ("user", "assistant")
        ]  # fmt: skip
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = Notes()
    newest = NewestRequests(500)
    found = [r.name for r in read_log(tmp_path, newest=newest, reporter=notes)]
    assert found == ["0"]
    assert "keeping the newest 1 of 4 requests" in notes
    assert (newest.left_out, newest.sessions_read, newest.sessions_found) == (3, 4, 4)
    newest = NewestRequests(60)
    found = [r.name for r in read_log(tmp_path, newest=newest, reporter=notes)]
    assert found == ["0"]
    assert "reading the newest 2 of 4 sessions" in notes
    assert (newest.left_out, newest.sessions_read, newest.sessions_found) == (1, 2, 4)
    for name in ("0", "3"):  # others are not selected, so they use up nothing
        newest = NewestRequests(500)
        read = read_log(tmp_path, where={"name": name}, newest=newest)
        assert ([r.name for r in read], newest.left_out) == ([name], 0)

    def replayed(**given):
        found = ngramkit.forecast(tmp_path, model="demo", template="chatml", drafter="ssd", **given)
        return found.to_dict()["replayed"], str(found.replayed)

    sizes = [(tmp_path / name).stat().st_size for name in names]
    found, text = replayed(newest=60)
    assert found == {
        "share": sum(sizes[:2]) / sum(sizes) / 2, "requests": 1, "requests_read": 2,
        "sessions_read": 2, "sessions_found": 4,
        "bytes_read": sum(sizes[:2]), "bytes_found": sum(sizes),
    }  # fmt: skip
    assert text.startswith("1 of 2 requests in the newest 2 of 4 sessions (")
    assert replayed(limit=3)[0]["share"] == 0.75
    assert (replayed()[0]["share"], replayed()[1]) == (1, "4 of 4 requests")
    options = ["--model", "demo", "--template", "chatml", "--drafter", "ssd", "--newest", "60"]
    quiet, shown = ngramkit_cli(
        ["forecast", str(tmp_path), *options, "-q"], ["forecast", str(tmp_path), *options, "--json"]
    )
    assert f"replayed: {text} " in " ".join(quiet.out.split())
    assert shown.json["replayed"] == found


def test_newest_is_only_for_sessions(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"prompt": "def f(", "output": "x): return x"}))
    with pytest.raises(UsageError, match="cannot use newest: the log has no sessions") as refused:
        ngramkit.forecast(path, model="demo", drafter="context", newest="1M")
    assert refused.value.option == ("newest",)


def write_session(folder, name, times, model="m"):
    """Write an answer of 100 characters for each time of November; None: a record without one."""
    rows = []
    for number, time in enumerate(times):
        for role in ("user", "assistant"):
            stamp = {} if time is None else {"timestamp": f"2026-11-{time:02}T12:00:00Z"}
            text = f"{name} {time} ".ljust(100, ".") if role == "assistant" else "q"
            rows.append(
                {"type": role, "uuid": f"{role} {number}", "parentUuid": None, "sessionId": name,
                 "message": {"role": role, "content": text, "model": model}, **stamp}
            )  # fmt: skip
            if role == "assistant":
                rows[-1]["parentUuid"] = f"user {number}"
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def newest_of(folder, characters, **options):
    """Return (session, day or None) of each request, the counts, and the notes."""
    newest, notes = NewestRequests(characters), Notes()
    found = [
        tuple(request.output.rstrip(".").split())
        for request in read_log(folder, newest=newest, reporter=notes, **options)
    ]
    return found, newest, notes


def test_a_long_session_is_as_new_as_its_last_requests(tmp_path):
    with write_session(tmp_path, "long", [1, 2, 19, 20]).open("a") as file:
        file.write('{"type": "last-prompt", "sessionId": "long"}\n{"type": "us')  # still written
    write_session(tmp_path, "short", [9, 10])
    found, newest, _ = newest_of(tmp_path, 303)
    assert found == [("short", "10"), ("long", "19"), ("long", "20")]
    assert (newest.left_out, newest.sessions_read) == (3, 2)
    found, newest, notes = newest_of(tmp_path, 60)
    assert found == [("long", "20")]
    assert (newest.left_out, newest.sessions_read, newest.sessions_found) == (3, 1, 2)
    assert "reading the newest 1 of 2 sessions" in notes
    past = tmp_path / "past"
    ngramkit.history_import(tmp_path, past, model="demo")
    order = [each.output.split()[1] for each in ngramkit.history_inspect(past, last=9).last]
    assert order == ["1", "2", "9", "10", "19", "20"]


def test_a_session_without_times_is_as_new_as_its_file(tmp_path):
    untimed = write_session(tmp_path, "untimed", [None])
    write_session(tmp_path, "timed", [5, 15])
    for day, expected in ((10, "timed"), (20, "untimed")):
        seconds = datetime(2026, 11, day, tzinfo=UTC).timestamp()
        os.utime(untimed, (seconds, seconds))
        for characters in (10, 101):  # of one file, of both
            assert [name for name, _ in newest_of(tmp_path, characters)[0]] == [expected]


def test_older_sessions_are_read_until_enough_is_selected(tmp_path):
    for day in range(1, 21):
        write_session(tmp_path, f"s{day}", [day], model="old" if day < 10 else "new")
    found, newest, _ = newest_of(tmp_path, 60, where={"model": "old"})
    assert found == [("s9", "9")]
    assert newest.sessions_read < newest.sessions_found == 20
    found, newest, _ = newest_of(tmp_path, 10_000, where={"model": "old"})
    assert found == [(f"s{day}", str(day)) for day in range(1, 10)]
    assert (newest.sessions_read, newest.left_out) == (20, 0)
    assert newest_of(tmp_path, 60)[1].sessions_read < 9
    with pytest.raises(InputError, match="none has model='lost'"):
        newest_of(tmp_path, 60, where={"model": "lost"})


# Token ids of prompts that share messages.


@pytest.mark.parametrize("name", KNOWN)
def test_known_templates_have_fixed_borders(name):
    template = Template(name, KNOWN[name])
    borders = Borders.of(template)
    messages = [Message(*each) for each in (
        ("system", "Be brief."), ("user", " 1?\n"), ("assistant", "One."), ("assistant", "Two."),
        ("user", "3?"),
    )]  # fmt: skip
    for begin in (0, 1):
        for count in range(2, 6):
            said = messages[begin:count]
            whole = template.prompt(said)
            assert borders.end(MessagePrefix(said, len(said)), len(whole)) == whole


def test_templates_without_fixed_borders_render_each_prompt():
    counted = "{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}"
    assert Borders.of(Template("x", counted)) is None
    last = "{% for m in messages %}{% if loop.last %}>{% endif %}{{ m.content }};{% endfor %}"
    assert Borders.of(Template("x", last)) is None
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    strict += "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}[assistant]"
    borders = Borders.of(Template("x", strict))
    said = [Message("user", " 1 "), Message("assistant", "2")]
    assert borders.end(MessagePrefix(said, 2), 99) == "[user]1[assistant]2[assistant]"
    system = [Message("system", "1"), Message("user", "2")]
    assert borders.end(MessagePrefix(system, 2), 99) is None


def test_prompts_of_a_long_session_are_views_of_the_same_ids():
    """Each message is encoded once: what is encoded grows with the session, not its square."""
    tokenizer = ngramkit.load_tokenizer("demo")
    count = 150
    messages = [
        Message("assistant" if number % 2 else "user", f"word {number} " * 20)
        for number in range(2 * count)
    ]
    requests = [
        LoggedRequest(MessagePrefix(messages, at), messages[at].content, agent="x")
        for at in range(1, 2 * count, 2)
    ]
    encode = RequestTokenizer(tokenizer, "chatml")
    found = [encode(request) for request in requests]
    last = found[-1].prompt
    owners = {id(each.prompt.base) for each in found}
    assert len(owners) < 16  # buffers that grow by doubling
    for request, (prompt, output, _) in zip(requests, found, strict=True):
        assert (prompt == last[: len(prompt)]).all()
        assert tokenizer.decode(output[:-1]).strip() == request.output.strip()
    whole = RequestTokenizer(tokenizer, "chatml")
    plain = LoggedRequest(list(requests[-1].prompt), requests[-1].output)
    assert tokenizer.decode(whole(plain).prompt) == tokenizer.decode(last)
