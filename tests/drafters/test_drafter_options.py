"""Options of drafters as text and by keyword, and drafters of one's own."""

from __future__ import annotations

import pytest
from choosing import MINE, chosen

from ngramkit.basics.errors import UsageError
from ngramkit.basics.progress import SILENT
from ngramkit.choose import DrafterChoice, choose_from_sources
from ngramkit.drafters.asked import asked_drafters
from ngramkit.drafters.context import Context
from ngramkit.drafters.sources import Sources
from ngramkit.drafters.spec import DrafterSpec


def test_options_are_read_by_what_the_constructor_declares():
    spec = DrafterSpec.parse("cacheback:keep=true,leader-len=2")
    assert spec == DrafterSpec("cacheback", {"keep": True, "leader_len": 2})
    assert str(spec) == "cacheback:keep=true,leader_len=2"
    assert DrafterSpec.parse(str(spec)) == spec
    assert DrafterSpec.parse("ssd:least_score=0.5").options == {"least_score": 0.5}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "unknown drafter ''", "one of: none, blend"),
        ("blende", "'blende'", "Did you mean blend?"),
        ("rest:", "rest", "max_match, min_match, continuation"),
        ("rest:deep=1", "'deep' of rest", "one of: max_match"),
        ("rest:max_matsh=1", "'max_matsh' of rest", "Did you mean max_match?"),
        ("rest:max_match=0", "max_match must be at least 1", ""),
        ("rest:max_match=1e3", "must be a whole number", ""),
        ("rest:max_match=1,max_match=1", "max_match of rest", ""),
        ("unigram:rows=1", "'rows' of unigram", "there are none"),
        ("ssd:least_score=nan", "least_score must be", ""),
        ("cacheback:keep=maybe", "must be true or false", ""),
    ],
)
def test_a_wrong_option_names_the_right_ones(text, message, hint):
    with pytest.raises(UsageError, match=message) as caught:
        DrafterSpec.parse(text)
    assert hint in caught.value.hint


def test_defaults_of_the_decoding_are_no_options_that_somebody_gave(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choice, _ = chosen("ssd")
    assert choice.with_default("least_score", 0.2).spec.options == {"least_score": 0.2}
    assert choice.with_default("least_score", 0.2).label == "ssd"
    asked, _ = chosen("ssd:least_score=0.5")
    assert asked.with_default("least_score", 0.2).spec.options == {"least_score": 0.5}
    assert chosen("context")[0].with_default("least_score", 0.2).spec.options == {}


def test_a_drafter_of_ones_own_takes_the_same_place():
    one = Context()
    assert choose_from_sources(one, MINE, Sources()).load() is one
    made = choose_from_sources(Context, MINE, Sources())
    assert made.load() is not made.load()
    assert (choose_from_sources(one, MINE, Sources()).label, made.label) == ("Context", "Context")
    assert isinstance(made, DrafterChoice)
    several = asked_drafters([Context, one, "context", Context], SILENT)
    labels = [choose_from_sources(each, MINE, Sources()).label for each in several]
    assert labels == ["Context", "Context-2", "context", "Context-3"]
    assert "Context" in repr(made)
