"""The ancestor mask, against the paths from every row to the root."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from twins.kernels import tree_layout

from ngramkit.decode.masks import ancestor_mask


@st.composite
def parent_lists(draw):
    size = draw(st.integers(0, 40))
    return [draw(st.integers(-1, i - 1)) for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(parent_lists())
def test_a_row_sees_itself_and_its_ancestors(parents):
    seen = ancestor_mask(np.array(parents, np.int32))
    expected_depths, paths = tree_layout(parents)
    assert (seen.sum(-1) - 1).tolist() == expected_depths
    assert [set(np.flatnonzero(row).tolist()) for row in seen] == paths
