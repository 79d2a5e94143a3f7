"""Options of `ngramkit bench --task needle`, and how its figures are said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit.errors import UsageError

if TYPE_CHECKING:
    from ngramkit.evaluate.needle_test import NeedleResults

SIZES = {"k": 1 << 10}


@dataclass(frozen=True)
class NeedleOptions:
    """What is hidden where. A field is an option."""

    task: Annotated[
        str,
        typer.Option(
            metavar="questions|needle",
            help="questions: the speed of drafters. needle: what a cache forgets.",
        ),
    ] = "questions"
    lengths: Annotated[
        str, typer.Option(metavar="N,...", help="Tokens of the haystacks, like 1k,2k,4k.")
    ] = "1k,2k"
    depths: Annotated[int, typer.Option(min=1, help="Places in each haystack.")] = 5
    needles: Annotated[int, typer.Option(min=1, help="Needles for each place.")] = 1
    haystack: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Any text. Default: the standard library's docstrings."),
    ] = None
    cache: Annotated[
        str, typer.Option(metavar="NAME,...", help="Which of full, low-bit, specache to compare.")
    ] = "full,low-bit,specache"
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A picture: length by depth, per cache.")
    ] = None

    @property
    def is_needle(self) -> bool:
        """Raises UsageError for another task."""
        if self.task not in ("questions", "needle"):
            raise UsageError(
                f"there is no task called {self.task!r}", "questions, needle", option="task"
            )
        return self.task == "needle"

    @property
    def token_lengths(self) -> list[int]:
        """Raises UsageError where one is no number."""
        found = []
        for part in self.lengths.lower().split(","):
            number, unit = (part[:-1], part[-1]) if part[-1:] in SIZES else (part, "")
            if not number.isdecimal() or len(number) > 9:
                raise UsageError(
                    f"lengths {part!r} is no number of tokens", "write 1k,2k", option="lengths"
                )
            found.append(int(number) * SIZES.get(unit, 1))
        return found


def needle_lines(results: NeedleResults) -> list[str]:
    """One line per cache."""
    lines = [f"{'':12}{'exact':>10}{'nats/token':>12}{'mass fetched':>14}"]
    for row in results.summary():
        held = "" if row["mass_held"] is None else f"{row['mass_held']:.1%}"
        note = "" if row["lossless"] else "   not lossless"
        lines.append(f"{row['cache']:12}{row['exact']:>10.0%}{row['loss']:>12.3f}{held:>14}{note}")
    return lines
