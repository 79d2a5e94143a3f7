"""`ngramkit.replay`: recorded answers replayed with several drafters and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.arguments import check_fields, check_types, refuse_earlier_names
from ngramkit.basics.errors import UsageError, require_between
from ngramkit.basics.machine import require_package
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.choose import DrafterChoice, drafts_private_texts
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.asked import asked_drafters, label_among
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.drafters.spec import MAX_BUDGET
from ngramkit.evaluate.leakage import without_leaks
from ngramkit.evaluate.provenance import Provenance, given_words, provenance_of
from ngramkit.evaluate.question_sets import pin_question_set
from ngramkit.evaluate.recorded_evidence import RecordedEvidence
from ngramkit.evaluate.records import Record, checked_limit, units_of
from ngramkit.evaluate.replay_answers import (
    answers_or_evidence,
    count_references,
    distinct_budgets,
    has_sessions,
    named_files,
)
from ngramkit.evaluate.replay_drafters import (
    Curves,
    choose_drafters_to_replay,
    report_lacking,
    without_unusable_references,
)
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.replay_loop import replay_drafter
from ngramkit.evaluate.replay_page import ReplayPage, require_page
from ngramkit.evaluate.replay_tables import Replays
from ngramkit.evaluate.result_folder import replace_folder, require_replaceable_results
from ngramkit.evaluate.statistics import Units
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel

DEFAULT_BUDGETS = (8, 16, 32, 64, 96)  # draft nodes per pass

NOT_OPTIONS = ("reporter", "force")


@dataclass(frozen=True)
class KeepState:
    """Keep one drafter, which learns, for all requests.

    They are in order of time, or shuffled by `seed`, `repeat` times. `prompts`: remember prompts
    too.
    """

    seed: int | None = None
    repeat: int = 1
    prompts: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        require_between("repeat", self.repeat, 1)
        if self.seed is not None:
            require_between("seed", self.seed, 0, (1 << 64) - 1)

    def order(self, records: list[Record]) -> list[Record]:
        """Return the records in replay order; shuffled ones do not overlap."""
        if self.seed is None:
            length = 1 + max((turn.place for each in records for turn in each.turns), default=0)
            return [
                _with_places(each, [turn.place + n * length for turn in each.turns])
                for n in range(self.repeat)
                for each in records
            ]
        repeated = records * self.repeat
        order = np.random.default_rng(self.seed).permutation(len(repeated))
        return [
            _with_places(repeated[i], [n] * len(repeated[i].turns)) for n, i in enumerate(order)
        ]


def _kept_state(given: Any) -> KeepState | None:
    if isinstance(given, bool):
        return KeepState() if given else None
    if given is None or isinstance(given, KeepState):
        return given
    raise UsageError(
        f"keep_state must be True or a KeepState, got {given!r:.60}", option="keep_state"
    )


def _with_places(record: Record, places: Sequence[int]) -> Record:
    turns = [replace(turn, place=at) for turn, at in zip(record.turns, places, strict=True)]
    return replace(record, turns=turns)


@refuse_earlier_names(oracle="evidence")
def replay(
    answers: str | Path | Sequence[str | Path] | Sequence[Record] | None = None,
    questions: str | Path | None = None,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    model: str | Path | TextTokenizer | TokenizerRecord | LanguageModel | None = None,
    drafters: Sequence[str | Callable[[], Drafter]] | str = DEFAULT_DRAFTER,
    budgets: Sequence[int] = DEFAULT_BUDGETS,
    artifacts: Sources | Curves | Sequence[Given] | Given = (),
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    template: str = "auto",
    chain: bool = False,
    keep_state: KeepState | bool | None = None,
    drop_leaked: bool = False,
    limit: int | None = None,
    evidence: str | Path | None = None,
    baseline: str | Callable[[], Drafter] | None = None,
    out: str | Path | None = None,
    html: str | Path | None = None,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Replays:
    """Count the passes that drafters would have needed for recorded answers, without a model.

    `answers`, `questions`: see ngramkit.evaluate.records; or Records, with their TokenizerRecord as
    `model`. `format`, `columns`, `where`: see ngramkit.logs.read.read_log. `model`: whose tokenizer
    reads the answers (default: the model of `ngramkit use`). `template`: auto is the model's own,
    else the one known for its name.

    `evidence`: a folder of `record` instead of answers; its top-k is the evidence, and `model`, if
    given, is the recorded model or its name, and verifies missing contexts. `drafters`: as in
    `choose_drafter`. Sources: as in `decode`; `artifacts` may be {curve: artifacts}. `budgets`:
    draft nodes per pass. `chain`: drafts are one path. `drop_leaked`: leave out answers that a
    datastore's corpus or the history contains. `limit`: only the first records. `baseline`: ratios
    divide by this one of the drafters. `out`: a new folder for figures, tables and pictures, see
    evaluate.result_folder. `html`: a page with the first answers, pass by pass, at the first of
    `budgets`. `force` replaces what an earlier replay wrote.

    Raises UsageError for options that cannot work, InputError for files that cannot be read.
    """
    if isinstance(answers, Iterator):
        answers = list(answers)
    if isinstance(drafters, Iterator):
        drafters = list(drafters)
    given = {name: value for name, value in locals().items() if name not in NOT_OPTIONS}
    asked = asked_drafters(drafters, reporter)
    if not asked:
        raise UsageError("drafters must name at least one", option="drafters")
    curves = artifacts if isinstance(artifacts, Mapping) else None
    sources = given_sources(
        () if isinstance(artifacts, Mapping) else artifacts, datastores=datastores,
        frozen_table=frozen_table, bigram=bigram, unigram=unigram, history=history,
        history_tokens=history_tokens, store=store,
    )  # fmt: skip
    if curves is not None and sources != Sources():
        raise UsageError(
            "artifacts must be the only sources if they are curves, got others too",
            "Leave out the others.",
            option="artifacts",
        )
    check_types(bool, chain=chain, drop_leaked=drop_leaked)
    budgets = distinct_budgets(budgets, MAX_BUDGET)
    limit = checked_limit(limit)
    keep_state = _kept_state(keep_state)
    compared = None  # the label of `baseline`
    if baseline is not None and curves is None:
        compared = label_among(baseline, [each.label for each in asked])
    if out is not None:
        require_package("matplotlib", "the folder of results")
        require_replaceable_results(
            Path(out), named_files(answers, questions, evidence), force=force
        )
    if html is not None:
        require_page(html, force=force)
    if questions is not None and evidence is None:
        questions = given["questions"] = pin_question_set(questions)
    reading = {"format": format, "columns": columns, "where": where}
    read_by, records, form, recorded = answers_or_evidence(
        answers, questions, evidence, model, template, reading, reporter
    )
    tokenizer = record_of(read_by)
    page = None if html is None else ReplayPage(html, read_by, reporter=reporter)
    past = replace(sources.past, recorded=True)
    if keep_state is not None:
        past = replace(past, grows=True, prompts=keep_state.prompts)
    sources = replace(sources, past=past)
    choices, lines = choose_drafters_to_replay(
        asked, sources, curves, tokenizer, evidence=recorded is not None, reporter=reporter
    )
    if recorded is not None and model is not None:
        from ngramkit.evaluate.record import verifying_model

        recorded.model = verifying_model(recorded.folder, model, reporter)
    records = records[:limit]
    learns = keep_state is not None and past.store
    lacking = report_lacking(
        choices, records, reporter, evidence=recorded is not None, learns=learns
    )
    if baseline is not None and curves is not None:
        compared = label_among(baseline, [choice.label for choice in choices])
    if compared is not None and (needs := lacking[compared]):
        raise UsageError(
            f"cannot compare with {compared}: it {needs}", "Name another one.", option="baseline"
        )
    records, leakage = without_leaks(records, choices, drop_leaked, reporter)
    if keep_state is not None:
        records = keep_state.order(records)
    units = units_of(records, dependent=keep_state is not None)
    replays: list[Replay] = []
    for choice in choices:
        if needs := lacking[choice.label]:
            replays += [Replay(choice.label, n, missing=needs, units=units) for n in budgets]
        else:
            replays += _replay_with_budgets(
                choice, records, budgets, units, page, recorded,
                keep_state=keep_state is not None, chain=chain, reporter=reporter,
            )  # fmt: skip
    if recorded is not None and recorded.added:
        reporter.note(f"the model verified {recorded.added:,} contexts that were not on record")
    results = Replays(
        replays, leakage, None if form is None else form.name, lines,
        kept_state=keep_state is not None, units=units, baseline=compared,
    )  # fmt: skip
    words = {
        **_order_words(keep_state),
        "budget": ",".join(map(str, budgets)),
        "baseline": compared,
    }
    results.provenance = _provenance_of_call(given, words, tokenizer, sources, choices)
    if out is not None:
        results.folder = Path(out)
        replace_folder(results.folder, results.contents(), results.provenance, force=force)
    if page is not None:
        private = has_sessions(answers, records) or drafts_private_texts(sources, choices)
        page.write(budgets[0], chain=chain, private=private)
    return results


def _provenance_of_call(
    given: Mapping[str, Any],
    words: Mapping[str, Any],
    tokenizer: TokenizerRecord,
    sources: Sources,
    choices: Sequence[DrafterChoice],
) -> Provenance:
    """Return the provenance of the call with the parameters `given`; `words`: resolved ones."""
    said = given_words(replay, given, ("model", "budgets", "keep_state"))
    if given["model"] is not None or given["evidence"] is None:
        named = isinstance(given["model"], str | Path)
        said["model"] = given["model"] if named else tokenizer.id
    curves = given["artifacts"] if isinstance(given["artifacts"], Mapping) else None
    if curves is not None:
        said["curve"] = [
            f"{name}={each}" if name else str(each)
            for name, several in curves.items()
            for each in (x.where if isinstance(x, Artifact) else x for x in several)
        ]
    return provenance_of(
        "replay", given, {**said, **words},
        files=named_files(given["answers"], given["questions"], given["evidence"]),
        tokenizer=tokenizer, sources=sources if curves is None else None, choices=choices,
        seeds={"order": words.get("seed")},
    )  # fmt: skip


def _order_words(keep_state: KeepState | None) -> dict[str, Any]:
    if keep_state is None:
        return {}
    repeat = None if keep_state.repeat == 1 else keep_state.repeat
    prompts = keep_state.prompts or None
    return {"keep_state": True, "seed": keep_state.seed, "repeat": repeat, "prompts": prompts}


def _replay_with_budgets(
    choice: DrafterChoice,
    records: list[Record],
    budgets: Sequence[int],
    units: Units,
    page: ReplayPage | None,
    recorded: RecordedEvidence | None,
    *,
    keep_state: bool,
    chain: bool,
    reporter: Reporter,
) -> list[Replay]:
    """Replay with each budget. Contexts that the model verified are saved, even on Ctrl-C."""
    if referring := count_references(records):
        records = without_unusable_references(records, choice, referring, reporter)
    replays = []
    for nodes in budgets:
        reporter.stage(f"{choice.label}, {nodes} nodes", len(records), "conversations")
        try:
            result = replay_drafter(
                choice.label, choice.load, records, nodes,
                keep_state=keep_state, chain=chain, recorded_evidence=recorded,
                vocabulary=choice.tokenizer.vocabulary, reporter=reporter,
                watch=page.watch(choice.label) if page and nodes == budgets[0] else None,
            )  # fmt: skip
        finally:
            if recorded is not None:
                recorded.save()
        result.units = units
        result.bytes = sum(each.manifest.bytes for each in choice.opened)
        result.sources = choice.builds
        replays.append(result)
    return replays
