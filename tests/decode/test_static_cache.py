from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_model

from ngramkit.decode.static_cache import Shape, StaticCache, layer_shapes

CPU = torch.device("cpu")
KEYS, VALUES = Shape(2, 3, torch.float32), Shape(2, 5, torch.float32)
# Layers of two shapes, keys that differ from values, a layer that reads another's.
SHAPES = [(KEYS, KEYS), (KEYS, VALUES), None, (VALUES, VALUES)]


def states(shape, rows, begin):
    """[1, heads, rows, dim], every number different."""
    count = shape.heads * rows * shape.dim
    return torch.arange(begin, begin + count).float().view(1, shape.heads, rows, shape.dim)


def written(cache, begin, rows, seed):
    """Writes a pass behind `begin`; what every layer has of it."""
    cache.at, cache.reach = torch.arange(begin, begin + rows), cache.room
    passes = {}
    for layer, pair in enumerate(SHAPES):
        if pair is not None:
            new = tuple(states(shape, rows, seed + 1000 * layer) for shape in pair)
            keys, values = cache.update(*new, layer)
            assert keys.shape[2] == values.shape[2] == cache.room
            passes[layer] = new
    return passes


@pytest.mark.parametrize("kept", [[0], [0, 1, 2], [0, 3], [0, 1, 4], [0, 2, 3, 4]])
@pytest.mark.parametrize("grown", [False, True])
def test_keep_selects_rows_of_the_last_pass_in_every_layer(kept, grown):
    cache = StaticCache(SHAPES, 20, CPU)
    first = written(cache, 0, 4, 0)
    cache.length = 4
    second = written(cache, 4, 5, 500)
    cache.keep(kept)
    if grown:
        cache.grow(64)
    assert cache.get_seq_length() == 4 + len(kept)
    third = written(cache, cache.length, 2, 700)
    for layer, passes in third.items():
        found = cache.static[layer].keys, cache.static[layer].values
        for i, ours in enumerate(found):
            parts = [first[layer][i], second[layer][i][:, :, kept], passes[i]]
            assert ours.shape[2] == (64 if grown else 20)
            assert torch.equal(ours[:, :, : cache.length + 2], torch.cat(parts, 2))


def test_one_tensor_per_shape():
    cache = StaticCache(SHAPES, 20, CPU)
    assert {store.shape for store in cache.stores.values()} == {(3, 2, 20, 3), (3, 2, 20, 5)}
    views = [tensor for layer in cache.static if layer.is_initialized
             for tensor in (layer.keys, layer.values)]  # fmt: skip
    assert len({view.data_ptr() for view in views}) == 6
    assert len({view.untyped_storage().data_ptr() for view in views}) == 2


def test_a_pass_reads_no_further_than_it_said():
    cache = StaticCache([(KEYS, KEYS)], 20, CPU)
    cache.at, cache.reach = torch.tensor([0, 1]), 8
    keys, _ = cache.update(states(KEYS, 2, 1), states(KEYS, 2, 1), 0)
    assert keys.shape[2] == 8
    assert not keys[:, :, 2:].any()


def test_shapes_are_found_by_reading_a_token():
    with torch.inference_mode():
        found = layer_shapes(tiny_model("qwen3"))
    assert found == [(Shape(2, 16, torch.float32),) * 2] * 2


def test_clearing_leaves_nothing():
    cache = StaticCache(SHAPES, 20, CPU)
    written(cache, 0, 4, 1)
    cache.length = 4
    cache.clear()
    assert cache.length == 0
    assert not any(store.any() for store in cache.stores.values())
