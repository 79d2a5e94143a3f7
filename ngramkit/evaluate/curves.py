"""Curves of tokens/step against bytes: the same drafters over one artifact after another.

A curve is a way of getting smaller, as pruning or a sample of documents: artifacts of several
sizes. What one artifact gives is replayed once, in however many curves it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ngramkit.choose import DrafterChoice
from ngramkit.drafters.registry import DRAFTERS, DrafterSpec
from ngramkit.drafters.sources import Given, Sources, open_given
from ngramkit.errors import UsageError
from ngramkit.evaluate.simulation import Replay
from ngramkit.formats.artifact import Artifact
from ngramkit.kinds import ROLES
from ngramkit.progress import Reporter

Curves = Mapping[str, Sequence[Given]]  # name -> artifacts
ByBytes = dict[str, dict[str, list[tuple[int, float]]]]
Choose = Callable[[str, Sources], DrafterChoice]


class Curve(NamedTuple):
    """A line of the picture: one drafter over the artifacts of one curve."""

    drafter: str
    name: str
    labels: tuple[str, ...]  # of its replays


def choose_along(
    drafters: Sequence[Any], curves: Curves, choose: Choose, reporter: Reporter
) -> tuple[list[DrafterChoice], list[Curve]]:
    """Choose every drafter over each artifact of the curves by itself.

    Raises UsageError where a drafter does not draft from such a kind, or is no name.
    """
    artifacts = {
        name: [open_given(each, reporter) for each in given] for name, given in curves.items()
    }
    by_name = {each.name: each.artifact for several in artifacts.values() for each in several}
    if not by_name:
        raise UsageError("the curves name no artifact", "name two or more", option="artifacts")
    short = short_names(list(by_name))
    choices: list[DrafterChoice] = []
    drawn: list[Curve] = []
    for drafter in dict.fromkeys(drafters):
        if not isinstance(drafter, str):
            raise UsageError("curves are of drafters by name", "leave one out", option="artifacts")
        spec = DrafterSpec.parse(drafter)
        labels = {name: f"{spec} over {short[name]}" for name in by_name}
        for name, artifact in by_name.items():
            choice = choose(drafter, _only(artifact, spec))
            choices.append(replace(choice, label=labels[name]))
        for curve, several in artifacts.items():
            drawn.append(Curve(str(spec), curve, tuple(labels[each.name] for each in several)))
    return choices, drawn


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path or URL, where that tells them apart; else all of it.

    >>> short_names(["a/small", "b/large"]), short_names(["a/x", "b/x"])
    ({'a/small': 'small', 'b/large': 'large'}, {'a/x': 'a/x', 'b/x': 'b/x'})
    """
    last = [PurePosixPath(name).name or name for name in names]
    return dict(zip(names, last if len(set(last)) == len(names) else names, strict=True))


def _only(artifact: Artifact, drafter: DrafterSpec) -> Sources:
    if ROLES.get(artifact.kind) not in DRAFTERS[drafter.name].sources:
        raise UsageError(
            f"{drafter.name} does not draft from the {artifact.kind} {artifact.where}",
            "leave out one of them",
            option="artifacts",
        )
    return Sources.of(artifact).recorded()


def by_bytes(results: Sequence[Replay], curves: Sequence[Curve], budget: int) -> ByBytes:
    """Return {drafter: {curve: [(bytes, tokens/step), ...]}} at `budget`, smallest first."""
    steps = {r.drafter: (r.bytes, r.total.tokens_per_step) for r in results if r.budget == budget}
    points: ByBytes = {}
    for curve in curves:
        line = sorted(steps[label] for label in curve.labels)
        points.setdefault(curve.drafter, {})[curve.name] = line
    return points
