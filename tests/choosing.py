"""Drafters chosen for a tokenizer that only tests know."""

from __future__ import annotations

from ngramkit.choose import choose_drafter
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.progress import Reporter

MINE = TokenizerRecord("me/mine", 20, "f-mine", None)


class Notes(Reporter):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)

    def __contains__(self, text):
        return any(text in line for line in self.lines)


def chosen(drafter, record=MINE, artifacts=()):
    notes = Notes()
    choice = choose_drafter(drafter, record, artifacts, reporter=notes)
    return choice, notes
