"""Counters of an engine's drafts: a line for its log, a file for Prometheus."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

COUNTERS = {
    "ngramkit_draft_tokens_total": ("Tokens drafted.", "draft_tokens"),
    "ngramkit_accepted_tokens_total": ("Drafted tokens that the model wrote.", "accepted_tokens"),
    "ngramkit_draft_seconds_total": ("Seconds spent drafting.", "seconds"),
    "ngramkit_draft_steps_total": ("Rows that were asked for a draft.", "rows"),
    "ngramkit_paused_steps_total": ("Of these, not drafted for: it did not pay.", "paused"),
    "ngramkit_requests_total": ("Requests begun.", "requests"),
}


@dataclass
class Statistics:
    """Totals since the engine started."""

    draft_tokens: int = 0
    accepted_tokens: int = 0
    seconds: float = 0.0
    rows: int = 0
    paused: int = 0
    requests: int = 0

    def line(self) -> str:
        """Return a line for the log, `ngramkit: 1,204 drafted, 873 accepted (72.5%), ...`"""
        share = 100 * self.accepted_tokens / max(self.draft_tokens, 1)
        steps = max(self.rows, 1)
        return (
            f"ngramkit: {self.draft_tokens:,} drafted, {self.accepted_tokens:,} accepted "
            f"({share:.1f}%), {self.accepted_tokens / steps:.2f} a step, "
            f"{1e3 * self.seconds / steps:.2f} ms a step, {self.rows:,} steps of "
            f"{self.requests:,} requests, {self.paused:,} not drafted for"
        )

    def prometheus(self) -> str:
        """Return the counters in Prometheus' text format, version 0.0.4."""
        lines = []
        for name, (help_text, attribute) in COUNTERS.items():
            value = getattr(self, attribute)
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Replace a file of node_exporter's textfile collector, whole or not at all.

        Raises OSError where it cannot be written.
        """
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
