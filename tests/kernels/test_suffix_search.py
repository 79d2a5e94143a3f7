import numpy as np
from hypothesis import given, settings, strategies as st
from twins import kernels as reference

from ngramkit.kernels.jit import allocating_entry
from ngramkit.kernels.suffix import draft_tree, search
from ngramkit.kernels.suffix.search import shard_table
from ngramkit.kernels.suffix.sort import sort_shard

find_all, longest_match, narrow, most_frequent_continuations = (
    allocating_entry(kernel.py_func)
    for kernel in (
        search.find_all, search.longest_match, search.narrow,
        draft_tree.most_frequent_continuations,
    )
)  # fmt: skip

# small: u16, 70,000: u32; tokens are scaled so that the highest is the vocabulary's last
VOCABULARIES = st.sampled_from([4, 70_000])
TEXT = st.lists(st.integers(0, 3), max_size=30)
SHARDS = st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=9)


def spread(values, vocabulary):
    return [v * ((vocabulary - 1) // 3) for v in values]


def shard_of(documents, vocabulary):
    return [t for d in documents for t in [*spread(d, vocabulary), vocabulary]]


def table_of(shards, vocabulary, *, wide=False):
    """(table, what keeps it alive); `wide` makes the suffix arrays 64 bits wide. Every other shard
    has no buckets."""
    dtype = np.uint16 if vocabulary <= 0xFFFF else np.uint32
    held = []
    for tokens in shards:
        arrays = sort_shard(np.array(tokens, dtype), vocabulary)
        suffixes = arrays["suffix_array"].astype(np.int64 if wide else np.int32)
        bounds = arrays["first_token"][: 0 if len(held) % 2 else None]
        held.append((arrays["tokens"], suffixes, bounds))
    return shard_table(held), held


def positions(intervals, held):
    return sorted(
        (s, int(p))
        for s, (low, high) in enumerate(intervals.tolist())
        for p in held[s][1][low:high]
    )


@settings(max_examples=60, deadline=None)
@given(SHARDS, VOCABULARIES, TEXT.filter(len), st.booleans())
def test_patterns_are_found_where_they_stand(documents, vocabulary, pattern, wide):
    shards = [shard_of(held, vocabulary) for held in documents]
    table, held = table_of(shards, vocabulary, wide=wide)
    pattern = spread(pattern, vocabulary)
    intervals = np.zeros((len(shards), 2), np.int64)
    count = find_all(table, np.array(pattern, np.int32), intervals)
    expected = reference.matches(shards, pattern)
    assert count == len(expected)
    assert positions(intervals, held) == expected

    for s, shard in enumerate(table):  # token by token gives the same
        low, high = 0, len(shards[s])
        for depth, token in enumerate(pattern):
            low, high = narrow(shard, low, high, depth, token)
        assert positions(np.array([[low, high]]), held[s : s + 1]) == [
            (0, p) for t, p in expected if t == s
        ]


@settings(max_examples=60, deadline=None)
@given(SHARDS, VOCABULARIES, TEXT, st.integers(1, 12), st.booleans())
def test_the_longest_match_is_the_naive_one(documents, vocabulary, context, longest, foreign):
    shards = [shard_of(held, vocabulary) for held in documents]
    table, held = table_of(shards, vocabulary)
    context = spread(context, vocabulary)
    if foreign and context:  # ids that no text has: the separator itself, and beyond
        context[len(context) // 2] = vocabulary + len(context) % 2
    intervals = np.zeros((len(shards), 2), np.int64)
    length = longest_match(table, np.array(context, np.int32), longest, intervals)
    texts = [[-1 if t == vocabulary else t for t in tokens] for tokens in shards]
    assert length == reference.longest_match(texts, context, longest)
    expected = reference.matches(texts, context[-length:]) if length else []
    assert positions(intervals, held) == expected


@settings(max_examples=60, deadline=None)
@given(
    SHARDS,
    VOCABULARIES,
    TEXT.map(lambda t: t[:2]).filter(len),
    st.integers(0, 40),
    st.integers(1, 6),
    st.sampled_from([-1, 0, 3]),
)
def test_the_tree_is_the_naive_one(documents, vocabulary, pattern, budget, deepest, eos):
    shards = [shard_of(held, vocabulary) for held in documents]
    table, _held = table_of(shards, vocabulary)
    pattern = spread(pattern, vocabulary)
    eos = spread([eos], vocabulary)[0] if eos >= 0 else -1
    root = np.zeros((len(shards), 2), np.int64)
    count = find_all(table, np.array(pattern, np.int32), root)
    found, total = most_frequent_continuations(table, root, len(pattern), budget, deepest, eos)
    counts = reference.continuations(shards, pattern, deepest, vocabulary, eos)
    assert total == count
    assert [tuple(row) for row in found.tolist()] == reference.most_frequent_continuations(
        counts, budget
    )


def test_wide_intervals_give_exact_counts_through_the_grid():
    generator = np.random.default_rng(0)
    for vocabulary, parts in ((200, 1), (200, 3), (70_000, 2), (200, 9), (200, 40)):
        shards = []
        for _ in range(parts):
            text = np.minimum(generator.zipf(1.4, 30_000 // parts), vocabulary - 1)
            text[::3] = 0  # one token before every third: an interval of ten thousand
            shards.append([*text.tolist(), vocabulary])
        table, _held = table_of(shards, vocabulary)
        root = np.zeros((parts, 2), np.int64)
        find_all(table, np.zeros(1, np.int32), root)
        counts = reference.continuations(shards, [0], 3, vocabulary, -1)
        for budget in (1, 7, 64):
            found, _ = most_frequent_continuations(table, root, 1, budget, 3, -1)
            assert [tuple(row) for row in found.tolist()] == reference.most_frequent_continuations(
                counts, budget
            )


def test_beyond_the_probes_counts_stay_exact_and_the_frequent_are_there():
    followers = list(range(1, 9_001))  # once each, but for two
    text = [t for f in followers for t in (0, f)] + [0, 500] * 400 + [0, 8_000] * 30
    for parts in (1, 3, 40):
        size = len(text) // (2 * parts) * 2
        ends = [*range(size, size * parts, size), len(text)]
        shards = [[*text[i:j], 9_001] for i, j in zip([0, *ends], ends, strict=False)]
        table, _held = table_of(shards, 9_001)
        root = np.zeros((parts, 2), np.int64)
        find_all(table, np.zeros(1, np.int32), root)
        found, total = most_frequent_continuations(table, root, 1, 64, 1, -1)
        assert total == 9_430
        assert len(found) == 64
        assert found[:2].tolist() == [[500, -1, 1, 401], [8_000, -1, 1, 31]]
        assert set(found[2:, 3].tolist()) == {1}
