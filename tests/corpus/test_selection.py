"""The selection depends on each document alone, never on the order of work."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.document import Corpus, DocumentSource, Row
from ngramkit.corpus.selection import OPTED_OUT, UNLICENSED, Selection, read_exclusions


@dataclass(frozen=True)
class Made(DocumentSource):
    """A source of made-up rows; a row has `sizes[part][row]` texts."""

    sizes: list[list[int]]
    id: str = "made-up"

    @property
    def parts(self) -> int:
        return len(self.sizes)

    def record(self) -> dict[str, Any]:
        return {}

    def rows(self, part: int):
        for row, texts in enumerate(self.sizes[part]):
            licenses = (["mit", "gpl"][row % 2],)
            yield Row([f"{part}.{row}.{text}" for text in range(texts)], licenses, f"a/{row % 3}")


SIZES = st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=4)


@given(SIZES, st.sampled_from([1.0, 0.5]), st.none() | st.integers(1, 8))
def test_reading_resumes_anywhere(sizes, sample, limit):
    corpus = Corpus(Made(sizes), Selection(sample=sample, seed=3, limit=limit))
    whole = list(corpus.documents())
    for n, document in enumerate(whole, 1):
        assert document.end.kept == n
        assert list(corpus.documents(document.end)) == whole[n:]


@given(SIZES, st.none() | st.integers(1, 4))
def test_resumed_reading_counts_all_that_is_left_out(sizes, limit):
    filters = {"licenses": frozenset({"mit"}), "excluded": frozenset({"a/2"})}
    corpus = Corpus(Made(sizes), Selection(limit=limit, **filters))
    whole = list(corpus.documents())
    counts = corpus.skipped.counts
    for document in whole:
        list(corpus.documents(document.end))
        assert corpus.skipped.counts == counts
    if limit is None:
        assert sum(counts) + len(whole) == sum(map(sum, sizes))


@given(SIZES, st.integers(0, 5))
def test_a_sample_does_not_depend_on_parts(sizes, seed):
    flat = [[n for part in sizes for n in part]]
    select = Selection(sample=0.3, seed=seed)
    parted = [d.end.number - 1 for d in Corpus(Made(sizes), select).documents()]
    assert parted == [d.end.number - 1 for d in Corpus(Made(flat), select).documents()]
    assert parted == [n for n in range(sum(map(sum, sizes))) if select.samples(n)]


def test_a_sample_has_its_size_and_seeds_differ():
    kept = [{n for n in range(20_000) if Selection(sample=0.01, seed=s).samples(n)} for s in (0, 1)]
    assert all(150 < len(one) < 250 for one in kept)
    assert len(kept[0] & kept[1]) < 20


def test_every_licence_must_be_listed():
    select = Selection(licenses=frozenset({"mit", "apache-2.0"}))
    assert select.why_left_out("", ["MIT"], "") is None
    assert select.why_left_out("", ["MIT", "Apache-2.0"], "") is None
    assert select.why_left_out("", ["MIT", "GPL-3.0"], "") == UNLICENSED
    assert select.why_left_out("", [], "") == UNLICENSED


def test_opt_outs_by_repository_and_by_digest(tmp_path):
    digest = hashlib.sha256("ä text".encode()).hexdigest()
    path = tmp_path / "opt-outs.txt"
    listed = f"Owner/Project\n\n{digest.upper()}  # a file\n"
    path.write_text(listed, encoding="utf-8-sig")
    select = Selection(excluded=read_exclusions(path))
    assert select.why_left_out("x", (), "owner/project") == OPTED_OUT
    assert select.why_left_out("ä text", (), "other/project") == OPTED_OUT
    assert select.why_left_out("x", (), "other/project") is None
    assert Selection(excluded=frozenset({"a/b"})).record() != select.record()


def test_an_invalid_line_of_exclusions(tmp_path):
    path = tmp_path / "opt-outs.txt"
    path.write_text("owner/project\nnonsense\n")
    with pytest.raises(InputError, match=r"line 2.*nonsense"):
        read_exclusions(path)
    with pytest.raises(InputError, match="cannot read"):
        read_exclusions(tmp_path / "none")


@pytest.mark.parametrize("wrong", [{"sample": 0.0}, {"sample": 1.5}, {"limit": 0}])
def test_options_that_make_no_sense(wrong):
    with pytest.raises(UsageError):
        Selection(**wrong)
