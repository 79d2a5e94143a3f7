"""For how many requests at once drafts pay, by the times of passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.budget.pass_times import PassTimes

ASSUMED_ACCEPTANCE = 0.6  # of a typical drafted token, if those before it were accepted
ASSUMED_CONTEXT = 1024  # tokens
MAX_REQUESTS = 4096


class Gain(NamedTuple):
    drafted: float  # tokens for each request
    speed: float  # over no drafts
    padded: float  # the same if the whole draft of each request is verified, with its padding


def gain_of_drafts(
    times: PassTimes,
    requests: int,
    length: int,
    acceptance: float = ASSUMED_ACCEPTANCE,
    *,
    slots: int | None = None,
) -> Gain:
    """Return what drafts of at most `length` tokens gain for `requests` at once.

    As many tokens are verified as write the most in the pass's time, see `budget.batch`. `slots`:
    tokens of a padded draft, by default `length`.
    """
    chances = np.repeat(acceptance ** np.arange(1.0, length + 1), requests)
    written = requests + np.concatenate([[0.0], np.cumsum(chances)])
    tokens = requests + np.append(np.arange(len(written)), requests * (slots or length))
    spent = times.times(tokens.astype(np.float64), requests, ASSUMED_CONTEXT)
    rates = np.append(written, written[-1]) / spent
    best = int(np.argmax(rates[:-1]))
    return Gain(best / requests, float(rates[best] / rates[0]), float(rates[-1] / rates[0]))


def stops_paying(
    times: PassTimes,
    length: int,
    acceptance: float = ASSUMED_ACCEPTANCE,
    *,
    padded: bool = False,
    slots: int | None = None,
) -> int | None:
    """Return the least number of requests from which on no draft pays.

    `padded`: whole drafts are verified, with their padding to `slots` tokens. Returns None if
    drafts pay for MAX_REQUESTS, the largest number that is tried.
    """

    def pays(requests: int) -> bool:
        found = gain_of_drafts(times, requests, length, acceptance, slots=slots)
        return (found.padded if padded else found.speed) > 1

    if pays(MAX_REQUESTS):
        return None
    paying = max((n for n in (1 << i for i in range(12)) if pays(n)), default=0)
    idle = 2 * paying or 1
    while idle - paying > 1:
        middle = (idle + paying) // 2
        paying, idle = (middle, idle) if pays(middle) else (paying, middle)
    return idle
