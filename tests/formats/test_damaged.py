"""Damaged, foreign and dangerous artifacts are refused in one clear line; golden ones never change.

`python tests/formats/test_damaged.py` writes tests/golden anew: only for a new format version.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from attacks.crafted import sign

from ngramkit.basics.errors import ArtifactError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.formats.card import artifact_card
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.opening import CLASS_OF_KIND, verify_artifact
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = ["tokens", "datastore", "frozen-table"]


def build_golden(out: Path) -> None:
    """One few-byte artifact per kind, of the documents [1 2 3 1 2 3 1 2 4] and []."""
    import numpy as np

    with ArtifactWriter(out / "tokens", "tokens", {"golden": 1}) as writer:
        tokens = np.array([1, 2, 3, 1, 2, 3, 1, 2, 4], np.uint16)
        documents = np.array([0, 9, 9], np.uint64)
        writer.write("shard-00000.safetensors", {"tokens": tokens, "documents": documents})
        record = TokenizerRecord("golden", 5, "0" * 64, 4)
        counts = {"documents": 2, "tokens": 9}
        writer.commit(record, parameters={}, corpus={"id": "golden"}, counts=counts)
    store = TokenStore.open(out / "tokens")
    build_datastore(store, out / "datastore", shard_tokens=16)
    build_frozen(store, out / "frozen-table", follower_len=2)


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Without the card, which is for people and may say more in a later release."""
    files = (path for path in sorted(folder.iterdir()) if path.name != "README.md")
    return {path.name: path.read_bytes() for path in files}


def test_every_kind_has_golden_bytes():
    assert {folder.name for folder in GOLDEN.iterdir()} == CLASS_OF_KIND.keys() - {"history"}


@pytest.mark.parametrize("kind", KINDS)
def test_golden_bytes_never_change(tmp_path, kind):
    build_golden(tmp_path)
    assert bytes_of(tmp_path / kind) == bytes_of(GOLDEN / kind)


@pytest.fixture(params=KINDS)
def artifact(request, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "artifact"))


def data(artifact: Path) -> Path:
    return next(artifact.glob("*.safetensors"))


def breach(artifact: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        list(verify_artifact(artifact))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_one_passes(artifact):
    assert len(list(verify_artifact(artifact))) > 3


def test_truncated(artifact):
    file = data(artifact)
    file.write_bytes(file.read_bytes()[:-1])
    assert "the manifest lists" in breach(artifact)


def test_every_flipped_bit_is_found(artifact):
    file = data(artifact)
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert "checksum" in breach(artifact)


def test_every_flipped_bit_of_a_manifest_or_a_card_is_found(artifact):
    (artifact / "README.md").write_text(artifact_card(read_manifest(artifact)))
    for name in ("manifest.json", "README.md"):
        whole = (artifact / name).read_bytes()
        for at in range(0, len(whole), 5):
            flipped = bytes([whole[at] ^ 1 << at % 8])
            (artifact / name).write_bytes(whole[:at] + flipped + whole[at + 1 :])
            named = whole.find(b"USER/NAME")  # where a card is published is its owner's to say
            if name == "README.md" and named <= at < named + len(b"USER/NAME"):
                continue
            if name == "README.md" or not same_json(artifact / name, whole):
                breach(artifact)
        (artifact / name).write_bytes(whole)
    assert list(verify_artifact(artifact))[-1] == "card"


def same_json(path: Path, whole: bytes) -> bool:
    """A blank more or less between values is no damage."""
    try:
        return bool(json.loads(path.read_bytes()) == json.loads(whole))
    except ValueError:
        return False


def test_a_missing_file(artifact):
    data(artifact).unlink()
    assert "missing" in breach(artifact)


def test_an_unknown_kind(artifact):
    sign(artifact, lambda body: body.update(kind="novel"))
    assert "unknown kind" in breach(artifact)


def test_counts_that_are_not_true(artifact):
    manifest = artifact / "manifest.json"
    body = json.loads(manifest.read_text())
    name = "leaders" if body["kind"] == "frozen-table" else "tokens"
    sign(artifact, lambda body: body["counts"].update({name: body["counts"][name] + 1}))
    assert "it holds" in breach(artifact)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        build_golden(Path(scratch))
        ignored = shutil.ignore_patterns("README.md")
        shutil.copytree(scratch, GOLDEN, ignore=ignored, dirs_exist_ok=True)
