"""What a fixed-size pass is told, and which sizes there are."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import tree_of

from ngramkit.budget.static_sizes import SIZES, padded
from ngramkit.decode.static import reach_of
from ngramkit.decode.static_pass import ancestors, packed
from ngramkit.drafters.base import DraftTree
from ngramkit.kernels.tree import layout


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=100))
def test_what_a_pass_is_told(numbers):
    parents = [number % (node + 1) - 1 for node, number in enumerate(numbers)]
    tree = tree_of([(1000 + node, parent) for node, parent in enumerate(parents)])
    whole = packed(17, 42, tree)
    rows, end = padded(len(tree)) + 1, len(tree) + 1
    assert len(whole) == 1 + 2 * rows
    assert whole[0] == 17
    assert whole[1 : 1 + end].tolist() == [42, *tree.token_ids]
    seen = ancestors(torch.from_numpy(whole[1 + rows :]))
    depths, mask = layout(tree.parents, np.float32(-1))
    np.testing.assert_array_equal(seen[:end, :end].numpy(), mask == 0)
    np.testing.assert_array_equal(seen.sum(-1)[:end].numpy() - 1, depths)
    # What fills up sees itself, and nothing sees it.
    np.testing.assert_array_equal(seen[end:].numpy(), np.eye(rows, dtype=bool)[end:])
    assert not seen[:end, end:].any()


def test_sizes_of_passes():
    assert [padded(n) for n in (0, 1, 8, 9, 33, 64, 96, 97, 128, 129)] == [
        0, 8, 8, 16, 64, 64, 96, 128, 128, 160,
    ]  # fmt: skip
    assert [padded(size) for size in SIZES] == list(SIZES)
    assert [reach_of(n) for n in (1, 256, 257, 512, 513)] == [256, 256, 512, 512, 1024]
    assert len(packed(3, 1, DraftTree.empty())) == 3
