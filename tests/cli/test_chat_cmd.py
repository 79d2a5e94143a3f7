"""`ngramkit decode --chat`: a conversation on a terminal, a prompt a line through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import sys
import time

import pytest
from typer.testing import CliRunner

from ngramkit_cli.main import app

OPTIONS = ["--chat", "--template", "chatml", "--max-new-tokens", "8", "--drafter", "context"]


@pytest.fixture
def decode(monkeypatch):
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)
    return lambda *options, stdin="": CliRunner().invoke(
        app, ["decode", *OPTIONS, *options], input=stdin
    )


def test_a_pipe_is_one_prompt_a_line(decode):
    done = decode("--json", "--system", "Be brief.", stdin="def main(\n\nimport os\ndef main(\n")
    assert done.exit_code == 0, done.stderr
    replies = json.loads(done.stdout.splitlines()[-1])["replies"]
    assert len(replies) == 3
    assert replies[0]["text"] == replies[2]["text"]
    assert replies[0]["held_tokens"] == 0 < replies[1]["held_tokens"]
    assert done.stderr.count("tokens/step") == 3
    alone = decode("--json", "--system", "Be brief.", "--prompt", "import os")
    assert json.loads(alone.stdout.splitlines()[-1])["text"] == replies[1]["text"]


def test_a_byte_order_mark_is_no_part_of_a_prompt(decode):
    marked, plain = (
        json.loads(decode("--json", stdin=f"{mark}import os\n").stdout.splitlines()[-1])["replies"]
        for mark in ("\ufeff", "")
    )
    assert marked[0]["prompt_tokens"] == plain[0]["prompt_tokens"]


def test_ctrl_c_ends_a_pipe_with_its_exit_code(decode, monkeypatch):
    from ngramkit.decode.conversation import Conversation

    ask = Conversation.ask

    def interrupted(talk, text, show):
        def stop(piece, drafted):
            raise KeyboardInterrupt

        return ask(talk, text, stop if text == "import os" else show)

    monkeypatch.setattr(Conversation, "ask", interrupted)
    done = decode("--json", stdin="def main(\nimport os\nclass A\n")
    assert done.exit_code == 130
    replies = json.loads(done.stdout.splitlines()[-1])["replies"]
    assert [each["ended_by"] for each in replies] == ["length", "interrupt"]


@pytest.mark.parametrize(
    ("line", "error"),
    [(b"word " * 5000, "must be shorter than the context"), (b"caf\xe9", "stdin must be UTF-8")],
)
def test_replies_before_a_line_that_cannot_be_answered_are_kept(decode, line, error):
    done = decode("--json", stdin=b"def main(\nimport os\n" + line + b"\nclass A\n")
    assert done.exit_code == 3
    result = json.loads(done.stdout.splitlines()[-1])
    assert error in result["error"]
    assert [each["ended_by"] for each in result["replies"]] == ["length", "length"]


def test_replies_before_ctrl_c_are_kept(decode, monkeypatch):
    from ngramkit.decode.conversation import Conversation

    ask = Conversation.ask

    def asked(talk, text, show):
        if text == "import os":
            raise KeyboardInterrupt  # as between two lines
        return ask(talk, text, show)

    monkeypatch.setattr(Conversation, "ask", asked)
    done = decode("--json", stdin="def main(\nimport os\nclass A\n")
    assert done.exit_code == 130
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["error"] == "interrupted"
    assert [each["ended_by"] for each in result["replies"]] == ["length"]


def test_an_empty_pipe_is_said(decode):
    done = decode()
    assert done.exit_code == 2
    assert "a prompt must be given" in done.stderr


def run(words):
    """Run a command line in a fork of this process, which has imported what takes seconds."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in a shell's background
    os.environ |= {"TERM": "dumb", "NO_COLOR": "1"}
    os.environ.pop("NGRAMKIT_MODEL", None)
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        file = os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False)
        setattr(sys, name, file)
    code = 1
    try:
        app(words)
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        os._exit(code)


class Terminal:
    """A process at a terminal of its own."""

    def __init__(self, *words, stdout=None):
        self.process, self._own = pty.fork()
        if self.process == 0:
            if stdout is not None:
                os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT), 1)
            run(words)
        self.seen = ""

    def end(self):
        """Return the exit code of a process that ends by itself; kill another one."""
        for _ in range(600):
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(self.process, signal.SIGKILL)
        return os.waitpid(self.process, 0)[1]

    def until(self, text, seconds=120):
        """What was written up to `text`, which comes within so many seconds and may be broken."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self._own], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                written = os.read(self._own, 65536).decode()
                self.seen = re.sub(r"\r\n {2}(?=\S)", " ", self.seen + written)
            except OSError:
                raise AssertionError(f"ended before {text!r}: {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended
                os.kill(self.process, signal.SIGKILL)

    def type(self, text):
        os.write(self._own, text.encode())

    def interrupt_until(self, text):
        """Ctrl-C, and again if need be: where it falls between readline's prompt and its waiting
        for keys, Python hears of it with the next key only."""
        for _ in range(20):
            self.type("\x03")
            if select.select([self._own], [], [], 3)[0]:
                break
        self.until(text)


def test_a_terminal_is_a_conversation():
    with Terminal("decode", *OPTIONS) as terminal:
        terminal.until("/exit")
        terminal.until("> ")
        terminal.type("def main(\n")
        terminal.until("tokens/step")
        assert "0 of " in terminal.until("prompt tokens were cached")
        terminal.until("> ")
        terminal.type("and then\n")
        said = terminal.until("prompt tokens were cached")
        assert int(said.rpartition("; ")[2].split()[0]) > 20
        terminal.until("> ")
        terminal.type("/nonsense\n")
        terminal.until("/new begins")
        terminal.until("> ")
        terminal.type("/new\n")
        terminal.until("a new conversation")
        terminal.until("> ")
        terminal.interrupt_until("> ")  # what was typed is dropped, nothing ends
        terminal.type("def main(\n")
        terminal.until("prompt tokens were cached")
        terminal.until("> ")
        terminal.type("/exit\n")
        assert terminal.end() == 0


def test_a_redirected_result_is_one_object(tmp_path):
    with Terminal("decode", *OPTIONS, "--json", stdout=tmp_path / "result.json") as terminal:
        terminal.until("> ")
        terminal.type("def main(\n")
        terminal.until("prompt tokens were cached")
        terminal.until("> ")
        terminal.type("/exit\n")
        assert terminal.end() == 0
    assert len(json.loads((tmp_path / "result.json").read_text())["replies"]) == 1
