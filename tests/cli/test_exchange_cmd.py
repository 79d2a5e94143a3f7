"""export, import, merge and prune as command lines: what they print, write and refuse."""

from __future__ import annotations

import json

import pytest
from command_lines import run_here

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.opening import open_folder, verify_artifact


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
    assert done.json.keys() - {"command", "artifact", "seconds", "source", "to"} == keys
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) == done.json["bytes"]
    again = run_here(["export", str(parts / source), "--to", to])
    assert (again.code, "exists" in again.err) == (2, True)
    assert run_here(["export", str(parts / source), "--to", to, "--force"]).code == 0


@pytest.mark.parametrize(("origin", "kind"), [("rest-idx", "datastore"), ("llama.cpp", "frozen")])
def test_what_was_exported_comes_back(parts, tmp_path, origin, kind):
    run_here(["export", str(parts / "data2"), "--to", origin, "--out", "mine.file"])
    done = run_here(["import", "mine.file", "--from", origin, "--json"])
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


@pytest.mark.parametrize(("kind", "size"), [("data", "36K"), ("frozen", "20K")])
def test_an_artifact_is_made_smaller(parts, kind, size):
    done = run_here(["prune", str(parts / kind), "--bytes", size, "--json"])
    assert done.code == 0, done.err
    assert done.json["artifact"] == str(parts / f"{kind}-{size}")
    assert done.json["bytes"] <= 1024 * int(size[:-1]) < done.json["from_bytes"]
    assert f"{done.json['bytes']:,} bytes of {done.json['from_bytes']:,}" in done.err


def test_recorded_answers_decide_what_is_kept(parts, tmp_path):
    answer = {"prompt": "import os\n", "output": "def main(argv):\n    return os.getcwd()\n"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    line = ["prune", str(parts / "data"), "--bytes", "60K", "--out", "p", "--json"]
    assert run_here([*line, "--answers", "answers.jsonl"]).code == 0
    made = open_folder(tmp_path / "p").manifest.corpus["pruned"]
    assert len(made["answers"]) == 64


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("export {parts}/frozen --to rest-idx", 2, "holds no documents"),
        ("export {parts}/data --to parquet", 2, "no rows"),
        ("export {parts}/tokens --to llama.cpp", 2, "no n-grams"),
        ("export {parts}/data --to llama.cpp --u32", 2, "--u32 means nothing"),
        ("export {parts}/data --to rest-idx --dynamic", 2, "--dynamic means nothing"),
        ("export {parts}/data --to jsonl --max-ngrams 3", 2, "--max-ngrams means nothing"),
        ("export {parts}/data --to llama.cpp --min-count 0", 2, "--min-count"),
        ("export {parts}/data --to llama.cpp --min-count 99999", 2, "lower --min-count"),
        ("export {parts}/none --to llama.cpp", 3, "there is no artifact"),
        ("import {parts}/none --from llama.cpp", 3, "cannot be read"),
        ("import {parts}/none --from rest-idx", 3, "cannot be read"),
        ("import {parts}/data --from rest-idx --order 2", 2, "--order means nothing"),
        ("prune {parts}/data --bytes 9", 2, "fits into 9 B"),
        ("prune {parts}/data --bytes some", 2, "not a size"),
        ("prune {parts}/tokens --bytes 1M", 2, "cannot be pruned"),
        ("prune {parts}/none --bytes 1M", 3, "there is no artifact"),
        ("prune {parts}/data --bytes 20K --questions q", 2, "--questions need --answers"),
        ("prune {parts}/data --bytes 20K --answers none", 3, "none"),
        ("merge {parts}/data --out x", 2, "only one"),
        ("merge {parts}/data {parts}/frozen --out x", 2, "one kind"),
        ("merge {parts}/data {parts}/data --out x", 2, "twice"),
    ],
)
def test_refusals(parts, tmp_path, line, code, said):
    words = line.format(parts=parts).split()
    if words[0] != "merge":
        words += ["--out", "x"]
    done = run_here(words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert not list(tmp_path.iterdir())
