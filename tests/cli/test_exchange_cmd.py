"""export, import, merge and prune as command lines: what they print, write and refuse."""

from __future__ import annotations

import json
import shutil

import pytest
from command_lines import run_here

from ngramkit.basics.terminal_text import size_text
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.opening import open_artifact_folder, verify_artifact


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for name, limit in (("", 5), ("2", 9)):
        corpus = open_corpus("python-stdlib", limit=limit)
        store = tokenize(corpus, "demo", folder / f"tokens{name}")
        build_datastore(store, folder / f"data{name}")
        build_frozen(store, folder / f"frozen{name}", followers=20)
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("source", "to", "suffix", "keys"),
    [
        ("data", "llama.cpp", ".bin", {"ngrams", "pairs", "bytes", "left_out"}),
        ("frozen", "llama.cpp", ".bin", {"ngrams", "pairs", "bytes", "left_out"}),
        ("data", "ik_llama.cpp", "-suffix.bin", {"documents", "tokens", "bytes", "left_out"}),
        ("data", "exllamav3", ".sam", {"documents", "tokens", "states", "edges", "bytes"}),
        ("data", "rest-idx", ".idx", {"bytes"}),
        ("data", "jsonl", ".jsonl", {"documents", "bytes"}),
        ("frozen", "parquet", ".parquet", {"rows", "bytes"}),
        ("frozen", "transformers", "-transformers", {"bytes"}),
    ],
)
def test_every_target_writes_beside_the_artifact(parts, source, to, suffix, keys):
    done = run_here(["export", str(parts / source), "--to", to, "--json"])
    assert done.code == 0, done.err
    path = parts / f"{source}{suffix}"
    assert done.json["artifact"] == str(path)
    assert done.json["private"] is False
    assert done.json.keys() - {"command", "artifact", "seconds", "source", "to", "private"} == keys
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) == done.json["bytes"]
    again = run_here(["export", str(parts / source), "--to", to])
    assert (again.code, "exists" in again.err) == (2, True)
    assert run_here(["export", str(parts / source), "--to", to, "--force"]).code == 0


@pytest.mark.parametrize("source", [".", "../data"])
def test_the_working_folder_may_be_the_artifact(parts, tmp_path, monkeypatch, source):
    shutil.copytree(parts / "data", tmp_path / "data")
    monkeypatch.chdir("data")
    exported = run_here(["export", source, "--to", "jsonl", "--json"])
    assert exported.code == 0, exported.err
    pruned = run_here(["prune", source, "--bytes", "1G"])
    assert pruned.code == 0, pruned.err
    assert {path.name for path in tmp_path.iterdir()} == {"data", "data.jsonl", "data-1G"}
    assert list(verify_artifact(tmp_path / "data"))


@pytest.mark.parametrize(
    "command",
    [
        "build-datastore --tokens {0}/data --out a",
        "merge {0}/tokens {0}/tokens2 --out a",
        "prune {0}/tokens --bytes 1M",
        "export {0}/frozen --to jsonl",
        "inspect {0}/tokens --query x",
        "history inspect {0}/data",
        "decode --drafter rest --datastore {0}/frozen --prompt x",
        "replay log.jsonl --drafter rest --datastore {0}/frozen",
    ],
)
def test_an_artifact_of_a_wrong_kind_is_a_usage_error(parts, tmp_path, command):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a", "output": "b"}\n')
    done = run_here(command.format(parts).split())
    assert done.code == 2, (done.code, done.err)


@pytest.mark.parametrize(("origin", "kind"), [("rest-idx", "datastore"), ("llama.cpp", "frozen")])
def test_what_was_exported_comes_back(parts, tmp_path, monkeypatch, origin, kind):
    monkeypatch.setenv("HOME", str(tmp_path))
    run_here(["export", str(parts / "data2"), "--to", origin, "--out", "mine.file"])
    done = run_here(["import", "~/mine.file", "--from", origin, "--json"])
    assert done.code == 0, done.err
    assert done.json["artifact"] == f"artifacts/mine-{kind}"
    assert list(verify_artifact(tmp_path / "artifacts" / f"mine-{kind}"))


@pytest.mark.parametrize("kind", ["data", "frozen"])
def test_two_artifacts_become_one(parts, tmp_path, kind):
    done = run_here(
        ["merge", str(parts / kind), str(parts / f"{kind}2"), "--out", "both", "--json"]
    )
    assert done.code == 0, done.err
    assert done.json["documents"] == 14
    assert ("exact only" in done.err) == (kind == "frozen")
    assert list(verify_artifact(tmp_path / "both"))
    shown = " ".join(run_here(["inspect", "both"]).out.split())
    assert "corpus 1 python-stdlib, " in shown
    assert "corpus 2 python-stdlib, " in shown
    assert "{" not in shown.partition("most frequent")[0]


@pytest.mark.parametrize(("kind", "size"), [("data", "36K"), ("frozen", "20K")])
def test_an_artifact_is_made_smaller(parts, kind, size):
    done = run_here(["prune", str(parts / kind), "--bytes", size])
    assert done.code == 0, done.err
    made, whole = (open_artifact_folder(parts / name).manifest for name in (f"{kind}-{size}", kind))
    assert made.bytes <= 1024 * int(size[:-1]) < whole.bytes
    assert f"{size_text(made.bytes)} of {size_text(whole.bytes)}" in done.out
    shown = run_here(["inspect", str(parts / f"{kind}-{size}")]).out
    assert f"of {whole.bytes}, by its own text" in shown


def test_recorded_answers_decide_what_is_kept(parts, tmp_path):
    answer = {"prompt": "import os\n", "output": "def main(argv):\n    return os.getcwd()\n"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    line = ["prune", str(parts / "data"), "--bytes", "60K", "--out", "p", "--json"]
    assert run_here([*line, "--answers", "answers.jsonl"]).code == 0
    made = open_artifact_folder(tmp_path / "p").manifest.corpus["pruned"]
    assert len(made["answers"]) == 64


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("export", "--to llama.cpp --min-count 99999", "Lower --min-count"),
        ("prune", "--bytes 9", "to 9 B"),
    ],
)
def test_what_is_found_out_by_counting_leaves_nothing(parts, tmp_path, command, options, said):
    done = run_here([command, str(parts / "data"), *options.split(), "--out", "x"])
    assert (done.code, said in done.err) == (2, True), done.err
    assert not list(tmp_path.iterdir())
