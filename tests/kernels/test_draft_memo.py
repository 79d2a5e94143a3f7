import numpy as np
from hypothesis import given, settings, strategies as st

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters import rest
from ngramkit.drafters.registry import load_drafter
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels import rest as kernels
from ngramkit.kernels.jit import allocating_entry

recall, remember = (allocating_entry(f.py_func) for f in (kernels.recall, kernels.remember))

HIGHEST = (1 << 31) - 2  # token
TREES = st.lists(st.tuples(st.integers(0, HIGHEST), st.integers(1, 31), st.integers(1, 1 << 40)))
PATTERNS = st.lists(st.sampled_from([0, 1, HIGHEST]), min_size=1, max_size=kernels.LENGTH + 2)


def rows_of(tree):
    """int64[n, 4]: token, an earlier node or the root, depth, count."""
    rows = [(token, depth % (i + 1) - 1, depth, n) for i, (token, depth, n) in enumerate(tree)]
    return np.array(rows, np.int64).reshape(-1, 4)


def recalled(table, pattern, budget):
    found, total = recall(table, np.array(pattern, np.int32), budget)
    return found.tolist(), total


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PATTERNS, st.integers(1, 3), TREES), max_size=12), st.integers(1, 4))
def test_recall_gives_the_last_remembered_draft_or_nothing(drafts, rows):
    table, kept = kernels.new_draft_memo(rows), {}
    for number, (pattern, budget, tree) in enumerate(drafts):
        found = rows_of(tree)
        remember(table, np.array(pattern, np.int32), budget, found, number)
        if len(found) and len(pattern) <= kernels.LENGTH:
            kept[tuple(pattern), budget] = found.tolist(), number
            assert recalled(table, pattern, budget) == kept[tuple(pattern), budget]
    for pattern, budget, _ in drafts:
        answer = recalled(table, pattern, budget)
        assert answer == ([], 0) or answer == kept[tuple(pattern), budget]


@settings(max_examples=60, deadline=None)
@given(st.data(), PATTERNS.filter(lambda p: len(p) <= kernels.LENGTH), TREES.filter(len))
def test_a_row_that_another_thread_was_writing_is_not_used(data, pattern, tree):
    table = kernels.new_draft_memo(1)
    remember(table, np.array(pattern, np.int32), 64, rows_of(tree), 7)
    used = kernels.FIRST + 2 * len(tree)
    word = data.draw(st.integers(0, used - 1))
    table[0, word] += data.draw(st.integers(1, 1 << 40))
    assert recalled(table, pattern, 64) == ([], 0)


def test_large_drafts_are_not_memoized():
    table = kernels.new_draft_memo(1)
    pattern = np.ones(1, np.int32)
    for budget, size in ((kernels.NODES + 1, 1), (64, kernels.NODES + 1), (64, 0)):
        remember(table, pattern, budget, rows_of([(1, 1, 1)] * size), 5)
        assert not table.any()


def slot_of(row, rows):
    """Where `recall` looks for what the row holds, in numbers of any size."""
    value = int(row[kernels.BUDGET])
    first, count = kernels.PATTERN, int(row[kernels.MATCHED])
    for word in [count, *row[first : first + count].tolist()]:
        value = (value ^ word) * 0x2545F4914F6CDD1D % (1 << 64)
        value ^= value >> 29
    return value % rows


def test_a_draft_is_kept_where_it_is_looked_for(tmp_path):
    """Compiled into `draft`, too: a signed hash was another one behind a search than before it, as
    the compiler takes no product for one that overflows."""
    tokens = np.random.default_rng(3).integers(0, 5, 20_000).astype(np.uint16)
    record = TokenizerRecord("small", 5, "5" * 64, None)
    with ArtifactWriter(tmp_path / "tokens", "tokens", {"known": 1}) as writer:
        ends = np.array([0, len(tokens)], np.uint64)
        writer.write("shard-00000.safetensors", {"tokens": tokens, "documents": ends})
        counts = {"documents": 1, "tokens": len(tokens)}
        writer.commit(record, parameters={}, corpus={"id": "known"}, counts=counts)
    store = build_datastore(TokenStore.open(tmp_path / "tokens"), tmp_path / "store")
    drafter = load_drafter("rest", datastores=[store])
    for pattern in ([1], [2, 3], [4, 4]):
        for budget in range(30, 65):
            drafter.start(np.array([0, *pattern], np.int32))
            drafter.draft(budget)
            drafter.finish()
    [memo] = rest.MEMOS[store].values()
    rows = np.flatnonzero(memo[:, kernels.SUM])
    assert len(rows) > 30
    assert [slot_of(memo[row], len(memo)) for row in rows] == rows.tolist()
