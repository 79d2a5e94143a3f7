"""`ngramkit.forecast`: what drafts would save a server on the traffic that it has logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.public import public_with
from ngramkit.basics.results import Entries, Tabular
from ngramkit.choose import DrafterChoice, choose_drafter
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.sources import Given, Sources, SourceWords, given_sources
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.token_cost import TokenCost
from ngramkit.evaluate.drafter_replay import Replay, Tally
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.replay import read_answers
from ngramkit.evaluate.simulated_server import SHOWN, Cost, PassTimes, Served, serve
from ngramkit.formats.tokenizer_record import TokenizerRecord

if TYPE_CHECKING:
    from ngramkit.engines.batch import BatchDrafter

CONCURRENCY = 16  # requests at once
TOKENS = (16,)  # of a draft, at most
PARTS = 10  # of the log, to show how the history warms up


@dataclass(frozen=True)
class Forecast:
    """The traffic of a log with drafts of at most `tokens`; shares are of what it takes without."""

    tokens: int
    passes: float  # share of the passes
    time: float  # share of their time
    served: Served = field(repr=False)

    @property
    def replay(self) -> Replay:
        """Return the tallies, by request in the order in which they ended."""
        return self.served.replay

    @property
    def accepted_share(self) -> float:
        """Return the share of drafted tokens that were accepted."""
        total = self.replay.total
        return (total.tokens - total.passes) / max(self.served.drafted, 1)

    @property
    def draft_us(self) -> float:
        """Return the time of drafting for one request in one pass, on this machine."""
        return self.served.draft_seconds / max(self.replay.total.passes, 1) * 1e6

    def by_kind(self) -> dict[str, Tally]:
        return self.replay.by_category

    def by_run(self) -> dict[str, Tally]:
        """Return {run: tally}, by their numbers; of a log without runs nothing."""
        runs: dict[str, Tally] = {}
        for run, tally in zip(self.replay.runs, self.replay.by_record, strict=True):
            runs.setdefault(run, Tally()).add(tally)
        return dict(sorted(runs.items(), key=_by_number)) if len(runs) > 1 else {}

    def over_time(self) -> list[float]:
        """Return tokens/step of each tenth of the requests, in the order in which they ended."""
        tallies = self.replay.by_record
        parts = np.array_split(np.arange(len(tallies)), min(PARTS, len(tallies)))
        return [
            sum(tallies[i].tokens for i in part) / max(sum(tallies[i].passes for i in part), 1)
            for part in parts
        ]

    def to_dict(self) -> dict[str, Any]:
        total, served = self.replay.total, self.served
        return {
            "tokens": self.tokens,
            "passes_share": self.passes,
            "time_share": self.time,
            "passes": len(served.passes),
            "passes_without": len(served.plain),
            "requests": len(self.replay.names),
            "output_tokens": total.tokens,
            "tokens_per_step": total.tokens_per_step,
            "drafted": served.drafted,
            "accepted": total.tokens - total.passes,
            "draft_us": self.draft_us,
            "by_kind": {name: _row(tally) for name, tally in self.by_kind().items()},
            "by_run": {name: _row(tally) for name, tally in self.by_run().items()},
            "over_time": self.over_time(),
        }


def _by_number(run: tuple[str, Tally]) -> tuple[int, str]:
    return (int(run[0][:18]) if run[0].isdecimal() else -1), run[0]


def _row(tally: Tally) -> dict[str, Any]:
    return {**tally.figures(), "passes_share": tally.passes / max(tally.tokens, 1)}


class Forecasts(Entries[Forecast], Tabular):
    """One Forecast for each length of drafts; `best` takes the least time."""

    def __init__(
        self, results: Sequence[Forecast], drafter: str, concurrency: int, times: PassTimes
    ) -> None:
        super().__init__(results)
        self.drafter, self.concurrency, self.times = drafter, concurrency, times

    @property
    def best(self) -> Forecast:
        return min(self, key=lambda each: each.time)

    @property
    def sentence(self) -> str:
        """Return what it comes to, in words."""
        best = self.best
        where = f" where a pass of {SHOWN} tokens costs {self.times.cost:.2f} passes of 1"
        return (
            f"With drafts of at most {best.tokens} tokens this traffic would take "
            f"{best.passes:.2f} of the passes, and {best.time:.2f} of the time{where}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per length and kind of request."""
        return [
            {"tokens": each.tokens, "kind": kind, **_row(tally)}
            for each in self
            for kind, tally in each.by_kind().items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `ngramkit forecast --json` prints them."""
        return {
            "drafter": self.drafter,
            "concurrency": self.concurrency,
            "pass_cost": round(self.times.cost, 6),
            "sentence": self.sentence,
            "results": [each.to_dict() for each in self],
        }

    def __repr__(self) -> str:
        return f"<Forecasts of {self.drafter}: {self.sentence}>"


@public_with(given_sources, SourceWords)
def forecast(
    files: str | Path | Sequence[str | Path] | Sequence[Record],
    *,
    model: str | Path | TextTokenizer | TokenizerRecord | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    template: str = "auto",
    drafter: str = DEFAULT_DRAFTER,
    artifacts: Sources | Sequence[Given] | Given = (),
    concurrency: int = CONCURRENCY,
    tokens: Sequence[int] = TOKENS,
    pass_cost: Cost = None,
    prompts: bool = False,
    limit: int | None = None,
    reporter: Reporter = SILENT,
    **sources: Unpack[SourceWords],
) -> Forecasts:
    """Serve the requests of logs again, with drafts, and say what that would take.

    The engine's own rules decide what is drafted. What is drafted from as in `decode`, in the same
    words: a history grows, unless `store` is False, and begins with the one that is named, which is
    left alone. `files`, `format`, `columns`, `where`: see ngramkit.logs.read.read_log; or Records,
    as `replay`. `concurrency`: requests at once; `tokens`: of a draft, one forecast for each.
    `pass_cost`: what a pass of 9 tokens costs, in passes of one, or a curve or profile, see
    evaluate.simulated_server; None: as engines suppose of a GPU. `prompts`: the history remembers
    prompts, too. `limit`: only the first requests.

    Raises UsageError for what makes no sense, InputError for files that cannot be read.
    """
    require_between("concurrency", concurrency, 1, 4096)
    if not tokens:
        raise UsageError("no length of drafts", "like 16", option="tokens")
    for most in tokens:
        require_between("tokens", most, 1, 64)
    times = PassTimes(pass_cost)
    given = given_sources(artifacts, **sources)
    past = given.past.path
    if past is not None and not past.exists():
        raise InputError(f"there is no history at {past}", "check the path", option="history")
    tokenizer, records, _ = read_answers(
        files, None, model, template, format, columns, where, reporter
    )
    records = records[:limit]
    if any(len(turn.references) for record in records for turn in record.turns):
        reporter.note("references of requests are left out: serving engines take none")
    choice = choose_drafter(drafter, tokenizer, given, reporter=reporter)
    results = []
    for most in dict.fromkeys(tokens):
        engine = _engine(choice, given, tokenizer, times, prompts=prompts)
        reporter.stage(f"drafts of at most {most} tokens", len(records), "requests")
        served = serve(
            records, engine, concurrency=concurrency, tokens=most, label=f"{most} tokens",
            reporter=reporter,
        )  # fmt: skip
        plain = float(times.of(served.plain).sum())
        spent = float(times.of(served.passes).sum())
        share = len(served.passes) / max(len(served.plain), 1)
        results.append(Forecast(most, share, spent / plain if plain else 1.0, served))
    return Forecasts(results, choice.label, concurrency, times)


def _engine(
    choice: DrafterChoice,
    sources: Sources,
    tokenizer: TokenizerRecord,
    times: PassTimes,
    *,
    prompts: bool,
) -> BatchDrafter:
    """Return the drafter of an engine that has just started."""
    from ngramkit.engines.batch import BatchDrafter

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
        cost=TokenCost(times.free),
        tokenizer=tokenizer,
        writes=False,
    )
