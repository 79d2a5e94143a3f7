"""What blend is fitted and judged on must be in no datastore, and the same everywhere."""

from __future__ import annotations

import json
import sys

import pytest

from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.stdlib import is_held_out
from research import held_out
from research.held_out import INSTRUCTIONS, LINES, MODELS, chat, code, hashed

WRITERS = [f"model-{i}" for i in range(30)]
ASKED = [f"Question {i}?" for i in range(36)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write two parquet files with every model's answer to every instruction."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    paths = []
    for half in (WRITERS[:15], WRITERS[15:]):
        pairs = [(model, asked) for model in half for asked in ASKED]
        columns = {
            "model": [model for model, _ in pairs],
            "instruction": [asked for _, asked in pairs],
            "output": [f"{model} answers {asked}" for model, asked in pairs],
        }
        paths.append(tmp_path_factory.mktemp("chat") / "train.parquet")
        parquet.write_table(pa.table(columns), paths[-1])
    return paths


@pytest.fixture(scope="module")
def parts(corpus):
    return chat(corpus)


def pairs(lines):
    """Return {(instruction, answer)} of conversations."""
    found = set()
    for line in lines:
        texts = [message["content"] for message in line["messages"]]
        assert [m["role"] for m in line["messages"]] == ["user", "assistant"] * 2
        found |= set(zip(texts[::2], texts[1::2], strict=True))
    return found


def test_hashes_are_the_same_on_every_machine():
    assert hashed("") == 0x141CFC9842C4B0E3
    assert hashed("iWhat?") == 0x2036E750C6A19A4B


def test_kept_fit_and_check_share_no_model_and_no_instruction(parts):
    kept, fit, check = parts
    kept_pairs = {tuple(line["text"].split(" answers ")) for line in kept}
    left_out = {line["category"] for line in (*fit, *check)}
    assert kept
    assert left_out
    assert left_out.isdisjoint(model for model, _ in kept_pairs)
    asked = [{a for a, _ in pairs(part)} for part in (fit, check)]
    asked.append({question for _, question in kept_pairs})
    assert all(asked)
    assert not asked[0] & asked[1]
    assert not asked[0] & asked[2]
    assert not asked[1] & asked[2]


def test_what_is_left_out_is_the_share_that_is_said(parts):
    kept, fit, check = parts
    away = {model for model in WRITERS if hashed("m" + model) % MODELS == 0}
    parted = {asked: hashed("i" + asked) % INSTRUCTIONS for asked in ASKED}
    usual = [asked for asked in ASKED if parted[asked] > 1]
    assert len(kept) == (len(WRITERS) - len(away)) * len(usual)
    for lines, part in ((fit, 0), (check, 1)):
        per_model = sum(value == part for value in parted.values())
        assert {line["category"] for line in lines} == away
        assert len(lines) == len(away) * (per_model // 2)
        assert len(pairs(lines)) == 2 * len(lines)  # no question twice
        answers = {
            (line["category"], m["content"]) for line in lines for m in line["messages"][1::2]
        }
        assert all(answer.startswith(f"{model} answers ") for model, answer in answers)


def test_the_corpus_files_order_changes_nothing(corpus, parts):
    kept, *conversations = chat(corpus[::-1])
    assert conversations == list(parts[1:])
    assert sorted(line["text"] for line in kept) == sorted(line["text"] for line in parts[0])


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Write made-up files of a standard library, five blocks of lines each and a few lines over."""
    files = []
    for i in range(80):
        path = tmp_path / f"m{i}.py"
        path.write_text("".join(f"m{i} line {n}\n" for n in range(5 * LINES + 3)))
        files.append((path.name, path))
    for module in ("ngramkit.corpus.stdlib", "research.held_out"):
        monkeypatch.setattr(sys.modules[module], "stdlib_files", lambda: files)
    return files


def test_code_to_fit_and_check_on_is_in_no_datastore_and_apart(library):
    fit, check = ({line["id"].split(":")[0] for line in part} for part in code())
    documents = open_corpus("python-stdlib").documents()
    stored = {document.text.split()[0] + ".py" for document in documents}
    held = {name for name, _ in library if is_held_out(name)}
    assert fit
    assert check
    assert fit | check == held
    assert not fit & check
    assert not held & stored
    assert held | stored == {name for name, _ in library}


def test_code_is_forty_lines_after_the_forty_before(library):
    texts = {name: path.read_text() for name, path in library}
    for line in (*code()[0], *code()[1]):
        name, number = line["id"].split(":")
        lines = texts[name].splitlines(keepends=True)
        middle = int(number) - 1
        assert line["prompt"] == "".join(lines[middle - LINES : middle])
        assert line["output"] == "".join(lines[middle : middle + LINES])
    assert len(code()[0]) % 2 == 0  # two of each file; its rest is too short


def test_the_command_writes_what_replay_reads(library, tmp_path, monkeypatch, capsys):
    out = tmp_path / "held"
    monkeypatch.setattr(sys, "argv", ["held_out", "code", "--out", str(out)])
    held_out.main()
    said = capsys.readouterr().out
    for name, lines in zip(("fit", "check"), code(), strict=True):
        written = (out / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in written] == lines
        assert f"{name}.jsonl: {len(lines)} lines" in said
