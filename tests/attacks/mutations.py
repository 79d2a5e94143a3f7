"""Random damage with true checksums, of arrays, headers and manifests."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from attacks.crafted import Arrays, data_file, read_arrays, sign, write_arrays

NUMBERS = (0, 1, 2, 23, 24, 25, 255, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
           (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 5, 23, 24, 25, 1 << 24, 1 << 31, 1 << 40, 1 << 63, 1 << 64,
    1 << 70, 10**20, 0.5, 1e300, "", "x", "\x1b[2J", "x" * 2000, [], [1], [[]], {}, {"a": {}},
    "tokens", "datastore", "model-bigram", "history",
)  # fmt: skip


def mutate(folder: Path, kind: str, seed: int) -> None:
    """Change the artifact in `folder`; the same for the same seed."""
    dice = random.Random(f"{kind} {seed}")
    if kind == "history":
        _mutate_history(folder, dice)
    elif dice.random() < 0.15:
        sign(folder, lambda body: _odd_value(body, dice))
    elif dice.random() < 0.1:
        _mutate_bytes(data_file(folder), dice)
        sign(folder)
    else:
        file = data_file(folder)
        arrays = read_arrays(file)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            _mutate_arrays(arrays, dice)
        write_arrays(file, arrays)
        fitting = dice.random() < 0.3
        sign(folder, (lambda body: _fit(body, arrays)) if fitting else None)


def _fit(body: dict[str, Any], arrays: Arrays) -> None:
    """Return a manifest that agrees with the changed arrays, as far as it can."""
    counts, parameters = body["counts"], body["parameters"]
    if body["kind"] == "frozen-table":
        sizes = {name: len(arrays[name]) for name in ("leaders", "followers") if name in arrays}
        counts.update(sizes)
        parameters["followers"] = 1 << 20
    elif body["kind"] == "model-unigram" and "tokens" in arrays:
        counts["rows"] = parameters["k"] = len(arrays["tokens"])
    elif body["kind"] == "tokens":
        counts["tokens"] = len(arrays.get("tokens", ()))
        counts["documents"] = max(len(arrays.get("documents", ())) - 1, 0)
    elif body["kind"] == "datastore" and "tokens" in arrays:
        vocabulary = body["tokenizer"]["vocabulary"]
        counts["tokens"] = int((arrays["tokens"] != vocabulary).sum())
        counts["documents"] = 0


def _mutate_bytes(file: Path, dice: random.Random) -> None:
    """Flip bits anywhere, the header too, or cut or add bytes."""
    raw = bytearray(file.read_bytes())
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(raw)) if dice.random() < 0.5 else dice.randrange(min(len(raw), 400))
        raw[at] ^= 1 << dice.randrange(8)
    if dice.random() < 0.2:
        raw = raw[: dice.randrange(len(raw))] + bytes(dice.choice((0, 1, 8)))
    file.write_bytes(raw)


def _odd_value(body: Any, dice: random.Random) -> None:
    """Put a strange value somewhere, or remove or add a key."""
    holder, key = body, ""
    while isinstance(holder, dict) and holder:
        key = dice.choice(sorted(holder))
        if not isinstance(holder[key], dict) or not holder[key] or dice.random() < 0.2:
            break
        holder = holder[key]
    chance = dice.random()
    if chance < 0.1:
        del holder[key]
    elif chance < 0.2:
        holder[dice.choice(("new", "../x", "SHARD-00000.safetensors"))] = dice.choice(ODD)
    else:
        holder[key] = dice.choice(ODD)


def _mutate_arrays(arrays: Arrays, dice: random.Random) -> None:
    if not arrays:
        return
    name = dice.choice(sorted(arrays))
    change = dice.choice((_flip, _flip, _flip, _extreme, _extreme, _extreme, _copy, _swap, _fill,
                          _shorten, _lengthen, _reverse, _sort, _retype, _reshape, _trade,
                          _drop))  # fmt: skip
    if change in (_trade, _drop):
        change(arrays, name, dice)
    elif arrays[name].size:
        arrays[name] = np.ascontiguousarray(change(arrays[name].copy(), dice))


def _flat(array: Any) -> Any:
    return array.reshape(-1)


def _flip(array: Any, dice: random.Random) -> Any:
    raw = _flat(array).view(np.uint8)
    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    return array


def _extreme(array: Any, dice: random.Random) -> Any:
    at = dice.randrange(array.size)
    if array.dtype.kind == "f":
        _flat(array)[at] = dice.choice((np.nan, np.inf, -np.inf, 0.0, 1.0, -1e30, 5e4))
    else:
        value = dice.choice((*NUMBERS, array.size, array.size - 1, array.size + 1))
        _flat(array)[at] = np.array([value % (1 << 64)], np.uint64).astype(array.dtype)[0]
    return array


def _copy(array: Any, dice: random.Random) -> Any:
    _flat(array)[dice.randrange(array.size)] = _flat(array)[dice.randrange(array.size)]
    return array


def _swap(array: Any, dice: random.Random) -> Any:
    one, two = dice.randrange(len(array)), dice.randrange(len(array))
    array[[one, two]] = array[[two, one]]
    return array


def _fill(array: Any, dice: random.Random) -> Any:
    begin = dice.choice((0, dice.randrange(array.size)))
    _flat(array)[begin:] = _flat(_extreme(array.copy(), dice))[dice.randrange(array.size)]
    return array


def _shorten(array: Any, dice: random.Random) -> Any:
    keep = dice.choice((0, 1, len(array) // 2, len(array) - 1))
    return array[:keep] if dice.random() < 0.7 else array[len(array) - keep :]


def _lengthen(array: Any, dice: random.Random) -> Any:
    return np.concatenate([array, array[: dice.choice((1, len(array)))]])


def _reverse(array: Any, dice: random.Random) -> Any:
    return array[::-1]


def _sort(array: Any, dice: random.Random) -> Any:
    return np.sort(array, axis=0)


def _retype(array: Any, dice: random.Random) -> Any:
    """Store the same bytes under another name, or the same values in other bytes."""
    dtype = np.dtype(dice.choice(("<u2", "<u4", "<u8", "<i4", "<i8", "<f2", "<f4", "u1")))
    raw = array.tobytes()
    if dice.random() < 0.5 and len(raw) % dtype.itemsize == 0 and array.ndim == 1:
        return np.frombuffer(raw, dtype)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _reshape(array: Any, dice: random.Random) -> Any:
    return dice.choice((array.reshape(-1), array[None], array[..., None]))


def _trade(arrays: Arrays, name: str, dice: random.Random) -> None:
    other = dice.choice(sorted(arrays))
    arrays[name], arrays[other] = arrays[other], arrays[name]


def _drop(arrays: Arrays, name: str, dice: random.Random) -> None:
    array = arrays.pop(name)
    if dice.random() < 0.5:
        arrays["other"] = array


def _mutate_history(folder: Path, dice: random.Random) -> None:
    """Change the index with its checksum true, or give a log's records any ids and true
    checksums."""
    if dice.random() < 0.1:
        sign(folder, lambda body: _odd_value(body, dice))
    if dice.random() < 0.6:
        file = folder / "index.safetensors"
        arrays = read_arrays(file)
        for _ in range(dice.choice((1, 1, 2))):
            _mutate_arrays(arrays, dice)
        total = 0
        for name in ("tokens", "suffix_array", "first_token", "mark"):
            total = zlib.crc32(arrays[name].tobytes() if name in arrays else b"", total)
        if "checksum" in arrays and dice.random() < 0.95:
            arrays["checksum"] = np.array([total], np.uint64)
        write_arrays(file, arrays)
    else:
        log = folder / "requests.log"
        raw = bytearray(log.read_bytes())
        for _ in range(dice.choice((1, 2, 4))):
            _odd_record(raw, dice)
        log.write_bytes(raw)
        if dice.random() < 0.5:
            (folder / "index.safetensors").unlink()


def _odd_record(raw: bytearray, dice: random.Random) -> None:
    """Flip a bit anywhere, or put other ids into a record whose checksum is made true again."""
    at = raw.find(b"NGRQ", dice.randrange(len(raw)))
    if at < 0 or dice.random() < 0.3:
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
        return
    count = min(int.from_bytes(raw[at + 4 : at + 8], "little"), (len(raw) - at - 16) // 2)
    for _ in range(dice.choice((1, count))):
        place = at + 16 + 2 * dice.randrange(count or 1)
        raw[place : place + 2] = (dice.choice(NUMBERS) & 0xFFFF).to_bytes(2, "little")
    if dice.random() < 0.3:
        prompt = dice.choice((0, count, count + 1, (1 << 32) - 1))
        raw[at + 8 : at + 12] = prompt.to_bytes(4, "little")
    lengths, ids = bytes(raw[at + 4 : at + 12]), bytes(raw[at + 16 : at + 16 + 2 * count])
    raw[at + 12 : at + 16] = zlib.crc32(ids, zlib.crc32(lengths)).to_bytes(4, "little")


def fresh(whole: Path, folder: Path) -> None:
    """Restore the whole artifact in `folder`, and nothing else."""
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if not (whole / entry.name).exists():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for source in whole.iterdir():
        shutil.copyfile(source, folder / source.name)
