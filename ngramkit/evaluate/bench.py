"""`ngramkit.bench`: compare drafters with each other and with no drafts on a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import busy_note, require_package
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.choose import (
    DrafterChoice,
    choose_again_if_built,
    choose_from_sources,
    require_named,
)
from ngramkit.corpus.chat import find_template, require_template
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import PendingModel, open_pending_model
from ngramkit.drafters.asked import asked_drafters, label_among, listed_drafters
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.sources import Given, Sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.evaluate.bench_contest import (
    TOO_LONG,
    Bench,
    Contestant,
    plan_of,
    question_facts,
    questions_that_fit,
)
from ngramkit.evaluate.bench_figures import is_transformers
from ngramkit.evaluate.bench_runs import (
    BASELINE_DRAFTER,
    Runs,
    alone_in,
    require_begun_with,
    require_room,
)
from ngramkit.evaluate.bench_tables import BenchResults, write_results
from ngramkit.evaluate.provenance import given_words, provenance_of
from ngramkit.evaluate.question_sets import pin_question_set
from ngramkit.evaluate.records import Question, questions_for, require_questions

if TYPE_CHECKING:
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel

DEFAULT_DRAFTERS = ("blend", "rest", "cacheback", "ssd")  # those without sources are left out
DEFAULT_NEW_TOKENS = 256
NOT_OPTIONS = ("reporter", "force")


def bench(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | Path | LanguageModel | None = None,
    *,
    drafters: Sequence[str | Callable[[], Drafter]] | str = (),
    artifacts: Sources | Sequence[Given] | Given = (),
    template: str = "auto",
    max_new_tokens: int = DEFAULT_NEW_TOKENS,
    stop: Sequence[str] = (),
    limit: int | None = None,
    baseline: str | Callable[[], Drafter] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
    budget: int | Literal["auto"] | None = None,
    verify: str | None = None,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> BenchResults:
    """Measure `drafters` (default: all that fit) and no drafter on `questions`.

    `questions`: a file or a named set, see ngramkit.evaluate.records, or Questions (default: the
    embedded model's prompts). `drafters`: as in `choose_drafter`, optionally with a `budget` each,
    or transformers' generate and generate-lookup. `template`: auto is the model's own, else the one
    known for its name. `limit`: only the first questions. `baseline`: ratios divide by this one of
    the drafters. Others: as in `DecodeOptions`. `out`: folder of the results (default:
    bench/QUESTIONS-MODEL, see evaluate.result_folder), which the same call continues; `force`
    starts over.

    Raises UsageError for options that cannot work, and if `out` holds another benchmark.
    """
    if isinstance(drafters, Iterator):
        drafters = list(drafters)
    given = {name: value for name, value in locals().items() if name not in NOT_OPTIONS}
    listed = listed_drafters(drafters)
    check_types(bool, force=force)
    ways, asked = _asked_contestants(listed, reporter)
    labels = [*ways, *(each.label for each in asked)]
    baseline = label_among(baseline, [BASELINE_DRAFTER, *labels])
    require_package("matplotlib", "write the report")
    require_template(template)
    require_questions(questions)
    if out is not None:
        require_room(Path(out))
    options = DecodeOptions(
        model,
        artifacts=artifacts,
        max_new_tokens=max_new_tokens,
        stop=stop,
        reporter=reporter, budget=budget, verify=verify,
        datastores=datastores, frozen_table=frozen_table, bigram=bigram, unigram=unigram,
        history=history, history_tokens=history_tokens, store=store,
        temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        device=device, dtype=dtype, device_map=device_map, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    questions = given["questions"] = pin_question_set(questions)
    prepared = open_pending_model(options)
    wanted = questions_for(questions, prepared.tokenizer.record.id, limit, reporter)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    sources = options.sources().recorded()
    require_named(sources, reporter)
    sources.past.require_usable(prepared.tokenizer.record)
    folder = Path(out or Path("bench") / f"{wanted.name}-{Path(prepared.name).name}")
    require_room(folder)
    settings = {
        "model": prepared.name,
        "questions": wanted.name,
        "template": form.name,
        "max_new_tokens": options.max_new_tokens,
        "stop": list(options.stop),
        "sampling": asdict(options.sampling),
        **({} if options.verify is None else {"verify": options.verify}),
    }
    if not force:  # fail before building artifacts and loading the model
        known = {**settings, "budget": options.budget or "auto"}
        if prepared.context is not None:
            known |= question_facts(questions_that_fit(wanted, prepared, form))
        require_begun_with(folder, known)
    choose_all = partial(
        _choose_drafters, asked, prepared, sources, named=len(labels) if listed else 0
    )
    choices, missing = (
        choose_all() if len(labels) == 1 else choose_again_if_built(choose_all, reporter)
    )
    labels = [*ways, *(choice.label for choice in choices)]
    baseline = label_among(baseline, [BASELINE_DRAFTER, *labels])
    builds = sorted({each for choice in choices for each in choice.builds})
    settings |= {"drafters": labels, "artifacts": builds}
    if any(choice.past is not None for choice in choices):
        past, found = sources.past, sources.past.history(prepared.tokenizer.record)
        read = 0 if found is None else found.bytes
        settings["history"] = {"tokens": past.tokens, "store": past.store, "bytes": read}
    if not force:
        require_begun_with(folder, settings)
    decoder, choices = prepared.decoder(choices)
    from ngramkit.decode.load import device_facts  # imports torch, as the decoder has

    contestants = [
        *_transformers_ways(ways, decoder),
        *_prepare_drafters(choices, decoder, options),
    ]
    contest = Bench(decoder, contestants, wanted, form)
    if contest.too_long:
        reporter.note(TOO_LONG.format(counted(contest.too_long, "question")))
    plan = plan_of(contest, settings)
    with alone_in(folder):
        runs = Runs(folder, plan, force=force)
        if runs.found:
            reporter.note(f"resuming: {counted(runs.answers, 'answer')} in {folder} already")
        try:
            contest.run(runs, reporter)
        except KeyboardInterrupt:
            kept = counted(runs.answers, "answer")
            reporter.note(f"{kept} in {folder}; the same command resumes there")
            raise
        if note := busy_note(runs.others):
            reporter.note(note)
        words = {"model": prepared.name, "drafters": listed or labels, "baseline": baseline}
        made_by = provenance_of(
            "bench", given,
            {**given_words(bench, given), **words},
            files=[questions] if isinstance(questions, str | Path) else [],
            tokenizer=contest.model.tokenizer.record, sources=sources, choices=choices,
            seeds={"sampling": options.sampling.seed},
            device=device_facts(contest.model.model),
        )  # fmt: skip
        return write_results(contest, runs, plan, folder, made_by, reporter, missing, baseline)


def _asked_contestants(
    listed: Sequence[Any], reporter: Reporter
) -> tuple[list[str], list[DrafterSpec]]:
    """Return transformers' own methods, and the drafters; the default ones if none is listed."""
    names = [each for each in listed if each != BASELINE_DRAFTER] if listed else DEFAULT_DRAFTERS
    ways = list(dict.fromkeys(filter(is_transformers, names)))
    asked = asked_drafters(
        [each for each in names if not is_transformers(each)], reporter, DrafterSpec.with_budget
    )
    for each in asked:
        if each.make is None and each.name == BASELINE_DRAFTER:
            raise UsageError(
                f"drafters must name none without options, got {each.label!r}",
                "Write none.",
                option="drafters",
            )
    return ways, asked


def _choose_drafters(
    asked: Sequence[DrafterSpec], model: PendingModel, sources: Sources, *, named: int
) -> tuple[list[DrafterChoice], dict[str, str]]:
    """Return the choices, and what named drafters lack; of `named` ones at least one must run."""
    reporter, record = model.options.reporter, model.tokenizer.record
    choices: list[DrafterChoice] = []
    missing: dict[str, str] = {}
    for each in asked:
        choice = choose_from_sources(each, record, sources, reporter, model.load, may_lack=True)
        needs = choice.missing(evidence=True, learns=sources.past.store)
        if needs is None:
            choices.append(choice)
            continue
        if named and len(missing) + 1 == named:
            raise choice.absent or UsageError(
                f"cannot measure {each.label}: {needs}",
                "Give history, or name another drafter.",
                option="history",
            )
        if named:
            missing[each.label] = needs
        reporter.note(f"without {each.label}: {choice.absent or needs}")
    return choices, missing


def _transformers_ways(ways: Sequence[str], decoder: Decoder) -> list[Contestant]:
    if not ways:
        return []
    from ngramkit.decode.compare import answer_by, require_greedy_without_stop
    from ngramkit.decode.packed_weights import unpacked

    require_greedy_without_stop(decoder)
    model = replace(decoder.model, model=unpacked(decoder.model.model))
    return [Contestant(name, answer=partial(answer_by, name, model)) for name in ways]


def _prepare_drafters(
    choices: Sequence[DrafterChoice], decoder: Decoder, options: DecodeOptions
) -> Iterator[Contestant]:
    from ngramkit.decode.decoder import Decoder

    decoders = {
        budget: Decoder.settle(decoder.model, replace(options, budget=budget))
        for budget in dict.fromkeys(choice.spec.budget for choice in choices)
        if budget
    }
    for choice in choices:
        yield Contestant(
            choice.label,
            lambda remember, choice=choice: choice.load(forgetful=not remember),  # type: ignore[misc]
            choice.learns,
            decoders.get(choice.spec.budget),
            wants_evidence=choice.spec.needs_evidence,
        )
