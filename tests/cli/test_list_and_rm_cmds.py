"""`ngramkit list` and `rm`, and the same from Python."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import pytest
from command_lines import run_here

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def here(tmp_path, monkeypatch, token_store):
    """A folder artifacts/ with artifacts, a history, a link and other files."""
    monkeypatch.chdir(tmp_path)
    Path("artifacts/automatic").mkdir(parents=True)
    store = token_store([[1, 2, 3], [4, 5]], 10)
    store.path.rename("artifacts/mine")
    shutil.copytree(GOLDEN / "frozen-table", "artifacts/automatic/table")
    Path("artifacts/link").symlink_to(Path("artifacts/mine").absolute())
    Path("artifacts/theirs").mkdir()
    Path("artifacts/theirs/thesis.doc").write_text("years")
    Path("artifacts/broken").mkdir()
    Path("artifacts/broken/manifest.json").write_text("{")
    Path("artifacts/begun.partial").mkdir()
    Path("artifacts/begun.partial/progress.jsonl").write_text("{}\n")
    Path("log.jsonl").write_text('{"prompt": "a", "output": "b"}\n')
    ngramkit.history_import("log.jsonl", "artifacts/past", model="demo")
    return tmp_path


def test_everything_in_artifacts_is_listed(here):
    os.utime("artifacts/mine/manifest.json", (0, 0))
    done = run_here(["list", "--json"])
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in done.json["artifacts"]}
    assert list(rows) == ["automatic/table", "begun.partial", "broken", "link", "mine", "past"]
    assert rows["mine"]["counts"] == {"documents": 2, "tokens": 5}
    assert rows["mine"]["modified"] == "1970-01-01T00:00:00+00:00"
    assert rows["mine"]["bytes"] == sum(p.stat().st_size for p in Path("artifacts/mine").iterdir())
    assert rows["begun.partial"]["kind"] == "unfinished"
    assert (rows["broken"]["kind"], "not JSON" in rows["broken"]["problem"]) == ("", True)
    shown = run_here(["list"]).out
    mine = next(line for line in shown.splitlines() if line.startswith("mine"))
    assert mine.split()[1] == "tokens"
    assert "5 tokens" in mine
    assert mine.endswith("1970-01-01")
    assert ngramkit.list_().to_dict() == list(rows.values())
    assert run_here(["list", "--folder", "nowhere"]).out == "no artifacts in nowhere\n"


def test_artifacts_and_unfinished_builds_are_deleted(here):
    done = run_here(["rm", "mine", "artifacts/automatic/table", "begun.partial", "--yes", "--json"])
    assert done.code == 0, done.err
    kinds = {row["path"]: row["kind"] for row in done.json["removed"]}
    assert kinds == {
        "artifacts/mine": "tokens",
        "artifacts/automatic/table": "frozen-table",
        "artifacts/begun.partial": "unfinished",
    }
    assert [each.name for each in ngramkit.list_()] == ["broken", "past"]


def test_an_export_is_deleted_with_the_artifact_in_it(here):
    ngramkit.export("artifacts/automatic/table", "transformers", "artifacts/hub")
    assert [(each.path, each.kind) for each in ngramkit.rm("hub")] == [
        (Path("artifacts/hub"), "transformers")
    ]
    assert not Path("artifacts/hub").exists()


REFUSED = {
    "past": ("a history (1 request, 2 tokens) cannot be built again", UsageError),
    "theirs": ("it has no manifest.json", ArtifactError),
    "broken": ("not JSON", ArtifactError),
    "link": ("not an artifact's folder", UsageError),
    "log.jsonl": ("it is outside artifacts", UsageError),
    "../artifacts/../log.jsonl": ("it is outside artifacts", UsageError),
    "nope": ("no such artifact in artifacts: nope", ArtifactError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_else_is_deleted_nor_what_is_named_with_it(here, name):
    said, error = REFUSED[name]
    before = sorted(here.rglob("*"))
    with pytest.raises(error) as caught:
        ngramkit.rm(["mine", name])
    assert said in str(caught.value)
    assert caught.value.hint
    assert sorted(here.rglob("*")) == before


def test_a_foreign_file_in_an_artifact_keeps_it(here):
    Path("artifacts/mine/thesis.doc").write_text("years")
    with pytest.raises(UsageError, match=r"did not write thesis.doc"):
        ngramkit.rm("mine")
    assert Path("artifacts/mine/thesis.doc").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "left"), [("y\n", False), ("n\n", True), ("", True)])
def test_it_asks_on_a_terminal(here, monkeypatch, answer, left):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = run_here(["rm", "mine"])
    assert "delete artifacts/mine (" in done.err
    assert (done.code, Path("artifacts/mine").exists()) == (int(left), left)


def test_nobody_is_asked_through_a_pipe(here):
    done = run_here(["rm", "mine"])
    assert done.code == 2
    assert "Give --yes." in done.err
    assert Path("artifacts/mine").exists()


def test_forgetting_everything_asks_too(here, monkeypatch):
    line = ["history", "forget", "artifacts/past", "--everything"]
    done = run_here(line)
    assert (done.code, "Give --yes." in done.err) == (2, True)
    assert "forget everything in artifacts/past (1 request, 2 tokens)" in done.err
    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert run_here(line).code == 1
    assert ngramkit.history_inspect("artifacts/past").requests == 1
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert run_here(line).code == 0
    assert ngramkit.history_inspect("artifacts/past").requests == 0
    assert run_here([*line, "--yes"]).code == 0
