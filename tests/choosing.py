"""Drafters chosen for a tokenizer that only tests know."""

from __future__ import annotations

from reporters import Notes

from ngramkit.choose import choose_drafter
from ngramkit.formats.tokenizer_record import TokenizerRecord

MINE = TokenizerRecord("me/mine", 20, "f-mine", None)


def chosen(drafter, record=MINE, artifacts=()):
    notes = Notes()
    choice = choose_drafter(drafter, record, artifacts, reporter=notes)
    return choice, notes
