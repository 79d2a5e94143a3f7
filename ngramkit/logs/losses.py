"""What is not read of a log, by reason: files, records, and parts of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import many, visible
from ngramkit.logs.request import LeftOut

SHOWN = 5  # reasons
LENGTH = 100  # characters of a reason


class Losses:
    """Counts of what is left out, and the first record with its place."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        self.others = 0  # requests that were not asked for
        self.first: LeftOut | None = None
        self._unreadable: InputError | None = None

    def add(self, left: LeftOut) -> None:
        self.first = self.first or left
        self.records[left.why.partition(": ")[0]] += 1

    def add_file(self, error: InputError) -> None:
        """Count a file of a folder that cannot be read."""
        self._unreadable = self._unreadable or error
        self.files["files in no known format"] += 1

    def report(self, reporter: Reporter, requests: int) -> None:
        """Print what was left out, in a line each for files, records and parts."""
        if self.files:
            reporter.note(f"not read in folders: {_counted(self.files)}")
        if self.first is not None:
            count = self.records.total()
            reporter.note(
                f"left out: {many(count, 'record')}, read: {many(requests, 'request')}. "
                f"Reasons: {_counted(self.records)}. First: {self._first}"
            )
        if self.others:
            reporter.note(f"not asked for: {many(self.others, 'request')}")
        if self.parts:
            reporter.note(f"counted while reading: {_counted(self.parts)}")

    @property
    def _first(self) -> str:
        assert self.first is not None
        return visible(f"{self.first.where}: {self.first.why}", 4 * LENGTH)

    def unreadable(self, formats: Sequence[str]) -> InputError:
        """Return the error for folders without a file that can be read."""
        why = f", for example: {self._unreadable}" if self._unreadable else ""
        return InputError(
            f"no file of the folder is in a known format{why}",
            f"name one ({', '.join(formats)})",
            option="format",
        )

    def error(self, wanted: Iterable[tuple[str, str]] = ()) -> InputError:
        """Return the error for a log without a request that can be used."""
        if self.others:
            fields = ", ".join(f"{name}={value!r:.60}" for name, value in wanted)
            return InputError(
                f"no request of the log has {fields}", "Check the names.", option="where"
            )
        assert self.first is not None
        count = self.records.total()
        more = f" ({count:,} records like it)" if count > 1 else ""
        return InputError(f"{self._first}{more}", self.first.hint)


def _counted(counter: Counter[str]) -> str:
    shown = [f"{visible(what, LENGTH)} ({count:,})" for what, count in counter.most_common(SHOWN)]
    rest = counter.total() - sum(count for _, count in counter.most_common(SHOWN))
    return ", ".join(shown + ([f"others ({rest:,})"] if rest else []))
