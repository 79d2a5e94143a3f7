import pytest
import torch

from ngramkit.decode.cache import InPlaceCache


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
