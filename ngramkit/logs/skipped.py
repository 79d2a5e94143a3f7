"""The report of what is not read of a log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted, visible
from ngramkit.logs.request import SkippedRecord

REASON_CHARS = 100


@dataclass
class SkipReport:
    """Counts by reason, and the first skipped record with its place."""

    files: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    not_selected: int = 0  # requests that `where` excludes
    first: SkippedRecord | None = None
    _first_file_error: Exception | None = None

    def add(self, skipped: SkippedRecord) -> None:
        self.first = self.first or skipped
        # One count for all values: "X must be Y, got Z" and "cannot Y: Z".
        self.records[re.split(r": |, got ", skipped.reason, maxsplit=1)[0]] += 1

    def add_file(self, reason: str, error: Exception) -> None:
        self._first_file_error = self._first_file_error or error
        self.files[reason] += 1

    def print(self, reporter: Reporter, requests: int) -> None:
        if self.files:
            reporter.note(f"files in folders that were skipped: {_top_reasons(self.files)}")
        if self.first is not None:
            count = self.records.total()
            reporter.note(
                f"skipped {counted(count, 'record')}, read {counted(requests, 'request')}. "
                f"Reasons: {_top_reasons(self.records)}. First: {self._first_text}"
            )
        if self.not_selected:
            reporter.note(f"not selected: {counted(self.not_selected, 'request')}")
        if self.parts:
            reporter.note(f"noticed while reading: {_top_reasons(self.parts, 10)}")

    @property
    def _first_text(self) -> str:
        assert self.first is not None
        return visible(f"{self.first.where}: {self.first.reason}", 4 * REASON_CHARS)

    def no_readable_file(self, formats: Sequence[str]) -> InputError:
        example = f", for example: {self._first_file_error}" if self._first_file_error else ""
        return InputError(
            f"cannot read the folder: no file is in a known format{example}",
            f"Name one ({', '.join(formats)}).",
            option="format",
        )

    def no_request(self, wanted: Iterable[tuple[str, str]] = ()) -> InputError:
        """Return the error for a log without a usable request."""
        if self.not_selected:
            fields = ", ".join(f"{name}={value!r:.60}" for name, value in wanted)
            return InputError(
                f"cannot select requests: none has {fields}", "Check the names.", option="where"
            )
        assert self.first is not None
        count = self.records.total()
        more = f" ({count:,} records like it)" if count > 1 else ""
        return InputError(f"{self._first_text}{more}", self.first.hint)


def _top_reasons(counter: Counter[str], most: int = 5) -> str:
    """Return the top reasons, as "not JSON (2), others (1)"."""
    top = counter.most_common(most)
    shown = [f"{visible(reason, REASON_CHARS)} ({count:,})" for reason, count in top]
    rest = counter.total() - sum(count for _, count in top)
    return ", ".join(shown + ([f"others ({rest:,})"] if rest else []))
