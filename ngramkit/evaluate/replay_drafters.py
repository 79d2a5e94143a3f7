"""The drafters of a replay, each once or once for each artifact of a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ngramkit.basics.errors import UsageError, require_list
from ngramkit.basics.kinds import ROLES
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.choose import (
    DrafterChoice,
    choose_again_if_built,
    choose_from_sources,
)
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.drafters.sources import Given, Sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.evaluate.records import Record
from ngramkit.evaluate.replay_answers import count_references
from ngramkit.evaluate.replay_tables import Curve
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.remote.fetch import fetch_artifact

Curves = Mapping[str, Sequence[Given]]  # name -> artifacts, each drafted from separately


def choose_drafters_to_replay(
    asked: Sequence[DrafterSpec],
    sources: Sources,
    curves: Curves | None,
    tokenizer: TokenizerRecord,
    *,
    evidence: bool,
    reporter: Reporter,
) -> tuple[list[DrafterChoice], list[Curve]]:
    def load_model() -> Any:
        from ngramkit.decode.load import load_model

        return load_model(tokenizer.id)

    def choose_one(drafter: DrafterSpec, sources: Sources) -> DrafterChoice:
        if drafter.needs_evidence and not evidence:
            return DrafterChoice(drafter.label, drafter, tokenizer)
        return choose_from_sources(drafter, tokenizer, sources, reporter, load_model, may_lack=True)

    if curves is not None:
        return _choose_by_curve(asked, curves, sources, choose_one, reporter)
    if len(asked) == 1:
        return [choose_one(asked[0], sources)], []
    choices = choose_again_if_built(lambda: [choose_one(each, sources) for each in asked], reporter)
    return choices, []


def _choose_by_curve(
    asked: Sequence[DrafterSpec],
    curves: Curves,
    sources: Sources,
    choose_one: Callable[[DrafterSpec, Sources], DrafterChoice],
    reporter: Reporter,
) -> tuple[list[DrafterChoice], list[Curve]]:
    """Choose each drafter once per artifact."""
    for name, given in curves.items():
        require_list(f"curve {name}", given, "Give a list of artifacts, as {'all': [...]}.")
    opened = {
        name: [fetch_artifact(each, reporter=reporter) for each in given]
        for name, given in curves.items()
    }
    by_place = {each.where: each for several in opened.values() for each in several}
    if not by_place:
        raise UsageError("a curve must name artifacts, got none", option="artifacts")
    short = short_names(list(by_place))
    choices: list[DrafterChoice] = []
    lines: list[Curve] = []
    for drafter in asked:
        if drafter.make is not None:
            raise UsageError(
                "drafters must be names if artifacts are curves, got an object", option="drafters"
            )
        labels = {place: f"{drafter} over {short[place]}" for place in by_place}
        for place, artifact in by_place.items():
            _require_drafts_from(drafter, artifact)
            choice = choose_one(drafter, replace(Sources.of(artifact), past=sources.past))
            choices.append(replace(choice, label=labels[place]))
        for name, several in opened.items():
            lines.append(Curve(str(drafter), name, tuple(labels[each.where] for each in several)))
    return choices, lines


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path or URL if these differ, else all of it.

    >>> short_names(["a/small", "b/large"]), short_names(["a/x", "b/x"])
    ({'a/small': 'small', 'b/large': 'large'}, {'a/x': 'a/x', 'b/x': 'b/x'})
    """
    last = [PurePosixPath(name).name or name for name in names]
    return dict(zip(names, last if len(set(last)) == len(names) else names, strict=True))


def _require_drafts_from(drafter: DrafterSpec, artifact: Artifact) -> None:
    if ROLES.get(artifact.kind) not in DRAFTERS[drafter.name].sources:
        raise UsageError(
            f"cannot use the {artifact.kind} {artifact.where} with {drafter.name}",
            "Leave out one of them.",
            option="artifacts",
        )


def report_lacking(
    choices: Sequence[DrafterChoice],
    records: Sequence[Record],
    reporter: Reporter,
    *,
    evidence: bool,
    learns: bool,
) -> dict[str, str | None]:
    """Return and report by label what a drafter lacks; raise if none can be replayed."""
    references = count_references(records) > 0
    lacking = {
        choice.label: choice.missing(evidence=evidence, learns=learns, references=references)
        for choice in choices
    }
    for label, needs in lacking.items():
        if needs:
            reporter.note(f"{label} is not replayed: it {needs}")
    if not all(lacking.values()):
        return lacking
    first = choices[0]
    if first.absent is not None:
        raise first.absent
    raise UsageError(
        f"cannot replay {first.label}: {lacking[first.label]}",
        "Give history or evidence, or name another drafter.",
        option=("history", "evidence"),
    )


def without_unusable_references(
    records: list[Record], choice: DrafterChoice, given: int, reporter: Reporter
) -> list[Record]:
    """Return the records, without references if the drafter cannot draft from them.

    `given`: the number of requests with references.
    """
    if choice.takes_references:
        return records
    reporter.note(f"{choice.label} drafts without the references of {counted(given, 'request')}")
    return [
        replace(record, turns=[replace(turn, references=()) for turn in record.turns])
        for record in records
    ]
