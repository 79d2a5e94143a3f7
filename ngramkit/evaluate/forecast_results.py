"""The result of a forecast: figures by budget, with what was replayed and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.html_tables import html_table
from ngramkit.basics.results import Entries, Tabular
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit.budget.pass_times import REPORTED_SIZE, PassTimes, cost_shown
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.replay_figures import Replay, Tally

SHOWN_MODELS = 3
PARTS_OVER_TIME = 10  # parts of the log in `over_time`


@dataclass(frozen=True)
class Forecast:
    """A log's traffic with drafts of at most `budget` nodes, see `counted_passes`.

    Shares compare with the same requests without drafts, in batches of the same size.
    """

    budget: int
    concurrency: int
    batch: float  # mean requests per pass
    passes: int
    passes_share: float
    time_share: float
    output_share: float  # of the log's output tokens
    drafted: int  # tokens
    accepted: int  # of these
    draft_us: float  # per request and pass, on this machine
    replay: Replay = field(repr=False)  # tallies by request, in the order in which they ended

    @property
    def accepted_share(self) -> float:
        return self.accepted / max(self.drafted, 1)

    @property
    def warning(self) -> str | None:
        """Why the batches are not full, or None."""
        if self.batch >= self.concurrency:
            return None
        return (
            f"the log is too short for a concurrency of {self.concurrency}: its fullest batches "
            f"held {self.batch:.1f} requests on average; use a longer log or a lower concurrency"
        )

    def by_kind(self) -> dict[str, Tally]:
        return self.replay.by_category

    def by_run(self) -> dict[str, Tally]:
        runs: dict[str, Tally] = {}
        for run, tally in zip(self.replay.runs, self.replay.by_record, strict=True):
            runs.setdefault(run, Tally()).add(tally)
        return dict(sorted(runs.items(), key=_by_number)) if len(runs) > 1 else {}

    def over_time(self) -> list[float]:
        tallies = self.replay.by_record
        parts = np.array_split(np.arange(len(tallies)), min(PARTS_OVER_TIME, len(tallies)))
        return [
            sum(tallies[i].tokens for i in part) / max(sum(tallies[i].passes for i in part), 1)
            for part in parts
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "tokens": self.budget,  # the name in 0.2.0
            "batch": self.batch,
            "passes": self.passes,
            "passes_share": self.passes_share,
            "time_share": self.time_share,
            "output_share": self.output_share,
            "warning": self.warning,
            "requests": len(self.replay.names),
            **_tally_row(self.replay.total),
            "drafted": self.drafted,
            "accepted": self.accepted,
            "accepted_share": self.accepted_share,
            "draft_us": self.draft_us,
            "by_kind": {name: _tally_row(tally) for name, tally in self.by_kind().items()},
            "by_run": {name: _tally_row(tally) for name, tally in self.by_run().items()},
            "over_time": self.over_time(),
        }

    def _repr_html_(self) -> str:
        shown = {k: v for k, v in self.to_dict().items() if not isinstance(v, dict | list)}
        return html_table(f"Forecast with drafts of at most {self.budget} nodes", (), shown.items())


def _by_number(run: tuple[str, Tally]) -> tuple[int, str]:
    return (int(run[0][:18]) if run[0].isdecimal() else -1), run[0]


def _tally_row(tally: Tally) -> dict[str, Any]:
    return {
        "output_tokens": tally.tokens,
        "steps": tally.passes,
        "tokens_per_step": tally.tokens_per_step,
        "passes_share": passes_share(tally),
    }


def passes_share(tally: Tally) -> float:
    """Return passes relative to decoding without drafts."""
    return tally.passes / max(tally.tokens, 1)


class Recorded(NamedTuple):
    """Whose texts a log of sessions has."""

    models: str  # that wrote them
    model: str  # whose tokenizer reads them

    @classmethod
    def of(cls, records: Sequence[Record], model: str) -> Recorded | None:
        """Return None unless all records are of agents' sessions."""
        if not all(record.agent for record in records):
            return None
        named = list(dict.fromkeys(record.model for record in records if record.model))
        shown = ", ".join(named[:SHOWN_MODELS])
        if len(named) > SHOWN_MODELS:
            shown += f" and {len(named) - SHOWN_MODELS:,} more"
        return cls(shown or "the recorded model", model)


class Replayed(NamedTuple):
    """Which part of a log was replayed; sessions are those of agents."""

    requests: int
    requests_read: int  # in the files that were read
    sessions_read: int = 0  # files
    sessions_found: int = 0
    bytes_read: int = 0  # of these files
    bytes_found: int = 0

    @property
    def share(self) -> float:
        """The share of the requests; files that were not read count by their bytes."""
        read = self.bytes_read / self.bytes_found if self.bytes_found else 1.0
        return read * self.requests / self.requests_read

    def __str__(self) -> str:
        text = f"{self.requests:,} of {counted(self.requests_read, 'request')}"
        if self.sessions_read == self.sessions_found:
            return text
        return (
            f"{text} in the newest {self.sessions_read:,} of "
            f"{counted(self.sessions_found, 'session')} ({size_text(self.bytes_read)} of "
            f"{size_text(self.bytes_found)})"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"share": self.share, **self._asdict()}


def _by_kind(forecast: Forecast) -> str:
    """Return what each kind saves, the largest first."""
    tallies = sorted(forecast.by_kind().items(), key=lambda each: -each[1].tokens)
    return ", ".join(f"{name} {1 - passes_share(tally):.0%}" for name, tally in tallies)


class Forecasts(Entries[Forecast], Tabular):
    """A Forecast per draft length; `best` takes the least time."""

    def __init__(
        self,
        results: Sequence[Forecast],
        drafter: str,
        concurrency: int,
        times: PassTimes,
        replayed: Replayed,
        recorded: Recorded | None = None,
    ) -> None:
        super().__init__(results)
        self.drafter, self.concurrency, self.times = drafter, concurrency, times
        self.replayed = replayed
        self.recorded = recorded  # of sessions

    @property
    def best(self) -> Forecast:
        return min(self, key=lambda each: each.time_share)

    @property
    def sentence(self) -> str:
        best = self.best
        if self.recorded is not None:
            return (
                f"Look-up drafts would save {1 - best.passes_share:.0%} of the passes and "
                f"{1 - best.time_share:.0%} of the time of this work ({_by_kind(best)}), with "
                f"drafts of at most {best.budget} nodes and {best.batch:.1f} requests at once, if "
                f"a pass of {REPORTED_SIZE} tokens costs {cost_shown(self.times):.2f} times a pass "
                "of 1."
            )
        return (
            f"With drafts of at most {best.budget} nodes and {best.batch:.1f} requests in a "
            f"batch, this traffic takes {best.passes_share:.2f} of the passes and "
            f"{best.time_share:.2f} of the time, if a pass of {REPORTED_SIZE} tokens costs "
            f"{cost_shown(self.times):.2f} times a pass of 1."
        )

    @property
    def note(self) -> str | None:
        """Whose texts sessions have, or None."""
        if self.recorded is None:
            return None
        return (
            f"the texts are those of {self.recorded.models}, not of {self.recorded.model}: "
            "measure the model itself on a server"
        )

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"budget": each.budget, "kind": kind, **_tally_row(tally)}
            for each in self
            for kind, tally in each.by_kind().items()
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "concurrency": self.concurrency,
            "pass_cost": round(cost_shown(self.times), 6),
            "sentence": self.sentence,
            "note": self.note,
            "replayed": self.replayed.to_dict(),
            "results": [each.to_dict() for each in self],
        }

    def _repr_html_(self) -> str:
        head = ("draft nodes", "share of passes", "share of time", "tokens/step", "accepted share")
        rows = (
            (each.budget, each.passes_share, each.time_share, each.replay.total.tokens_per_step,
             each.accepted_share)
            for each in self
        )  # fmt: skip
        notes = [f"{each.budget} nodes: {each.warning}" for each in self if each.warning]
        notes += [self.note] if self.note else []
        notes += [f"replayed: {self.replayed}"] if self.replayed.share < 1 else []
        title = f"Forecasts of {self.drafter}, {counted(self.concurrency, 'request')} at once"
        return html_table(title, head, rows, [self.sentence, *notes])

    def __repr__(self) -> str:
        return f"<Forecasts of {self.drafter}: {self.sentence}>"
