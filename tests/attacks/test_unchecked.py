"""Unchecked values: kernels clip or skip values that point outside their arrays.

Artifacts are opened here without the check of their values, in a forked child; there is none of a
suffix array's own values, which kernels trust (see ngramkit.kernels.suffix.search). The draft may
be nonsense, or an exception; the process lives, and nothing outside is read or written.
"""

from __future__ import annotations

import numpy as np
import pytest

from attacks import tally
from attacks.crafted import craft
from attacks.fuzz import fuzz, mutate_trusting, warmed

FAR = (1 << 62, 1 << 40, (1 << 63) + 5, (1 << 64) - 1)
VALUES = {
    "datastore": ("first_token", FAR),
    "frozen-table": ("follower_offsets", FAR),
    "model-bigram": ("extended", (24, 9000, 65535)),
    "model-unigram": ("tokens", (24, 9000, 65535)),
}
MUTATED = 100  # of each kind, at random


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return warmed(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", VALUES)
def test_no_value_leads_outside(whole, kind):
    name, values = VALUES[kind]

    def change(folder, kind, seed):
        def fill(arrays):
            flat = arrays[name].reshape(-1)
            first = 1 if seed % 2 else 0  # all but the first, or all
            flat[first:] = np.array([values[seed // 2]], np.uint64).astype(flat.dtype)

        craft(folder, fill)

    seeds = range(2 * len(values))
    report = fuzz(kind, whole[kind], seeds, checked=False, change=change)
    assert not report.failures
    tally("crafted values, drafted from unchecked", "the process lives", len(seeds))


@pytest.mark.parametrize("kind", VALUES)
def test_random_values_kill_no_process(whole, kind):
    seeds = range(2_000_000, 2_000_000 + MUTATED)
    report = fuzz(kind, whole[kind], seeds, checked=False, change=mutate_trusting)
    assert not report.failures
    tally("mutated artifacts, drafted from unchecked", "the process lives", MUTATED)
