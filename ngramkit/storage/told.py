"""What is said of a work folder, said of the URL that its content goes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ngramkit.errors import NgramkitError
from ngramkit.progress import Reporter


class Renamed(Reporter):
    """Tells `reporter`, with `there` in place of the folder `here`."""

    def __init__(self, reporter: Reporter, here: Path, there: str) -> None:
        self.reporter, self._here, self._there = reporter, str(here), there

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        self.reporter.stage(name.replace(self._here, self._there), total, unit)

    def advance(self, amount: float, **counts: float) -> None:
        self.reporter.advance(amount, **counts)

    def note(self, text: str) -> None:
        self.reporter.note(text.replace(self._here, self._there))

    def fetched(self, source: str, commit: str) -> None:
        self.reporter.fetched(source, commit)


@contextmanager
def renamed(here: Path, there: str) -> Iterator[None]:
    """The same of errors."""
    try:
        yield
    except NgramkitError as error:
        error.args = (str(error).replace(str(here), there), *error.args[1:])
        error.hint = error.hint.replace(str(here), there)
        raise
