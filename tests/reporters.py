"""Reporters that remember what they were told."""

from __future__ import annotations

from ngramkit.basics.progress import Reporter


class Notes(Reporter):
    """Every note, in order; `text in notes` where one holds that text."""

    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)

    def __contains__(self, text):
        return any(text in line for line in self.lines)
