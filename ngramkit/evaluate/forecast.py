"""`ngramkit.forecast`: what drafts would save a server, from its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.arguments import check_types, refuse_earlier_names
from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.machine import parse_size
from ngramkit.basics.models import chosen_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.budget.model_files import read_size
from ngramkit.budget.pass_times import Cost, PassTimes, pass_times
from ngramkit.choose import DrafterChoice, choose_from_sources
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DEFAULT_DRAFTER, drafter_entry
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.drafters.spec import DrafterSpec, require_not_made
from ngramkit.engines.config import DraftConfig
from ngramkit.evaluate.forecast_results import Forecast, Forecasts, Recorded, Replayed, passes_share
from ngramkit.evaluate.leakage import without_leaks
from ngramkit.evaluate.records import Record, checked_limit
from ngramkit.evaluate.replay_answers import count_references, distinct_budgets, read_answers
from ngramkit.evaluate.replay_drafters import without_unusable_references
from ngramkit.evaluate.replay_figures import Replay, Tally
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


@refuse_earlier_names(tokens="budgets")
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
    check_types(bool, prompts=prompts, store=store)
    (concurrency,) = check_types(int, concurrency=concurrency)
    if concurrency is not None:
        require_between("concurrency", concurrency, 1, 4096)
    most_chars = parse_size(newest) if isinstance(newest, str) else newest
    most_chars = NEWEST_CHARS if most_chars is None else most_chars
    require_between("newest", most_chars, 1)
    budgets, limit = distinct_budgets(budgets, 64), checked_limit(limit)
    require_not_made(drafter, "each request has its own")
    asked = DrafterSpec.parse(drafter)
    if asked.needs_evidence:
        raise UsageError(
            f"cannot forecast {drafter}: it needs the model's top-k, which engines do not give",
            "Name another drafter.",
            option="drafter",
        )
    times = _pass_times(pass_cost, model, reporter)
    given = given_sources(
        artifacts, datastores=datastores, frozen_table=frozen_table, bigram=bigram,
        unigram=unigram, history=history, history_tokens=history_tokens, store=store,
    ).recorded()  # fmt: skip
    if prompts and not given.past.store:
        raise UsageError(
            "cannot use prompts: no request is remembered", "Leave it out.", option="prompts"
        )
    past = given.past.path
    if past is not None and not past.exists():
        raise InputError(f"no such history: {past}", "Check the path.", option="history")
    selected = NewestRequests(most_chars)
    reading = {"format": format, "columns": columns, "where": where}
    read_by, records, *_ = read_answers(
        files, None, model, template, reading, reporter, selected, "files"
    )
    if newest is not None and not selected.sessions_found:
        raise UsageError(
            "cannot use newest: the log has no sessions of agents",
            "Leave it out: all requests of such a log are replayed.",
            option="newest",
        )
    read = selected.left_out + sum(len(record.turns) for record in records)
    tokenizer, records = record_of(read_by), records[:limit]
    recorded = Recorded.of(records, tokenizer.id)
    if concurrency is None:
        concurrency = DEFAULT_CONCURRENCY if recorded is None else OWN_CONCURRENCY
    if not any(len(turn.answer) > 1 for record in records for turn in record.turns):
        raise InputError(
            "cannot forecast: no answer of the log has more than the token of its prefill",
            "Check which column has the outputs.",
        )
    choice = choose_from_sources(asked, tokenizer, given, reporter)
    referring = count_references(records)
    if missing := choice.missing(evidence=False, learns=given.past.store, references=referring > 0):
        hint = "Give history, or name another drafter."
        raise UsageError(f"cannot forecast {choice.label}: {missing}", hint, option="history")
    if referring:
        records = without_unusable_references(records, choice, referring, reporter)
    _, leakage = without_leaks(records, [choice], False, SILENT)
    if leakage.note:
        reporter.note(f"warning: {leakage.note}: they flatter the figures")
    results = []
    requests = sum(len(record.turns) for record in records)
    for most in budgets:
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
    accepted = np.array(served.accepted)
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
        accepted=int(accepted[chosen[passes]].sum()),
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

    if choice.spec.make is not None:
        from ngramkit.engines.drafter_requests import DrafterSource

        own = DrafterSource(choice.load, tokenizer.vocabulary)
        return BatchDrafter(own, DraftConfig(drafter="context", log_steps=0), cost=times)
    past = sources.past
    paths: dict[str, Any] = {
        role: tuple(str(each.path) for each in found)
        if role == "datastores"
        else str(found[0].path)
        for role, found in choice.artifacts.items()
    }
    named = None if past.path is None else str(past.path)
    history = named or past.store or None
    config = DraftConfig(
        drafter=str(choice.spec),
        **paths,
        history=history if drafter_entry(choice.spec.name).uses("history") else None,
        history_tokens=past.tokens,
        history_prompts=prompts,
        store=past.store,
        log_steps=0,
    )
    return BatchDrafter.open(
        config, vocabulary=tokenizer.vocabulary, cost=times, tokenizer=tokenizer, writes=False
    )
