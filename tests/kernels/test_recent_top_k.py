"""The recent top-k: levels by token, a row for several tokens."""

import numpy as np

from ngramkit.kernels.blend.counts import clear_counts, new_candidates, row_of
from ngramkit.kernels.blend.evidence import (
    TOP_K_ROWS,
    forget_evidence,
    list_recent_top_k,
    new_evidence,
    raise_recent_top_k,
)

ONE, OTHER = 5, 5 + TOP_K_ROWS  # share a row


def listed(recent_top_k, *tokens_and_p, written=0):
    tokens, p = zip(*tokens_and_p, strict=True)
    ids, log_p = np.array([tokens], np.int32), np.log(np.array([p], np.float32))
    list_recent_top_k.py_func(recent_top_k, written, ids, log_p)


def raised(recent_top_k):
    into, raises = new_candidates(2 * TOP_K_ROWS), np.zeros(2, np.float32)
    clear_counts.py_func(into)
    for token in (ONE, OTHER):
        row_of.py_func(into, token)
    raise_recent_top_k.py_func(recent_top_k, np.float32(1), into, raises)
    return raises.tolist()


def test_of_tokens_that_share_a_row_the_likelier_has_it():
    for tokens in ([(ONE, 0.1), (OTHER, 0.2)], [(OTHER, 0.2), (ONE, 0.1)]):
        evidence = new_evidence(1)
        listed(evidence.recent_top_k, *tokens)
        assert raised(evidence.recent_top_k) == [0, np.float32(np.log(200))]
    forget_evidence(evidence)
    assert raised(evidence.recent_top_k) == [0, 0]


def test_a_row_is_lost_to_what_was_listed_since():
    recent_top_k = new_evidence(1).recent_top_k
    listed(recent_top_k, (ONE, 0.3), written=4)
    listed(recent_top_k, (OTHER, 0.2), (-1, 1.0), (ONE, 0.9))
    assert raised(recent_top_k)[0] == 0
    assert raised(recent_top_k)[1] > 5
