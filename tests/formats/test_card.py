"""The card: a header that YAML reads, a command that builds the same again, licences."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
import yaml
from command_lines import run_here

from ngramkit.basics.errors import ArtifactError
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge
from ngramkit.formats.build_command import build_command
from ngramkit.formats.card import artifact_card, card_pattern, model_name
from ngramkit.formats.manifest import Manifest, read_manifest
from ngramkit.formats.opening import verify_artifact
from ngramkit.formats.safetensors import FileRecord
from ngramkit.formats.tokenizer_record import TokenizerRecord

VICUNA = TokenizerRecord("vicuna-7b", 32000, "ab" * 32, 2)
FILES = {"table.safetensors": FileRecord(12345, "00" * 32)}
STACK = {
    "id": "the-stack", "dataset": "bigcode/the-stack-dedup", "revision": "c" * 40,
    "split": "train", "data_dir": "data/python", "column": "content", "dataset_license": ["other"],
    "limit": 500, "licenses_kept": ["apache-2.0", "mit"], "excluded": "ef" * 32,
    "licenses": {"MIT": 400, "Apache-2.0": 100},
}  # fmt: skip


def manifest(**changed):
    facts = {
        "kind": "datastore", "build": "0" * 64, "tokenizer": VICUNA, "corpus": STACK,
        "parameters": {"shard_tokens": 1000}, "counts": {"documents": 500, "tokens": 9000},
        "files": FILES,
    }  # fmt: skip
    return Manifest(**{**facts, **changed})


def header(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_the_header():
    found = header(artifact_card(manifest()))
    assert found["tags"] == ["ngramkit", "datastore"]
    assert found["license"] == ["other"]
    assert found["size_categories"] == ["n<1K"]
    assert found["base_model"] == "lmsys/vicuna-7b-v1.5"
    assert found["source_datasets"] == ["bigcode/the-stack-dedup"]
    assert found["ngramkit"] == {
        "version": 1, "kind": "datastore", "tokenizer": "lmsys/vicuna-7b-v1.5",
        "vocabulary": 32000, "fingerprint": "ab" * 32, "bytes": 12345,
    }  # fmt: skip


def test_a_folder_is_no_base_model():
    local = TokenizerRecord("/home/me/model: new", 32000, "ab" * 32)
    assert "base_model" not in header(artifact_card(manifest(tokenizer=local)))


def test_a_model_is_named_and_not_where_it_lay():
    """But in the line that builds the same again, where it is still there."""
    local = TokenizerRecord("/home/me/My-2.5/", 32000, "ab" * 32)
    text, _, build = artifact_card(manifest(tokenizer=local)).partition("## How it was built")
    assert "the-stack: datastore for My-2.5" in text
    assert "--model My-2.5 --prompt" in text
    assert header(text)["ngramkit"]["tokenizer"] == "My-2.5"
    assert "/home/me" not in text
    assert "--model /home/me/My-2.5/" in build


def test_another_models_card_is_not_the_artifacts(token_store, tmp_path):
    local = TokenizerRecord("/home/me/My-2.5/", 9, "ab" * 32)
    made = build_frozen(token_store([[1, 2, 3, 1, 2]], record=local), tmp_path / "f", leader_len=1)
    assert "card" in list(verify_artifact(made.path))
    readme = made.path / "README.md"
    readme.write_text(readme.read_text().replace("My-2.5", "Your-2.5"))
    with pytest.raises(ArtifactError, match="not the card of this manifest"):
        list(verify_artifact(made.path))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("models/a/b.Q4.gguf", "b.Q4"),
        ("b.gguf", "b"),
        ("~/", "a local model"),
        ("hf:me/gguf:b.gguf", "hf:me/gguf:b.gguf"),
        ("me/model", "me/model"),
        ("demo", "demo"),
        ("C:\\models\\mine\\", "mine"),
    ],
)
def test_what_models_are_called(model, name):
    assert model_name(model) == name


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        (
            {},
            f"ngramkit build-datastore --corpus the-stack --revision {'c' * 40} --split train "
            "--limit 500 --language python --licenses apache-2.0,mit --exclude FILE "
            "--model vicuna-7b --shard-tokens 1000",
        ),
        (
            {"kind": "tokens", "parameters": {"eos": False, "shard_tokens": 1},
             "corpus": {"id": "a b/*.txt", "files": 2, "sha256": "x", "column": "text"}},
            "ngramkit tokenize --corpus 'a b/*.txt' --column text --model vicuna-7b --no-eos",
        ),
        (
            {"kind": "tokens", "parameters": {"eos": True},
             "corpus": {"id": "acme/x", "dataset": "acme/x", "config": "en", "column": "body",
                        "join_turns": True}},
            "ngramkit tokenize --corpus hf:acme/x:en --column body --join-turns --model vicuna-7b",
        ),
        (
            {"kind": "model-bigram", "corpus": {},
             "parameters": {"model": "me/m", "revision": None, "dtype": "float32", "k": 9}},
            "ngramkit model-bigram me/m --dtype float32 --k 9",
        ),
        (
            {"kind": "frozen-table", "corpus": {"id": "x.bin", "format": "llama.cpp"}},
            "ngramkit import x.bin --from llama.cpp --model vicuna-7b",
        ),
        (
            {"kind": "frozen-table", "parameters": {"leader_len": 1},
             "corpus": {"id": "projects", "format": "sessions", "files": 1, "private": True}},
            "ngramkit build-frozen --corpus projects --private --model vicuna-7b --leader-len 1",
        ),
        ({"parameters": {"merged": 2}}, ""),
        (
            {"kind": "tokens", "parameters": {}, "corpus": {"id": "x", "mixed": None}},
            "ngramkit tokenize --corpus x --model vicuna-7b",
        ),
    ],
)  # fmt: skip
def test_the_command_that_built_it(changed, command):
    assert build_command(manifest(**changed)) == command


@pytest.mark.parametrize(
    "command",
    [
        "build-datastore --shard-tokens 5000",
        "build-frozen --leaders 50 --leader-len 2",
        "tokenize",
        "build-datastore --no-eos",
        "build-frozen --no-eos",
        "tokenize --no-eos",
    ],
)
def test_the_command_builds_the_same_again(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "--corpus", "python-stdlib", "--limit", "9"]
    words = [*words, "--out", "first"]
    assert run_here(words).code == 0
    first = read_manifest(tmp_path / "first")
    pasted = (tmp_path / "first" / "README.md").read_text().split("```sh\nngramkit ")
    line = next(part for part in pasted[1:] if part.startswith(command.split()[0]))
    words = shlex.split(line.split("\n")[0])
    done = run_here([*words, "--out", "second"])
    assert done.code == 0, done.err
    assert read_manifest(tmp_path / "second") == first


def test_licences_and_opt_outs():
    text = artifact_card(manifest())
    assert "The source dataset's licence: other." in text
    assert "Only documents under apache-2.0, mit were kept." in text
    assert f"`{'ef' * 32}`" in text
    assert "| MIT | 400 |\n| Apache-2.0 | 100 |" in text
    assert "Licences" not in artifact_card(manifest(kind="model-bigram", corpus={}))


def test_the_licences_of_a_mixture():
    named = [{"id": "a", "dataset_license": "mit"}, {"id": "b", "dataset_license": ["x", "y"]}]
    mixture = {"id": "a + b + c", "mixed": [*named, {"id": "c"}]}
    text = artifact_card(manifest(kind="frozen-table", corpus=mixture))
    assert "licences: mit (a), x, y (b), none named (c).\n" in text
    assert "license" not in header(text)
    assert "names no licence" not in text
    alike = {**mixture, "mixed": [named[0], {**named[0], "id": "b"}]}
    assert "The source dataset's licence: mit.\n" in artifact_card(manifest(corpus=alike))


def test_a_card_of_0_2_0_of_a_mixture_of_licences_is_valid():
    parts = [{"id": "a", "dataset_license": "mit"}, {"id": "b", "dataset_license": "gpl"}]
    mixture = manifest(kind="frozen-table", corpus={"id": "a + b", "mixed": parts})
    older = artifact_card(mixture).replace(
        "The source datasets' licences: mit (a), gpl (b).", "The source names no licence."
    )
    assert "names no licence" in older
    for card in (older, artifact_card(mixture)):
        assert card_pattern(mixture).fullmatch(card.rstrip("\n"))


def test_the_licence_of_a_merge(token_store, tmp_path):
    facts = {"dataset": "acme/texts", "dataset_license": "mit"}
    stores = (token_store([[n, 1, 2, 3]], 6, corpus=facts) for n in range(2))
    parts = [build_frozen(store, tmp_path / str(n)) for n, store in enumerate(stores)]
    merged = merge(parts, tmp_path / "merged")
    text = (merged.path / "README.md").read_text()
    assert (header(text)["license"], header(text)["source_datasets"]) == ("mit", ["acme/texts"])
    assert "The source dataset's licence: mit." in text
    assert "card" in list(verify_artifact(merged.path))
    corpus = {**merged.manifest.corpus, "merged": None}  # as cards of 0.2.0
    (merged.path / "README.md").write_text(artifact_card(replace(merged.manifest, corpus=corpus)))
    assert "card" in list(verify_artifact(merged.path))
    (merged.path / "README.md").write_text(text.replace("mit", "gpl"))
    with pytest.raises(ArtifactError, match="it is not the card"):
        list(verify_artifact(merged.path))


def test_entries_keep_spaces_and_table_borders():
    text = artifact_card(manifest(), [(" a|b", ["\n", "`x", "a``b`"], 1234)])
    assert "| ` a\\|b` | 1,234 | `\\n` `` `x `` ``` a``b` ``` |" in text


def test_a_count_and_its_bound_are_two_rows():
    text = artifact_card(manifest(counts={"leaders": 34}, parameters={"leaders": 100}))
    assert "| leaders | 34 |" in text
    assert "| leaders, at most | 100 |" in text


FORGED = (
    "good\n\n# Forged\n\n| trusted | yes |\n|---|---|\n\n```\n---\nlicense: mit\n---\n"
    "<img src=x onerror=alert(1)>![i](http://x/i.png)[click](http://x)`code` "
    "www.x.com http://x.com \x1b[2J\u2028\u202e\x85\ud800 **loud** @someone &lt; $x$"
)


def elements(text):
    """What a reader of the card sees, as markdown-it parses it: every kind of element."""
    from markdown_it import MarkdownIt

    body = text.split("---\n", 2)[2]
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(body)
    return [t for token in tokens for t in (token, *(token.children or []))]


def counted(text):
    kinds = {"heading_open", "table_open", "tr_open", "fence", "link_open", "image", "html_inline",
             "html_block", "strong_open", "em_open", "hr", "code_block", "s_open"}  # fmt: skip
    found = [token.type for token in elements(text)]
    return {kind: found.count(kind) for kind in kinds}


@pytest.mark.parametrize("kind", ["datastore", "model-bigram", "tokens"])
def test_a_name_that_holds_a_card_of_its_own_forges_nothing(kind):
    def made(name, revision):
        corpus = {
            **STACK, "id": name, "revision": revision, "dataset": name, "dataset_license": [name],
            "licenses_kept": [name], "licenses": {name: 5, "MIT": 1}, "excluded": name,
        }  # fmt: skip
        return manifest(
            kind=kind, corpus=corpus, tokenizer=TokenizerRecord(name, 9, name),
            parameters={"model": name, name: name}, counts={"documents": 5, name + "s": 7},
        )  # fmt: skip

    entries = [("x", ["y"], 3)]
    honest, forged = (
        artifact_card(made("good", "r"), entries),
        artifact_card(made(FORGED, FORGED), entries),
    )
    expected = counted(honest)
    expected["fence"] = 0  # commands that cannot be pasted are not shown
    expected["heading_open"] -= counted(honest)["fence"]
    assert counted(forged) == expected
    found = header(forged)
    assert set(found) == set(header(honest)) - {"base_model", "source_datasets"}
    assert found["license"] == [FORGED]
    assert found["ngramkit"]["tokenizer"] == FORGED
    assert forged.encode()
    assert all(c.isprintable() for line in forged.split("\n") for c in line)


def test_an_entry_of_the_table_stays_in_its_cell():
    text = artifact_card(manifest(), [(FORGED, [FORGED, "|", "`"], 3)])
    plain = artifact_card(manifest(), [("a", ["b", "c", "d"], 3)])
    assert counted(text) == counted(plain)


def test_a_fence_is_longer_than_what_it_holds():
    text = artifact_card(manifest(tokenizer=TokenizerRecord("a```b", 9, "f")))
    assert counted(text)["fence"] == counted(artifact_card(manifest()))["fence"]
    (use,) = [t.content for t in elements(text) if t.type == "fence" and "decode" in t.content]
    assert "--model 'a```b'" in use


def test_the_hub_client_reads_the_header():
    from huggingface_hub import DatasetCard

    text = artifact_card(manifest())
    data = DatasetCard(text).data
    assert data.pretty_name == "the-stack: datastore for vicuna-7b"
    assert data.license == ["other"]
    assert data.to_dict()["ngramkit"]["fingerprint"] == "ab" * 32
    assert data.to_dict().keys() == header(text).keys()
