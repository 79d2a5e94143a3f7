"""A stranger's history whose files are links to the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_lines import run_here

from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.history import DAMAGED, INDEX, LOCK, LOG, History
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.formats.replacing import replace_text
from ngramkit.formats.tokenizer_record import TokenizerRecord

from . import tally

RECORD = TokenizerRecord("small", 50, "f" * 64, 49)
ATTACK = "links in a folder that is written to"
MINE = "export PATH=/usr/bin\n"


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "bashrc"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize("name", [LOG, INDEX, LOCK, DAMAGED, f"{LOG}.tmp", f"{INDEX}.tmp",
                                  f"{MANIFEST_FILE}.tmp"])  # fmt: skip
@pytest.mark.parametrize("new", [False, True])
def test_a_history_whose_file_is_a_link(tmp_path, mine, name, new):
    folder = tmp_path / "history"
    if new:
        folder.mkdir()
    else:
        History.at(folder, RECORD).append(np.arange(9, dtype=np.int32), 3)
        with (folder / LOG).open("ab") as file:
            file.write(b"damage that somebody chose " * 9)
        (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(mine)
    with pytest.raises(ArtifactError, match="is a link to"):
        History.at(folder, RECORD)
    if not new:
        with pytest.raises(ArtifactError, match="is a link to"):
            History.open(folder)
    assert mine.read_text() == MINE
    tally(ATTACK, "refused")


def test_the_command_line_adds_to_no_link(tmp_path, mine, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = [
        "decode",
        "--drafter",
        "ssd",
        "--model",
        "demo",
        "--prompt",
        "x",
        "--max-new-tokens",
        "2",
        "--history",
        "h",
    ]
    assert run_here(line).code == 0
    Path("h", LOG).unlink()
    Path("h", LOG).symlink_to(mine)
    for words in (line, ["history", "trim", "h", "--tokens", "0"]):
        result = run_here(words)
        assert result.code == 3, result.err
        assert "is a link to" in result.err
    assert mine.read_text() == MINE
    tally(ATTACK, "refused", 2)


def test_what_is_written_beside_a_text_is_no_link(tmp_path, mine):
    """For example recipe.json.tmp in a folder that a recipe is about to update."""
    (tmp_path / "recipe.json.tmp").symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        replace_text(tmp_path / "recipe.json", "{}")
    assert mine.read_text() == MINE
    tally(ATTACK, "refused")
