"""Runs that write the same text, a pass of one and then of the other: for comparing their times.

A machine that other programs use is slower now and faster then, by a fifth within a second. Runs
one after another differ by that; runs in turns, a pass at a time, meet the same of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ngramkit.decode.loop import Run
from ngramkit.decode.result import Decoded


def in_lockstep(runs: Sequence[Run]) -> list[Decoded]:
    """All to their ends. Next is always a pass of the run that has written the fewest tokens, and
    each run's clock stands while it is another's turn. Ctrl-C is raised."""
    with torch.inference_mode():
        try:
            for run in runs:
                run.resume()
                run.begin()
            while going := [run for run in runs if not run.ended_by]:
                run = min(going, key=lambda each: each.tokens)
                run.resume()
                run.step()
        finally:
            for run in runs:
                run.resume()
                run.finish()
    return [run.result() for run in runs]
