"""Counters of an engine's drafts: a log line, a file for Prometheus, /metrics."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, reason

COUNTERS = {
    "ngramkit_draft_tokens_total": ("Tokens drafted.", "draft_tokens"),
    "ngramkit_accepted_tokens_total": ("Drafted tokens that the model wrote.", "accepted_tokens"),
    "ngramkit_draft_seconds_total": ("Seconds spent drafting.", "seconds"),
    "ngramkit_draft_calls_total": ("Steps of the engine.", "calls"),
    "ngramkit_draft_steps_total": ("Rows that were asked for a draft.", "rows"),
    "ngramkit_paused_steps_total": ("Of these, not drafted for: it did not pay.", "paused"),
    "ngramkit_requests_total": ("Requests begun.", "requests"),
    "ngramkit_remembered_requests_total": ("Requests that are in the history.", "remembered"),
    "ngramkit_unused_references_total": ("Requests whose text is unusable.", "unused_references"),
}


@dataclass
class Statistics:
    draft_tokens: int = 0
    accepted_tokens: int = 0
    seconds: float = 0.0
    calls: int = 0
    rows: int = 0
    paused: int = 0
    requests: int = 0
    remembered: int = 0  # written, if the history is a folder
    unused_references: int = 0  # requests whose own text cannot be drafted from

    def line(self) -> str:
        """Return a log line; a step is a request in a step of the engine."""
        share = 100 * self.accepted_tokens / max(self.draft_tokens, 1)
        steps = max(self.rows, 1)
        return (
            f"ngramkit: {self.draft_tokens:,} drafted, {self.accepted_tokens:,} accepted "
            f"({share:.1f}%), {1 + self.accepted_tokens / steps:.2f} tokens/step, "
            f"{1e3 * self.seconds / steps:.2f} ms a step, {self.rows:,} steps of "
            f"{self.requests:,} requests, {self.paused:,} not drafted for, "
            f"{self.seconds:.2f} s in {self.calls:,} calls"
        )

    def prometheus(self) -> str:
        lines = []
        for name, (help_text, attribute) in COUNTERS.items():
            value = getattr(self, attribute)
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Replace a file of node_exporter's textfile collector atomically. Raises OSError."""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.prometheus())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


def require_metrics(path: Path) -> None:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):
            pass  # it can be created
    except OSError as error:
        raise InputError(
            f"cannot write metrics to {path}: {reason(error)}",
            "Name a file in an existing folder.",
            option="metrics",
        ) from error


class EngineCounters:
    """The counters in prometheus_client's registry, which the engine's /metrics shows.

    With PROMETHEUS_MULTIPROC_DIR it is that of all processes.
    """

    def __init__(self) -> None:
        self._counters, self._shown = registered_counters(), Statistics()

    def show(self, statistics: Statistics) -> None:
        for attribute, counter in self._counters.items():
            value = getattr(statistics, attribute)
            counter.inc(value - getattr(self._shown, attribute))
            setattr(self._shown, attribute, value)


@cache
def registered_counters() -> dict[str, Any]:
    """Return prometheus_client's counters; a process may register them once."""
    try:
        client = importlib.import_module("prometheus_client")
    except ImportError:
        return {}
    return {
        attribute: client.Counter(name, help_text)
        for name, (help_text, attribute) in COUNTERS.items()
    }
