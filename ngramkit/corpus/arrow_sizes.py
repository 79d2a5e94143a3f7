"""What rows of Arrow's arrays would take as Python's objects, known before any is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ngramkit.formats.container import Array


class Sizes(NamedTuple):
    """Of each row."""

    bytes: Array  # int64[n], of its texts
    values: Array  # int64[n]: texts, numbers, lists and objects


def row_sizes(array: Any) -> Sizes:
    """Those of a pyarrow.Array: of a dictionary's entry each time it stands there.

    Raises TypeError for a kind that holds neither texts nor numbers nor lists of them.
    """
    kind, none, one = array.type, np.zeros(len(array), np.int64), np.ones(len(array), np.int64)
    if pa.types.is_dictionary(kind):
        return _of_entries(array)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return Sizes(_view_lengths(array), one)
    if _is_bytes(kind):
        return Sizes(pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64), one)
    if pa.types.is_struct(kind):
        parts = [row_sizes(part) for part in array.flatten()]
        return Sizes(sum((p.bytes for p in parts), none), sum((p.values for p in parts), one))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _of_lists(array)
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise TypeError(f"{kind} where a text was expected")
    return Sizes(none, one)


def without_dictionaries(kind: Any) -> Any:
    """Return the Arrow type with plain values for dictionaries, in lists and objects too."""
    if pa.types.is_dictionary(kind):
        return without_dictionaries(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        form = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return form(_plain(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _plain(field: Any) -> Any:
    return field.with_type(without_dictionaries(field.type))


def is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return is_string(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _of_entries(array: Any) -> Sizes:
    entries = row_sizes(array.dictionary)
    there = array.indices.is_valid().to_numpy(zero_copy_only=False)
    places = array.indices.fill_null(0).to_numpy()[there]
    found = Sizes(np.zeros(len(array), np.int64), np.ones(len(array), np.int64))
    for rows, of in zip(found, entries, strict=True):
        rows[there] = of[places]
    return found


def _view_lengths(array: Any) -> Array:
    """Each view is 16 bytes, the first four of them its length."""
    views = np.frombuffer(array.buffers()[1], np.int32)[0::4]
    lengths: Array = views[array.offset : array.offset + len(array)].astype(np.int64)
    lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _of_lists(array: Any) -> Sizes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    inner = row_sizes(array.values.slice(begin, end - begin))
    ends = offsets - begin
    return Sizes(_sums(inner.bytes, ends), 1 + _sums(inner.values, ends))


def _sums(each: Array, ends: Array) -> Array:
    until = np.concatenate([[0], np.cumsum(each)])
    sums: Array = until[ends[1:]] - until[ends[:-1]]
    return sums
