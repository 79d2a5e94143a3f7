"""A drafter that accepts many tokens at once drafts as one that accepted them one by one."""

import numpy as np
import pytest
from blend_sources import EOS, VOCABULARY

from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord(f"none-{VOCABULARY}", VOCABULARY, f"f{VOCABULARY}", EOS)


def text(seed, size):
    """Phrases that come again."""
    random = np.random.default_rng(seed)
    phrases = [random.integers(0, VOCABULARY, random.integers(2, 9)) for _ in range(6)]
    joined = np.concatenate([phrases[i] for i in random.integers(0, 6, size)])
    return joined[:size].astype(np.int32)


@pytest.fixture
def make(datastore, frozen, bigram):
    store, table, pairs = datastore([text(1, 300)]), frozen([text(1, 300)], 1, 3), bigram(2)[0]

    def load(name):
        past = PastRequests(tokenizer=RECORD, background=False)
        past.remember(text(3, 200), 20)
        return load_drafter(
            name, datastores=[store], frozen_table=table, bigram=pairs, past=past,
        )  # fmt: skip

    return load


def same(one, other):
    for left, right in zip(vars(one).values(), vars(other).values(), strict=True):
        np.testing.assert_array_equal(left, right)


# Drafting changes nothing, but for ssd, which learns from the acceptance of its drafts.
@pytest.mark.parametrize(
    ("name", "drafting"),
    [("blend", True), ("rest", True), ("cacheback", True), ("ngrammys", True), ("context", True),
     ("prompt-lookup", True), ("bigram", True), ("ssd", False)],
)  # fmt: skip
def test_tokens_accepted_at_once_count_as_those_accepted_one_by_one(make, name, drafting):
    written = text(1, 200)
    often, rarely = make(name), make(name)
    for drafter in (often, rarely):
        drafter.start(text(4, 30))
        drafter.accept(written[:1])
        drafter.draft(12)
        drafter.accept(written[1:4])
    for begin in range(4, 150, 3):
        if drafting:
            often.draft(12)
        often.accept(written[begin : begin + 3])
    rarely.accept(written[4:151])
    drafts = 0
    for begin in range(151, 171, 2):
        trees = [drafter.draft(12) for drafter in (often, rarely)]
        same(*trees)
        drafts += len(trees[0])
        for drafter in (often, rarely):
            drafter.accept(written[begin : begin + 2])
    assert drafts > 10
