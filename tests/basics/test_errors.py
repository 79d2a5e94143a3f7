"""Messages: the library names its parameters, the command line turns them into its flags."""

from __future__ import annotations

import ast
import pickle
import traceback
from pathlib import Path

import pytest
from command_lines import run_here

from ngramkit.basics.errors import UsageError, require_between
from ngramkit.decode.sampling import Sampling
from ngramkit_cli import errors
from ngramkit_cli.errors import Flag, with_flags

LIBRARY = Path(__file__).parents[2] / "ngramkit"
ERRORS = {"UsageError", "InputError", "ArtifactError", "NetworkError", "NgramkitError"}


def raised(path):
    """(line, every string) of each call in the file that makes an error."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield node.lineno, " ".join(text for text in texts if isinstance(text, str))


def test_no_message_of_the_library_speaks_of_flags():
    found = [
        f"{path.relative_to(LIBRARY)}:{line}: {text}"
        for path in sorted(LIBRARY.rglob("*.py"))
        for line, text in raised(path)
        if "--" in text.replace("`ngramkit export --to llama.cpp`", "")
    ]
    assert not found


def test_a_message_names_the_fault_and_the_value():
    with pytest.raises(UsageError, match="scan must be 1 to 1024") as caught:
        require_between("scan", 2000, 1, 1024)
    assert caught.value.option == ("scan",)
    with pytest.raises(UsageError, match="temperature must be 0 to 1000"):
        Sampling(temperature=float("nan"))
    with pytest.raises(UsageError, match="top_p must be above 0 and at most 1") as caught:
        Sampling(top_p=2.0)
    assert caught.value.option == ("top_p",)


FLAGS = {
    "out": Flag("--out"),
    "force": Flag("--force", switch=True),
    "eos": Flag("--eos", "--no-eos", switch=True),
    "dtype": Flag("--dtype"),
    "top_p": Flag("--top-p"),
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("choose another out, or force=True", "choose another --out, or --force"),
        ("use dtype=float32 or dtype='x'", "use --dtype float32 or --dtype 'x'"),
        ("eos=False leaves it out", "--no-eos leaves it --out"),
        ("top_p, or top_papa", "--top-p, or top_papa"),
        ("/out/x.out exists", "/out/x.out exists"),
        ("out/x exists; out.d too", "out/x exists; out.d too"),
        ("no width here", "no width here"),
    ],
)
def test_parameters_become_flags(text, said):
    assert with_flags(text, FLAGS, FLAGS) == said


def test_only_the_parameters_that_the_error_names_become_flags():
    assert with_flags("out of memory", ("dtype",), FLAGS) == "out of memory"


def test_what_another_program_said_is_quoted_as_it_is(monkeypatch):
    monkeypatch.setattr(errors, "running_flags", lambda: {"out": Flag("--out")})
    error = UsageError("out is bad: line 2 out 1", "Choose another out.", option="out")
    assert errors.in_flags(error) == ("--out is bad: line 2 out 1", "Choose another --out.")


def test_a_command_says_its_own_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    sampled = run_here(["tokenize", "--corpus", "a.txt", "--sample", "7", "--json"])
    assert (sampled.code, "--sample must be above 0 and at most 1, got 7") == (
        2,
        sampled.err.partition("error: ")[2].splitlines()[0],
    )
    assert sampled.json["error"].startswith("--sample must be")
    unsplit = run_here(["tokenize", "--corpus", "a.txt", "--split", "train"])
    assert "--split for a.txt" in unsplit.err


def test_hints_fit_the_one_who_reads_them(monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import httpx

    from ngramkit.basics.errors import translate_hub_error

    request = httpx.Request("POST", "http://127.0.0.1/x")
    refused = HfHubHTTPError("no", response=httpx.Response(403, request=request))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    assert "your own namespace" in translate_hub_error(refused, "them/x").hint
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert translate_hub_error(refused, "them/x").hint == "Run: hf auth login"
    assert "same command" not in translate_hub_error(ConnectionError(), "a/b", "model").hint
    assert "same command" in translate_hub_error(ConnectionError(), "a/b", "dataset").hint


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no 's3://k:s@b/x?a=1', see (http://h:80/y#z).", "no 's3://b/x', see (http://h:80/y)."),
        ("hf://me/x@v1 and http://[::1]:8/x", "hf://me/x@v1 and http://[::1]:8/x"),
        ("a/b?c=d: C:\\x and https:/u:p@h", "a/b?c=d: C:\\x and https:/h"),
        ("s3://k:a/b@bucket", "s3://bucket"),
        ("s3://k:ab", "s3://..."),
    ],
)
def test_an_error_holds_no_secret_of_a_url(text, shown):
    error = UsageError(text, text)
    assert (str(error), error.hint, error.__notes__) == (shown, shown, [shown])


def test_a_traceback_shows_the_hint():
    error = UsageError("no drafter is called 'rst'", "Did you mean rest?")
    assert traceback.format_exception(error)[-1] == "Did you mean rest?\n"
    error.hint = "there are: rest"
    assert traceback.format_exception(error)[-1] == "there are: rest\n"
    assert traceback.format_exception(UsageError("no"))[-1].endswith("UsageError: no\n")
    assert pickle.loads(pickle.dumps(error)).hint == "there are: rest"
