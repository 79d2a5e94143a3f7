"""`ngramkit.forecast`: what drafts would save a server, from its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.arguments import renamed
from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.html_tables import html_table
from ngramkit.basics.machine import parse_size
from ngramkit.basics.models import chosen_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Entries, Tabular
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit.budget.model_files import read_size
from ngramkit.budget.pass_times import REPORTED_SIZE, Cost, PassTimes, cost_shown, pass_times
from ngramkit.choose import DrafterChoice, choose
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.asked import AskedDrafter
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.sources import HISTORY_TOKENS, Given, Sources, given_sources
from ngramkit.engines.config import DraftConfig
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.replay_answers import count_references, read_answers
from ngramkit.evaluate.replay_drafters import without_unusable_references
from ngramkit.evaluate.replay_results import Replay, Tally
from ngramkit.evaluate.simulated_server import Served, simulate_server
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of
from ngramkit.logs.read import NewestRequests

if TYPE_CHECKING:
    from ngramkit.engines.batch import BatchDrafter

DEFAULT_CONCURRENCY = 16  # requests at once
OWN_CONCURRENCY = 1  # of sessions of agents, which one person has
NEWEST_CHARS = 1 << 21  # of sessions; a minute or two
DEFAULT_BUDGETS = (16,)  # draft nodes of a request per pass, at most
STEADY_STATE_OUTPUT_SHARE = 0.5  # minimum share of the output tokens in the counted passes
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
    draft_us: float  # per request and pass, on this machine
    replay: Replay = field(repr=False)  # tallies by request, in the order in which they ended

    @property
    def accepted(self) -> int:
        return self.replay.total.tokens - self.replay.total.passes

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


@renamed(tokens="budgets")
def forecast(
    files: str | Path | Sequence[str | Path] | Sequence[Record],
    *,
    model: str | Path | TextTokenizer | TokenizerRecord | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    template: str = "auto",
    drafter: str | Callable[[], Drafter] = DEFAULT_DRAFTER,
    artifacts: Sources | Sequence[Given] | Given = (),
    concurrency: int | None = None,
    budgets: Sequence[int] = DEFAULT_BUDGETS,
    pass_cost: Cost = None,
    prompts: bool = False,
    limit: int | None = None,
    newest: int | str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
) -> Forecasts:
    """Simulate a server with drafts on the requests of its logs, by the engine's own rules.

    `files`, `format`, `columns`, `where`: see ngramkit.logs.read.read_log; or Records. Sources: as
    in `decode`; a history grows unless `store` is False, but its file does not change.
    `drafter`: a name, or a class or function that makes one for each request. `concurrency`:
    requests at once (default: 16, or 1 for sessions of agents). `budgets`: draft nodes of a request
    per pass, at most; a forecast for each. `pass_cost`: time of a pass of 9 tokens in passes of
    one, a curve or a profile, see budget.pass_times (default: by the config of `model`, for a GPU).
    `prompts`: the history remembers prompts too. `limit`: only the first conversations. `newest`:
    characters of sessions of agents to replay, the newest first ("2M", the default).

    Raises UsageError for options that cannot work, InputError for unreadable files and logs without
    a pass.
    """
    if concurrency is not None:
        require_between("concurrency", concurrency, 1, 4096)
    most_chars = parse_size(newest) if isinstance(newest, str) else newest
    most_chars = NEWEST_CHARS if most_chars is None else most_chars
    require_between("newest", most_chars, 1)
    if not budgets:
        raise UsageError("budgets must be a list of numbers, got none", option="budgets")
    for most in budgets:
        require_between("budget", most, 1, 64)
    if hasattr(drafter, "draft") and not isinstance(drafter, type):
        raise UsageError(
            f"drafter must be a name or a class, got one {type(drafter).__name__}",
            "give its class, or a function that makes one: each request has its own",
            option="drafter",
        )
    asked = AskedDrafter.of(drafter)
    if asked.needs_evidence:
        raise UsageError(
            f"cannot forecast {drafter}: it needs the model's top-k, which engines do not give",
            "name another drafter",
            option="drafter",
        )
    times = _pass_times(pass_cost, model, reporter)
    given = given_sources(
        artifacts, datastores=datastores, frozen_table=frozen_table, bigram=bigram,
        unigram=unigram, history=history, history_tokens=history_tokens, store=store,
    )  # fmt: skip
    past = given.past.path
    if past is not None and not past.exists():
        raise InputError(f"no such history: {past}", "check the path", option="history")
    selected = NewestRequests(most_chars)
    read_by, records, _ = read_answers(
        files, None, model, template, format, columns, where, reporter, selected
    )
    read = selected.left_out + sum(len(record.turns) for record in records)
    tokenizer, records = record_of(read_by), records[:limit]
    recorded = Recorded.of(records, tokenizer.id)
    if concurrency is None:
        concurrency = DEFAULT_CONCURRENCY if recorded is None else OWN_CONCURRENCY
    if not any(len(turn.answer) > 1 for record in records for turn in record.turns):
        raise InputError(
            "cannot forecast: no answer of the log has more than the token of its prefill",
            "check which column has the outputs",
        )
    choice = choose(asked, tokenizer, given, reporter)
    referring = count_references(records) > 0
    if missing := choice.missing(evidence=False, learns=given.past.store, references=referring):
        raise UsageError(f"cannot forecast {choice.label}: {missing}", "name another drafter")
    records = without_unusable_references(records, choice, reporter)
    results = []
    requests = sum(len(record.turns) for record in records)
    for most in dict.fromkeys(budgets):
        engine = _open_engine(choice, given, tokenizer, times, prompts=prompts)
        reporter.stage(f"drafts of at most {most} nodes", requests, "requests")
        served = simulate_server(
            records, engine, concurrency=concurrency, tokens=most, reporter=reporter
        )
        results.append(_estimate_savings(served, times, concurrency, most))
    replayed = Replayed(
        requests, read, selected.sessions_read, selected.sessions_found, selected.bytes_read,
        selected.bytes_found,
    )  # fmt: skip
    return Forecasts(results, choice.label, concurrency, times, replayed, recorded)


def _pass_times(cost: Cost, model: Any, reporter: Reporter) -> PassTimes:
    size = None
    if cost is None and (model is None or isinstance(model, str | Path)):
        with suppress(InputError):  # a tokenizer is enough
            size = read_size(chosen_model(model).name)
    if size is not None and size.experts > 1:
        reporter.note(
            f"pass times: by formula; each token uses {size.chosen} of {size.experts} experts, and "
            f"{size.used / 1e9:.1f} of {size.total / 1e9:.1f} billion weights"
        )
    return pass_times(cost, size)


def _estimate_savings(served: Served, times: PassTimes, concurrency: int, budget: int) -> Forecast:
    chosen = counted_passes(served)
    batches = np.array(served.batches)
    written, drafted = np.array(served.written), np.array(served.drafted)
    passes = np.repeat(np.arange(len(batches)), batches)  # of each step
    replay = Replay(f"{budget} nodes", budget)
    tallies: dict[int, Tally] = {}
    for step in np.flatnonzero(chosen[passes]).tolist():
        tallies.setdefault(served.request[step], Tally()).count(
            served.written[step], empty=not served.drafted[step]
        )
    for number in served.ended:
        if number in tallies:
            replay.add(served.requests[number], tallies[number])
    # A step costs its part of the pass's time, with drafts and without.
    read = batches + np.bincount(passes, drafted, len(batches))
    contexts = np.array(served.contexts)
    spent, plain = (
        float((times.times(each.astype(np.float64), batches, contexts) * batches)[chosen].sum())
        for each in (read, batches)
    )
    share = passes_share(replay.total)
    steps = int(batches[chosen].sum())
    return Forecast(
        budget=budget,
        concurrency=concurrency,
        batch=steps / int(chosen.sum()),
        passes=int(chosen.sum()),
        passes_share=share,
        time_share=share * spent / plain,
        output_share=replay.total.tokens / int(written.sum()),
        drafted=int(drafted[chosen[passes]].sum()),
        draft_us=float(np.array(served.draft_seconds)[chosen].sum()) / steps * 1e6,
        replay=replay,
    )


def counted_passes(served: Served) -> npt.NDArray[np.bool_]:
    """Return which passes count, those with the fullest batches: bool[passes].

    Their minimum batch is the largest that covers STEADY_STATE_OUTPUT_SHARE of the output.
    """
    batches = np.array(served.batches, np.int64)
    written = np.bincount(np.repeat(batches, batches), served.written)  # by size of the batch
    held = np.cumsum(written[::-1])[::-1]  # in batches of at least this size
    enough = np.flatnonzero(held >= STEADY_STATE_OUTPUT_SHARE * written.sum())
    return batches >= (enough[-1] if len(enough) else 0)


def _open_engine(
    choice: DrafterChoice,
    sources: Sources,
    tokenizer: TokenizerRecord,
    times: PassTimes,
    *,
    prompts: bool,
) -> BatchDrafter:
    from ngramkit.engines.batch import BatchDrafter

    if choice.made is not None:
        from ngramkit.engines.drafter_requests import DrafterSource

        own = DrafterSource(choice.load, tokenizer.vocabulary)
        return BatchDrafter(own, DraftConfig(drafter="context", log_steps=0), cost=times)
    past = sources.past
    paths: dict[str, Any] = {
        role: tuple(str(each.path) for each in given)
        if isinstance(given, list)
        else str(given.path)
        for role, given in choice.artifacts.items()
    }
    named = None if past.path is None else str(past.path)
    config = DraftConfig(
        drafter=str(choice.spec),
        **paths,
        history=named or (True if past.store else None),
        history_tokens=past.tokens,
        history_prompts=prompts,
        store=past.store,
        log_steps=0,
    )
    return BatchDrafter.open(
        config,
        vocabulary=tokenizer.vocabulary,
        cost=times,
        tokenizer=tokenizer,
        writes=False,
    )
