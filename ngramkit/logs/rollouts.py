"""Samples of reinforcement learning as token ids with a mask of what the model wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from ngramkit.errors import InputError
from ngramkit.logs.request import LoggedRequest

STEP = re.compile(r"(?:step|rollout)_?(\d{1,12})")


def step_of(where: str) -> str:
    """Return the step of training that a path names; "" where it names none.

    >>> step_of("out/rollouts/step_12/train/all/traces.jsonl, line 3")
    '12'
    """
    found = STEP.findall(where)
    return found[-1] if found else ""


def masked_requests(
    where: str,
    ids: Sequence[int],
    mask: Sequence[int],
    *,
    name: str = "",
    kind: str = "all",
    run: str = "",
    text: str = "",
) -> Iterator[LoggedRequest]:
    """Yield a request for each stretch of ids whose mask is not 0, after all ids before it.

    `text`: of the only stretch. Raises InputError where the mask has another length.
    """
    if len(mask) != len(ids):
        raise InputError(f"{where}: the mask is not as long as the token ids")
    lengths = [len(list(same)) for _, same in groupby(map(bool, mask))]
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    written = [(begin, end) for begin, end in pairwise(ends) if mask[begin]]
    for turn, (begin, end) in enumerate(written):
        yield LoggedRequest(
            list(ids[:begin]), list(ids[begin:end]), name, kind, run=run, turn=turn,
            text=text if len(written) == 1 else "",
        )  # fmt: skip
