"""What a drafter of the user's own may hand in, and the one error for each thing it may not.

Wherever drafts are asked for: decoding at a fixed budget and at one that is learnt, whose kernels
read `parents` unchecked, transformers' generate, replays of trees and chains, and engines.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from reporters import Notes

import ngramkit
from ngramkit import DraftTree
from ngramkit.drafters.checked import drafts_of
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

PROMPT = "def f(x):\n    return"
VOCABULARY = 4096  # of the embedded model


class Mine:
    """A drafter that drafts what a function returns."""

    def __init__(self, tree):
        self.tree = tree

    def start(self, prompt): ...

    def draft(self, budget):
        return self.tree()

    def accept(self, tokens, evidence=None): ...

    def finish(self): ...


def tree(token_ids=(7, 8), parents=(-1, 0), scores=(0.5, 0.25), source=(3, 3)):
    columns = (token_ids, parents, scores, source)
    return DraftTree(*(np.array(column) for column in columns))


WRONG = {
    "a list": (lambda: [7, 8], "[7, 8]"),
    "nothing": (lambda: None, "None"),
    "columns of several lengths": (lambda: tree(parents=(-1,)), "the same length"),
    "floats for ids": (lambda: tree((7.5, 8.0)), "token_ids must be a list of whole numbers"),
    "texts for ids": (lambda: tree(("def", " f")), "token_ids must be a list of whole numbers"),
    "rows of rows": (lambda: tree(((7, 8), (9, 10))), "token_ids must be a list of whole numbers"),
    "truth for ids": (lambda: tree((True, False)), "token_ids must be a list of whole numbers"),
    "ragged": (
        lambda: DraftTree([[7], [8, 9]], [-1, 0], [0.5, 0.2], [0, 0]),
        "token_ids must be a list of whole numbers",
    ),
    "an id beyond": (lambda: tree((7, 99_999)), "token_ids must be 0 to 409"),
    "an id beyond int32": (lambda: tree((7, 1 << 40)), "token_ids must be 0 to 409"),
    "an id below": (lambda: tree((-1, 8)), "token_ids must be 0 to 409"),
    "more than asked for": (
        lambda: tree(range(9), range(-1, 8), [0.1] * 9, [0] * 9),
        "at most",
    ),
    "a child first": (lambda: tree(parents=(1, -1)), "a node must come after its parent"),
    "its own parent": (lambda: tree(parents=(0, -1)), "a node must come after its parent"),
    "a parent far away": (lambda: tree(parents=(-1, 1 << 20)), "parents must be -1 to 1"),
    "a parent below the root": (lambda: tree(parents=(-2, 0)), "parents must be -1 to 1"),
    "twins": (lambda: tree((7, 7), (-1, -1)), "siblings must have different tokens"),
    "NaN": (lambda: tree(scores=(np.nan, 0.1)), "scores must be 0 to 1"),
    "logarithms": (lambda: tree(scores=(-0.1, -2.5)), "scores must be 0 to 1"),
    "no source": (lambda: tree(source=(3, 99)), "source must be 0 to 6"),
}


@cache
def loaded():
    return ngramkit.load_model("demo")


def decode(drafter, budget):
    words = {"max_new_tokens": 12, "budget": budget}
    return ngramkit.decode(PROMPT, loaded(), drafter=drafter, **words).run.token_ids.tolist()


def generate(drafter):
    model = loaded()
    ids = model.tokenizer.encode_prompt(PROMPT)
    words = {"max_new_tokens": 40, "do_sample": False, "budget": 2}  # of fewer none are drafted
    written = ngramkit.generate(model, ids, drafter=drafter, **words)[0]
    return written[len(ids) :][:12].tolist()


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "def f(x):", "output": "\\n    return x * x"}\n')
    return path


def replay(answers, drafter, **words):
    return ngramkit.replay(answers, model="demo", drafters=[drafter], budgets=[2], **words)


@pytest.mark.parametrize(("made", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_draft_is_one_error_wherever_it_is_asked_for(made, said, answers):
    drafter = Mine(made)
    # A budget that is learnt may ask for more.
    learnt = [] if "at most" in said else [partial(decode, drafter, "auto")]
    ways = [
        *learnt,
        partial(decode, drafter, 2),
        partial(generate, drafter),
        partial(replay, answers, drafter),
        partial(replay, answers, drafter, chain=True),
        lambda: BatchDrafter(
            DrafterSource(lambda: drafter, VOCABULARY), DraftConfig(threads=1)
        ).chain_batch([np.array([5, 6], np.int32)], [2]),
    ]
    for way in ways:
        with pytest.raises(ngramkit.UsageError) as caught:
            way()
        assert "Mine.draft(" in str(caught.value)
        assert said in str(caught.value)
        assert caught.value.hint
        assert "\n" not in str(caught.value)


def test_with_a_spe_cache_a_guess_is_checked_too():
    cache = ngramkit.SpeCache(speculative="drafter")
    with pytest.raises(ngramkit.UsageError, match="99999"):
        ngramkit.decode(
            PROMPT, loaded(), drafter=Mine(lambda: tree([99_999], [-1], [1], [0])), cache=cache
        )


RIGHT = {
    "arrays": lambda: tree((7,), (-1,), (0.5,), (3,)),
    "lists": lambda: DraftTree([7], [-1], [0.5], [3]),
    "other widths": lambda: tree(np.uint64([7]), np.int8([-1]), np.int16([1]), np.int64([3])),
    "nothing at all": lambda: DraftTree([], [], [], []),
    "more than 1 by rounding": lambda: tree((7,), (-1,), (1.0001,), (3,)),
}


@pytest.mark.parametrize("made", RIGHT.values(), ids=RIGHT)
def test_lists_and_other_widths_become_a_draft(made, answers):
    alone = decode("none", 2)
    for budget in (2, "auto"):
        assert decode(Mine(made), budget) == alone
    assert generate(Mine(made)) == alone
    assert len(list(replay(answers, Mine(made), chain=True))) == 1
    drafted = drafts_of(Mine(made))(2)
    dtypes = [getattr(drafted, name).dtype for name in ("token_ids", "parents", "scores", "source")]
    assert dtypes == [np.int32, np.int32, np.float32, np.uint8]


def test_an_error_of_the_drafter_s_own_stays_its_own():
    def broken():
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        decode(Mine(broken), 2)


class Trusted(NoDraft):
    """Stands for one of ngramkit's own."""

    __module__ = "ngramkit.drafters.trusted"

    def draft(self, budget):
        return tree(parents=(1, -1))


def test_trees_of_ngramkit_s_own_drafters_are_not_looked_at():
    assert drafts_of(Trusted())(2).parents.tolist() == [1, -1]


def test_ids_that_the_model_does_not_have_go_with_what_is_below_them():
    given = DraftTree(
        np.array([5, 100, 7, 8, 101, 9], np.int32),
        np.array([-1, -1, 0, 1, 2, 3], np.int32),
        np.linspace(0.9, 0.4, 6, dtype=np.float32),
        np.arange(6, dtype=np.uint8),
    )
    assert given.below(102) is given
    found = given.below(100)
    found.check()
    assert (found.token_ids.tolist(), found.parents.tolist()) == ([5, 7], [-1, 0])
    assert found.source.tolist() == [0, 2]
    assert len(given.below(5)) == 0


class Half:
    def start(self, prompt): ...

    def draft(self, budget): ...


class Deaf(Mine):
    def accept(self, tokens): ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Half(), "accept, finish"),
        (Half, "accept, finish"),
        (Deaf(tree), "Deaf.accept() must take (tokens, evidence): too many positional arguments"),
        (lambda: Deaf(tree), "Deaf.accept() must take (tokens, evidence)"),
        (lambda: Half(), "accept, finish"),
        (lambda: None, "None"),
        (lambda: "rest", "'rest'"),
        (lambda: lambda: Mine(tree), "<function"),
        (5, "5"),
        ([5], "5"),
    ],
)
def test_what_is_no_drafter_is_refused_wherever_one_is_taken(given, said, answers, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"prompt": "def f(x):"}\n')
    words = {"drafters": given, "max_new_tokens": 2}
    ways = [
        lambda: decode(given, 2),
        lambda: generate(given),
        lambda: replay(answers, given),
        lambda: ngramkit.replay(answers, model="demo", drafters=given, budgets=[2]),
        lambda: ngramkit.bench(questions, loaded(), out=tmp_path / "bench", **words),
        lambda: ngramkit.record(questions, loaded(), out=tmp_path / "record", **words),
    ]
    for way in ways:
        with pytest.raises(ngramkit.UsageError) as caught:
            way()
        assert said in str(caught.value)
        assert caught.value.hint


class Unhashable(Mine):
    """As a dataclass is, which compares."""

    __hash__ = None  # type: ignore[assignment]


def test_one_object_is_taken_for_a_list_of_one_and_need_not_be_hashable(answers, tmp_path):
    drafter = Unhashable(DraftTree.empty)
    words = {"model": "demo", "drafters": drafter, "budgets": [2], "reporter": (notes := Notes())}
    assert [each.drafter for each in ngramkit.replay(answers, **words)] == ["Unhashable"]
    assert "Unhashable is one object for all requests" in notes
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"prompt": "def f(x):"}\n')
    measured = ngramkit.bench(
        questions, loaded(), drafters=drafter, max_new_tokens=2, out=tmp_path / "out"
    )
    assert measured.identical
