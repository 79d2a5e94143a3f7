"""Logs that somebody spoiled or made to hurt: an error in a line or two, and never their code."""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import time
import warnings
from pathlib import Path

import pytest

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus import unpacking
from ngramkit.logs import files
from ngramkit.logs.agents import read_openhands
from ngramkit.logs.read import FORMATS, read_log
from ngramkit.logs.request import FilePlace
from ngramkit.logs.rollouts import read_prime_rl, torch_samples
from ngramkit.logs.servers import read_sglang, read_vllm

HERE = FilePlace(Path("x"), "line", 1)


def write(path, *rows):
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))
    return path


class Runs:
    """An object whose pickle runs code."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_no_pickle_is_run(tmp_path):
    import torch

    marker = tmp_path / "ran"
    bare, packed = tmp_path / "a.pt", tmp_path / "b.pt"
    bare.write_bytes(pickle.dumps({"samples": [Runs(marker)]}))
    torch.save({"samples": [Runs(marker)]}, packed)
    with pytest.raises(InputError, match="pickle, which could run code"):
        list(read_log(bare))
    with pytest.raises(InputError, match="as slime's samples"):
        list(read_log(packed))
    assert not marker.exists()


def test_torch_says_nothing_of_its_own(tmp_path, monkeypatch):
    import torch

    def load(*_, **__):
        warnings.warn("a program of TorchScript", UserWarning, stacklevel=2)
        raise RuntimeError("no")

    torch.save({}, tmp_path / "a.pt")
    monkeypatch.setattr(torch, "load", load)
    with warnings.catch_warnings(record=True) as said, pytest.raises(InputError, match="as slime"):
        list(read_log(tmp_path / "a.pt"))
    assert said == []


def test_a_file_of_torch_that_holds_anything_else(tmp_path):
    import torch

    path = tmp_path / "a.pt"
    for body, said in (
        ([1], "no samples of slime"),
        ({"samples": 3}, "no samples of slime"),
        ({"samples": [3]}, "a sample must be"),
        ({"samples": [{"response": 3}]}, "must have `prompt` and `response`"),
    ):
        torch.save(body, path)
        with pytest.raises(InputError, match=said):
            list(read_log(path))
    with pytest.raises(InputError, match=r"torch\.save"):
        list(read_log(path, format="verl"))
    path.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(InputError, match="as slime's samples"):
        list(torch_samples(path))


@pytest.mark.parametrize(
    ("format", "row", "said"),
    [
        ("columns", {"prompt": 1, "output": "x"}, "`prompt` must be"),
        ("columns", {"prompt": "x", "output": {"content": [3]}, "reference": 3}, "`reference`"),
        ("columns", {"messages": [{"role": "user", "content": 3}]}, "content must be a text"),
        (
            "columns",
            {"messages": [{"role": "robot", "content": "x"}]},
            "unknown role of a message: 'robot'",
        ),
        ("openai", {"messages": 3, "response": {"choices": [{"text": "x"}]}}, "must be a list"),
        (
            "openai",
            {"prompt": {"a": 1}, "response": {"choices": [{"text": "x"}]}},
            "must be a list",
        ),
        (
            "openai",
            {"prompt": "x", "response": {"choices": [{"text": 3}]}},
            "content must be a text",
        ),
        ("swe-agent", {"trajectory": 3, "history": [], "info": {}}, "`trajectory` must"),
        ("mini-swe-agent", {"trajectory_format": "mini-swe-agent-1"}, "`messages` must be a list"),
        ("tau-bench", {"task_id": 1, "traj": {}}, "`traj` must"),
        ("verl", {"input": 3, "output": "", "score": 1, "step": 1}, "`input` must"),
        ("nemo-rl", {"idx": 0, "rewards": [], "content": 3}, "`content` must"),
        (
            "nemo-rl",
            {"idx": 0, "rewards": [], "token_ids": [[1, 2]], "token_loss_mask": [[1]]},
            "mask must",
        ),
        ("prime-rl", {"task": {}, "nodes": [3]}, "a node must be"),
        ("prime-rl", {"task": {}, "nodes": [{"sampled": True, "parent": 0}]}, "parent must be"),
        ("prime-rl", {"task": {}, "nodes": [{"sampled": True}]}, "`message` must be an object"),
        (
            "prime-rl",
            {"task": {}, "nodes": [{"sampled": True, "token_ids": [1], "mask": []}]},
            "mask must",
        ),
        ("slime", {"response": 3, "response_length": -1}, "must have `prompt` and `response`"),
        (
            "openai",
            {"request": 3, "kwargs": [3], "messages": 3, "response": {"choices": [{"text": "x"}]}},
            "messages must be a list",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, format, row, said):
    path = write(tmp_path / "a.jsonl", row)
    with pytest.raises(InputError, match=said) as caught:
        list(read_log(path, format=format))
    assert "a.jsonl" in str(caught.value)


@pytest.mark.parametrize("format", [name for name, each in FORMATS.items() if each.matches])
def test_any_json_at_all_is_an_error_or_is_left_out(tmp_path, format):
    odd = [
        None,
        True,
        3,
        -1,
        1e308,
        "",
        "x",
        [],
        {},
        [None],
        [[3]],
        {"a": None},
        [{"role": "user"}],
    ]
    keys = (
        "messages", "prompt", "output", "request", "response", "custom_id", "body", "trajectory",
        "history", "info", "traj", "task_id", "input", "score", "step", "idx", "rewards", "content",
        "token_ids", "token_loss_mask", "nodes", "task", "traces", "response_length", "tokens",
        "loss_mask", "source", "action", "args", "observation", "tool_call_metadata", "timestamp",
        "tools", "time", "turn", "run", "reference",
    )  # fmt: skip
    for value in odd:
        for missing in keys:
            row = {key: value for key in keys if key != missing}
            with contextlib.suppress(InputError):
                list(read_log(write(tmp_path / "a.jsonl", row), format=format))


def test_files_that_are_none(tmp_path):
    for content, said in (
        (b"", "holds no requests"),
        (b"\n \n", "holds no requests"),
        (b"{", "not JSON"),
        (b'{"a": 1}\n', "no requests in a known format"),
        (b'["x"]', "must be a JSON object"),
        (b'["x"]\n["y"]\n', "line 1: a record must be a JSON object"),
        (b'{"question_id": 1, "choices": []}\n', "cannot read .* an answer without its question"),
        (b"\xff\xfe text", "UTF-16"),
        (b"[" * 100_000, "nests too deeply"),
    ):
        path = tmp_path / "a.jsonl"
        path.write_bytes(content)
        with pytest.raises(InputError, match=said):
            list(read_log(path))
    with pytest.raises(InputError, match="no such file"):
        list(read_log(tmp_path / "b.jsonl"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="holds no file of a log"):
        list(read_log(tmp_path / "folder"))
    whole = gzip.compress(b'{"prompt": "a", "output": "b"}\n' * 1000)
    (tmp_path / "c.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(InputError, match="is damaged"):
        list(read_log(tmp_path / "c.jsonl.gz"))


def test_sizes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT", 1 << 16)
    monkeypatch.setattr(files, "MAX_DOCUMENT_BYTES", 1 << 16)
    for content in (
        b'{"prompt": "' + b"a" * (1 << 20),
        b"[\n" + b"\n" * 9 + b'"' + b"a" * (1 << 20),
    ):
        path = tmp_path / "a.json.gz"
        path.write_bytes(gzip.compress(content))
        with pytest.raises(InputError, match="a document of more than"):
            list(read_log(path))


def test_links_in_folders_are_not_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    write(outside / "secret.jsonl", {"prompt": "a", "output": "b"})
    (inside / "link.jsonl").symlink_to(outside / "secret.jsonl")
    (inside / "folder").symlink_to(outside)
    write(inside / "own.jsonl", {"prompt": "c", "output": "d"})
    assert [r.output for r in read_log(inside)] == ["d"]


def test_lines_of_a_server_that_go_wrong_take_no_time():
    """Patterns never look at a line more than a few times over."""
    long = 200_000
    lines = [
        "Generated response x: output: '" + "\\" * long,
        "Generated response x: output: " + "'a" * long,
        "Request x details: prompt: '" + "a" * long + "', ",
        "Request x details: prompt: 'a', " + "prompt_token_ids: [1" * (long // 20),
        "Finish: obj=GenerateReqInput(rid='" + "a\\'" * long,
        "Finish: obj=GenerateReqInput(text=" + "'a' " * (long // 4),
        "Finish: obj=GenerateReqInput(rid='r', " + "text=" * (long // 5),
    ]
    begun = time.perf_counter()
    for line in lines:
        list(read_vllm(iter([(HERE, line)])))
        list(read_sglang(iter([(HERE, line)])))
    assert time.perf_counter() - begun < 5


def test_a_graph_without_end_is_refused():
    node = {"sampled": True, "message": {"role": "assistant", "content": "x"}, "parent": 0}
    trace = {"task": {}, "nodes": [node, {**node, "parent": 1}]}
    *_, left = read_prime_rl(iter([(HERE, trace)]))
    assert "parent" in left.reason


def test_a_branch_of_few_ids_takes_little_memory():
    import tracemalloc

    trace = {"task": {}, "nodes": [{"parent": None, "token_ids": [1]} for _ in range(2000)]}
    tracemalloc.start()
    try:
        assert list(read_prime_rl(iter([(HERE, trace)]))) == []
        assert tracemalloc.get_traced_memory()[1] < 2000 * 2048
    finally:
        tracemalloc.stop()


def test_events_of_any_kind_are_read():
    for event in ({"source": "agent", "action": 3}, {"source": 3, "observation": "x"}):
        assert list(read_openhands(iter([(HERE, event)]))) == []
