import numpy as np
from hypothesis import given, settings, strategies as st
from twins import kernels as reference

from ngramkit.kernels.jit import entry
from ngramkit.kernels.rest import match_longest_then_shorter
from ngramkit.kernels.suffix import search
from ngramkit.kernels.suffix.search import find_from_python, shard_table
from ngramkit.kernels.suffix.sort import sort_shard

narrow = entry(search.narrow_interval.py_func)
EVERY = 1 << 62

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


def drafted(table, context, *, longest, least=1, budget=40, deepest=6, eos=-1, most=EVERY):
    """REST's draft, which finds the longest match and what follows it: (tree, match, left_out)."""
    rules = np.array([longest, least, deepest, eos], np.int64)
    return match_longest_then_shorter(
        table, np.array(context, np.int32), len(context), budget, rules, most
    )


def occurs(table, pattern, count):
    """Whether `pattern` is found exactly `count` times."""
    size = len(pattern)

    def found(most):
        return drafted(table, pattern, longest=size, least=size, most=most)[1:]

    if count == 0:
        return found(EVERY)[0] < size
    return found(count) == (size, 0) and found(count - 1) == (size, size)


def following(table, pattern, count, **options):
    """Rows (token, parent, depth, count) of the draft after a pattern that occurs `count` times."""
    size = len(pattern)
    tree, _, _ = drafted(table, pattern, longest=size, least=size, **options)
    rows, depths = [], {-1: 0}
    for i, (token, parent, share) in enumerate(zip(*(c.tolist() for c in tree[:3]), strict=True)):
        depths[i] = depths[parent] + 1
        rows.append((token, parent, depths[i], round(share * count)))
    return rows


@settings(max_examples=60, deadline=None)
@given(SHARDS, VOCABULARIES, TEXT.filter(len), st.booleans())
def test_patterns_are_found_where_they_stand(documents, vocabulary, pattern, wide):
    shards = [shard_of(held, vocabulary) for held in documents]
    table, held = table_of(shards, vocabulary, wide=wide)
    pattern = spread(pattern, vocabulary)
    expected = reference.matches(shards, pattern)
    assert occurs(table, pattern, len(expected))
    counts = reference.continuations(shards, pattern, 6, vocabulary, -1)
    rows = reference.choose_most_frequent_nodes(counts, 40)
    assert following(table, pattern, len(expected)) == rows
    intervals = np.array([find_from_python(shard, np.array(pattern, np.int32)) for shard in table])
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
    table, _held = table_of(shards, vocabulary)
    context = spread(context, vocabulary)
    if foreign and context:  # ids that no text has: the separator itself, and beyond
        context[len(context) // 2] = vocabulary + len(context) % 2
    texts = [[-1 if t == vocabulary else t for t in tokens] for tokens in shards]
    size = reference.longest_match(texts, context, longest)

    def found(most=EVERY):
        return drafted(table, context, longest=longest, least=max(size, 1), most=most)

    (tokens, parents, *_), *rest = found()
    assert rest == [size, 0]
    if size:
        pattern = context[-size:]
        count = len(reference.matches(texts, pattern))
        assert [found(count)[2], found(count - 1)[2]] == [0, size]
        counts = reference.continuations(shards, pattern, 6, vocabulary, -1)
        rows = [row[:2] for row in reference.choose_most_frequent_nodes(counts, 40)]
        assert list(zip(tokens.tolist(), parents.tolist(), strict=True)) == rows


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
    count = len(reference.matches(shards, pattern))
    found = following(table, pattern, count, budget=budget, deepest=deepest, eos=eos)
    counts = reference.continuations(shards, pattern, deepest, vocabulary, eos)
    assert found == reference.choose_most_frequent_nodes(counts, budget)


def test_wide_intervals_give_exact_counts_through_the_grid():
    generator = np.random.default_rng(0)
    for vocabulary, parts in ((200, 1), (200, 3), (70_000, 2), (200, 9), (200, 40)):
        shards = []
        for _ in range(parts):
            text = np.minimum(generator.zipf(1.4, 30_000 // parts), vocabulary - 1)
            text[::3] = 0  # one token before every third: an interval of ten thousand
            shards.append([*text.tolist(), vocabulary])
        table, _held = table_of(shards, vocabulary)
        count = sum(shard.count(0) for shard in shards)
        assert occurs(table, [0], count)
        counts = reference.continuations(shards, [0], 3, vocabulary, -1)
        for budget in (1, 7, 64):
            found = following(table, [0], count, budget=budget, deepest=3)
            assert found == reference.choose_most_frequent_nodes(counts, budget)


def test_beyond_the_probes_counts_stay_exact_and_the_frequent_are_there():
    followers = list(range(1, 9_001))  # once each, but for two
    text = [t for f in followers for t in (0, f)] + [0, 500] * 400 + [0, 8_000] * 30
    for parts in (1, 3, 40):
        size = len(text) // (2 * parts) * 2
        ends = [*range(size, size * parts, size), len(text)]
        shards = [[*text[i:j], 9_001] for i, j in zip([0, *ends], ends, strict=False)]
        table, _held = table_of(shards, 9_001)
        assert occurs(table, [0], 9_430)
        found = following(table, [0], 9_430, budget=64, deepest=1)
        assert len(found) == 64
        assert found[:2] == [(500, -1, 1, 401), (8_000, -1, 1, 31)]
        assert {count for *_, count in found[2:]} == {1}
