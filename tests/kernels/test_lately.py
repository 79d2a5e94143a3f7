"""What was listed lately: levels by token, a row for several tokens."""

import numpy as np

from ngramkit.kernels.blend.lately import (
    LATELY_ROWS,
    forget_lately,
    list_lately,
    new_lately,
    raise_lately,
)
from ngramkit.kernels.blend.table import clear, new_candidates, row_of

ONE, OTHER = 5, 5 + LATELY_ROWS  # share a row


def listed(lately, *tokens_and_p, written=0):
    tokens, p = zip(*tokens_and_p, strict=True)
    ids, log_p = np.array([tokens], np.int32), np.log(np.array([p], np.float32))
    list_lately.py_func(lately, written, ids, log_p)


def raised(lately):
    into, raises = new_candidates(2 * LATELY_ROWS), np.zeros(2, np.float32)
    clear.py_func(into)
    for token in (ONE, OTHER):
        row_of.py_func(into, token)
    raise_lately.py_func(lately, np.float32(1), into, raises)
    return raises.tolist()


def test_of_tokens_that_share_a_row_the_likelier_has_it():
    for tokens in ([(ONE, 0.1), (OTHER, 0.2)], [(OTHER, 0.2), (ONE, 0.1)]):
        lately = new_lately()
        listed(lately, *tokens)
        assert raised(lately) == [0, np.float32(np.log(200))]
    forget_lately(lately)
    assert raised(lately) == [0, 0]


def test_a_row_is_lost_to_what_was_listed_since():
    lately = new_lately()
    listed(lately, (ONE, 0.3), written=4)
    listed(lately, (OTHER, 0.2), (-1, 1.0), (ONE, 0.9))
    assert raised(lately)[0] == 0
    assert raised(lately)[1] > 5
