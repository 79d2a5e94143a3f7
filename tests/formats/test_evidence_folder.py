"""Recorded evidence on disk: what was added comes back, and what is no evidence is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ngramkit.basics.errors import ArtifactError, NgramkitError, UsageError
from ngramkit.formats.evidence import KEPT_TOKENS, NAME, About, EvidenceFolder, RecordedRequest
from ngramkit.formats.safetensors import open_arrays, write_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord("words", 40, "0" * 64, 0)
PLAN = {"model": "m", "max_new_tokens": 8}


def told(question="a", rows=4, seed=0):
    random = np.random.default_rng(seed)
    prompt = random.integers(0, 40, 3).astype(np.int32)
    parents = np.arange(-1, rows - 1, dtype=np.int32)
    tokens = random.integers(0, 40, rows).astype(np.int32)
    tokens[:1] = prompt[-1]
    ids = random.integers(0, 40, (rows, KEPT_TOKENS)).astype(np.int32)
    log_probs = np.log(random.random((rows, KEPT_TOKENS))).astype(np.float32)
    ids[:, 12:], log_probs[:, 12:] = -1, -np.inf
    answer = tokens[1:]
    return RecordedRequest(
        About(question, "c", 0, "blend", 8), prompt, answer, tokens, parents, ids, log_probs
    )


def folder(path, *batches):
    made = EvidenceFolder.at(path, PLAN, RECORD)
    for batch in batches:
        made.add(batch)
    return EvidenceFolder.open(path)


def test_what_was_added_comes_back_in_order(tmp_path):
    batches = [[told("a"), told("b", rows=0)], [], [told("c", seed=3)]]
    found = list(folder(tmp_path / "e", *batches).requests())
    expected = [each for batch in batches for each in batch]
    assert [each.about for each in found] == [each.about for each in expected]
    for one, other in zip(found, expected, strict=True):
        for name in ("prompt", "answer", "tokens", "parents", "top_ids", "top_log_probs"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert sorted(p.name for p in (tmp_path / "e").iterdir()) == [
        "000001.safetensors", "000002.safetensors", NAME
    ]  # fmt: skip


def test_a_folder_is_of_one_plan_and_one_tokenizer(tmp_path):
    folder(tmp_path / "e", [told()])
    with pytest.raises(UsageError, match="recorded with model='m', not 'n'"):
        EvidenceFolder.at(tmp_path / "e", {**PLAN, "model": "n"}, RECORD)
    with pytest.raises(ArtifactError, match="tokenizer"):
        EvidenceFolder.at(tmp_path / "e", PLAN, replace(RECORD, fingerprint="1" * 64))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="evidence"):
        EvidenceFolder.at(tmp_path / "mine", PLAN, RECORD)
    with pytest.raises(ArtifactError, match="no recorded evidence"):
        EvidenceFolder.open(tmp_path / "mine")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "other"}, "not recorded evidence"),
        ({"version": 2}, "Upgrade|reads 1 to 1"),
        ({"plan": 7}, "other keys"),
        ({"tokenizer": {"id": 3}}, "tokenizer"),
        ({"more": 1}, "other keys"),
    ],
)
def test_a_changed_description_is_refused(tmp_path, change, why):
    folder(tmp_path / "e")
    path = tmp_path / "e" / NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ArtifactError, match=why):
        EvidenceFolder.open(tmp_path / "e")


def broken(array, at, value):
    array = array.copy()
    array[at] = value
    return array


BREACHES = {
    "about": [(lambda a: a[:-1], "not JSON"), (lambda a: a[:0], "not JSON")],
    "prompts": [(lambda a: broken(a, 0, -1), "below 0"), (lambda a: a[:-1], "do not rise")],
    "prompt_ends": [
        (lambda a: a[:-1], "another length"),
        (lambda a: broken(a, 0, 7), "do not rise"),
        (lambda a: broken(a, 0, 0), "prompt is empty"),
        (lambda a: broken(a, 0, 2), "first row is not the prompt's"),
    ],
    "answers": [(lambda a: broken(a, 0, -7), "below 0")],
    "answer_ends": [(lambda a: broken(a, -1, 99), "do not rise")],
    "row_ends": [(lambda a: broken(a, 0, -1), "do not rise")],
    "tokens": [(lambda a: broken(a, 0, a[0] + 1), "first row is not the prompt's")],
    "parents": [
        (lambda a: broken(a, 0, 0), "not an earlier"),
        (lambda a: broken(a, 2, 2), "not an earlier"),
        (lambda a: broken(a, 5, 1), "not an earlier"),  # another request's row
        (lambda a: a[:-1], "another length"),
    ],
    "top_ids": [
        (lambda a: broken(a, (0, 0), -2), "below -1"),
        (lambda a: np.ascontiguousarray(a[:, :8]), "have not 16 columns"),
        (lambda a: a.astype(np.int64), "no 'top_ids'"),
    ],
    "top_log_probs": [
        (lambda a: broken(a, (1, 1), np.nan), "not the logarithm"),
        (lambda a: broken(a, (1, 1), 0.5), "not the logarithm"),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [(name, *breach) for name, breaches in BREACHES.items() for breach in breaches],
)
def test_a_batch_that_breaks_a_rule_is_refused(tmp_path, name, change, why):
    found = folder(tmp_path / "e", [told("a"), told("b", seed=1)])
    path = tmp_path / "e" / "000001.safetensors"
    arrays = {key: np.array(value) for key, value in open_arrays(path).items()}
    arrays[name] = change(arrays[name])
    write_arrays(path, arrays)
    with pytest.raises(ArtifactError, match=why):
        list(found.requests())


def test_siblings_that_hold_one_token_are_refused(tmp_path):
    twice = told(rows=3)
    twin = replace(
        twice,
        tokens=twice.tokens[[0, 1, 1]],
        parents=np.array([-1, 0, 0], np.int32),
    )
    with pytest.raises(ArtifactError, match="two siblings"):
        list(folder(tmp_path / "e", [twin]).requests())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_is_more_than_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "e"
    found = folder(path, [told("a"), told("b", seed=1)])
    batch = path / "000001.safetensors"
    raw = bytearray(batch.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    batch.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        for each in found.requests():
            assert np.all(each.parents < np.arange(len(each.parents)))
            assert each.tokens.min(initial=0) >= 0
    except NgramkitError:
        pass
