import numpy as np
import pytest
import torch

from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.request import Request


def states(rows, begin=0):
    """[1, 2, rows, 3], every number different."""
    return torch.arange(begin, begin + 6 * rows, dtype=torch.float32).view(1, 2, rows, 3)


@pytest.mark.parametrize("kept", [[0], [0, 1, 2], [0, 3], [0, 1, 4], [0, 2, 3, 4]])
@pytest.mark.parametrize("room", [1, 100])
def test_keep_selects_rows_of_the_last_pass(kept, room):
    cache = InPlaceCache(2, room)
    first, second, third = states(4), states(5, 100), states(2, 200)
    for layer in range(2):
        cache.update(first + layer, first - layer, layer)
    cache.length = 4
    for layer in range(2):
        keys, _ = cache.update(second + layer, second - layer, layer)
        assert torch.equal(keys, torch.cat([first, second], -2) + layer)
    cache.keep(kept)
    assert cache.get_seq_length() == 4 + len(kept)
    expected = torch.cat([first, second[:, :, kept], third], -2)
    for layer in range(2):
        keys, values = cache.update(third + layer, third - layer, layer)
        assert torch.equal(keys, expected + layer)
        assert torch.equal(values, expected - layer)


def test_layers_that_share_keys_need_none():
    cache = InPlaceCache(2, 10)
    cache.update(states(3), states(3), 0)
    cache.keep([0, 2])
    assert cache.get_seq_length() == 2


def wide(rows, tokens, begin=0):
    """[rows, 2, tokens, 3], every number different."""
    shape = (rows, 2, tokens, 3)
    return torch.arange(begin, begin + 6 * rows * tokens, dtype=torch.float32).view(shape)


@pytest.mark.parametrize("room", [1, 100])
def test_all_rows_hold_the_one_that_was_kept(room):
    cache = InPlaceCache(1, room)
    first = wide(1, 4)
    cache.update(first, -first, 0)
    cache.length = 4
    known = first
    for rows, kept, tokens in [(3, 2, 2), (1, 0, 1), (5, 4, 3), (2, 0, 2), (5, 1, 1)]:
        new = wide(rows, 3, 1000 * rows)
        keys, values = cache.update(new, -new, 0)
        assert torch.equal(keys, torch.cat([known.expand(rows, -1, -1, -1), new], -2))
        assert torch.equal(values, -keys)
        cache.in_place[0].spread(kept, cache.length, cache.length + tokens)
        cache.length += tokens
        known = torch.cat([known, new[kept : kept + 1, :, :tokens]], -2)
    assert cache.get_seq_length() == known.shape[-2]


def test_memory_follows_the_text_and_not_the_longest_possible_answer():
    """An answer of `max_new_tokens=100_000` mostly ends long before; a prompt is whole."""
    for prompt, most, room in ((4, 100_000, 4096), (30_000, 100_000, 4096), (30_000, 128, 128)):
        request = Request(np.zeros(prompt, np.int32), max_new_tokens=most, budget=16)
        cache = InPlaceCache(1, room=request.room)
        cache.update(states(prompt), states(prompt), 0)
        assert cache.bytes == (prompt + room + 16) * 2 * 2 * 3 * 4
    short = InPlaceCache(1, room=10)
    short.update(states(4), states(4), 0)
    assert short.bytes == 10 * 2 * 2 * 3 * 4
