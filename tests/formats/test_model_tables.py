"""model-bigram and model-unigram: golden artifacts of version 1, and every breach is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.opening import open_artifact_folder, verify_artifact
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord

GOLDEN = Path(__file__).parents[1] / "golden"
RECORD = TokenizerRecord("made-up", 3, "f3", 2)
BIGRAM = {
    "next_tokens": np.array([[1, 2], [2, 0], [0, 1]], np.uint16),
    "log_probs": np.array([[-0.5, -1.0], [-0.25, -2.0], [-0.75, -0.75]], np.float16),
    "extended": np.array(
        [[[1, 2, 0], [2, 0, 1]], [[2, 0, 1], [0, 1, 2]], [[0, 1, 2], [1, 2, 0]]], np.uint16
    ),
}
UNIGRAM = {
    "tokens": np.array([2, 0], np.uint16),
    "scores": np.array([-0.5, -1.5], np.float32),
}


def write(path, kind, arrays, parameters, counts):
    with ArtifactWriter(path, kind, {"made": "up"}) as writer:
        writer.write("table.safetensors", arrays)
        writer.commit(RECORD, parameters=parameters, corpus={}, counts=counts)
    return path


def write_bigram(path, extend="bigram", **changes):
    parameters = {"k": 2, "width": 3, "prefix": "none", "extend": extend}
    return write(path, "model-bigram", {**BIGRAM, **changes}, parameters, {"rows": 3, "drafts": 6})


def write_unigram(path, **changes):
    arrays = {**UNIGRAM, **changes}
    return write(path, "model-unigram", arrays, {"k": 2, "rule": "distance"}, {"rows": 2})


@pytest.mark.parametrize(
    ("name", "kind", "arrays"),
    [("model-bigram", ModelBigram, BIGRAM), ("model-unigram", ModelUnigram, UNIGRAM)],
)
def test_golden_artifacts_are_read(name, kind, arrays):
    artifact = open_artifact_folder(GOLDEN / name)
    assert isinstance(artifact, kind)
    assert list(verify_artifact(GOLDEN / name))
    for array, values in arrays.items():
        assert artifact.table[array].dtype == values.dtype
        assert np.array_equal(artifact.table[array], values)


@pytest.mark.parametrize(
    ("name", "written"), [("model-bigram", write_bigram), ("model-unigram", write_unigram)]
)
def test_golden_bytes(name, written, tmp_path):
    path = written(tmp_path / "t") / "table.safetensors"
    assert path.read_bytes() == (GOLDEN / name / "table.safetensors").read_bytes()


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


BREACHES = [
    ({"next_tokens": changed(BIGRAM["next_tokens"], (0, 0), 3)}, "id 3 is outside"),
    ({"extended": changed(BIGRAM["extended"], (0, 0, 1), 9)}, "id 9 is outside"),
    ({"next_tokens": changed(BIGRAM["next_tokens"], (0, 1), 1)}, "a row holds a token twice"),
    ({"log_probs": changed(BIGRAM["log_probs"], (0, 1), -0.25)}, "not best first"),
    ({"log_probs": changed(BIGRAM["log_probs"], (0, 0), 0.5)}, "above one"),
    ({"log_probs": changed(BIGRAM["log_probs"], (0, 1), np.nan)}, "not finite"),
    ({"log_probs": BIGRAM["log_probs"] / 4}, "more than one"),
    ({"extended": changed(BIGRAM["extended"], (1, 0, 0), 1)}, "does not begin with"),
    ({"extended": changed(BIGRAM["extended"], (1, 0, 2), 2)}, "the likeliest"),
    ({"extended": BIGRAM["extended"][:, :, :2]}, "extended is"),
    ({"next_tokens": BIGRAM["next_tokens"].astype(np.uint32)}, "ids are not"),
    ({"log_probs": BIGRAM["log_probs"].astype(np.float32)}, "no 'log_probs' of float16"),
]


@pytest.mark.parametrize(("changes", "says"), BREACHES)
def test_breaches_of_a_bigram_table(changes, says, tmp_path):
    table = ModelBigram.open(write_bigram(tmp_path / "t", **changes))
    with pytest.raises(ArtifactError, match=says):
        list(verify_checksums_and_values(table))


def test_a_models_own_drafts_may_leave_the_likeliest_tokens(tmp_path):
    extended = changed(BIGRAM["extended"], (1, 0, 2), 2)
    assert list(
        verify_checksums_and_values(
            ModelBigram.open(write_bigram(tmp_path / "t", "model", extended=extended))
        )
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokens": np.array([2, 3], np.uint16)}, "id 3 is outside"),
        ({"tokens": np.array([2, 2], np.uint16)}, "twice"),
        ({"scores": np.array([-1.5, -0.5], np.float32)}, "not best first"),
        ({"scores": np.array([-1.5, -1.5], np.float32)}, "not best first"),  # a tie, 2 before 0
        ({"scores": np.array([-0.5, np.inf], np.float32)}, "not finite"),
        ({"scores": np.array([-0.1, -0.2], np.float32)}, "more than one"),
        ({"scores": np.array([-0.5], np.float32)}, "wrong number of scores"),
        ({"tokens": np.array([2, 0], np.uint32)}, "ids are not uint16"),
        ({"tokens": np.empty(0, np.uint16), "scores": np.empty(0, np.float32)}, "no token"),
        ({"tokens": np.array([2], np.uint16), "scores": np.float32([-1])}, "holds 1 tokens"),
    ],
)
def test_breaches_of_a_unigram_table(changes, says, tmp_path):
    table = ModelUnigram.open(write_unigram(tmp_path / "t", **changes))
    with pytest.raises(ArtifactError, match=says):
        list(verify_checksums_and_values(table))
