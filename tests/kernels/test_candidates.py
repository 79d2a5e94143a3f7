"""The table of candidates, which every prediction empties by a new stamp."""

import numpy as np
import pytest

from ngramkit.kernels.blend.counts import (
    MAX_STAMP,
    clear_counts,
    count_token,
    listed_row,
    new_candidates,
)
from ngramkit.kernels.jit import entry
from ngramkit.kernels.packed_arguments import Packed


@entry
def counted(into, tokens):
    clear_counts(into)
    for i in range(len(tokens)):
        if i == 0:  # nothing is listed yet
            for token in range(len(into.rows)):
                if listed_row(into, token) >= 0:
                    return -1
        count_token(into, tokens[i], 0, 0)
    return into.state[0]


@pytest.mark.parametrize("stamp", [1, MAX_STAMP - 1, MAX_STAMP])
def test_a_token_has_one_row_after_any_number_of_predictions(stamp):
    into = new_candidates(9)
    counted(Packed(into), np.arange(9, dtype=np.int32))  # stamps of long ago
    into.state[1] = stamp
    for tokens in ([3, 5, 3], [4, 3, 4], [8]):
        rows = counted(Packed(into), np.array(tokens, np.int32))
        assert rows == len(set(tokens)), stamp
        assert into.tokens[:rows].tolist() == list(dict.fromkeys(tokens))
