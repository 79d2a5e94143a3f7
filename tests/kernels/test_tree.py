import numpy as np
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramkit.kernels.tree import layout


@st.composite
def parent_lists(draw):
    size = draw(st.integers(0, 40))
    return [draw(st.integers(-1, i - 1)) for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(parent_lists())
def test_layout_agrees_with_paths_to_the_root(parents):
    depths, mask = layout(np.array(parents, np.int32), np.float32(-9.0))
    expected_depths, paths = reference.tree_layout(parents)
    assert depths.tolist() == expected_depths
    assert depths.dtype == np.int64
    assert mask.dtype == np.float32
    for row, path in enumerate(paths):
        seen = set(np.flatnonzero(mask[row] == 0.0).tolist())
        assert seen == path
        assert all(mask[row, column] == -9.0 for column in range(len(paths)) if column not in path)
