"""Random damage to files that are no artifacts: headers, footers, JSON."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from attacks.mutations import NUMBERS, ODD

PATTERNS = ("(", "a{1,99999}", r"\p{Nope}", "", "^", "(?=a)", "(?<!b)c", ".", r"\G", "[[:alpha:]]",
            r"(\w+)\1", "x*")  # fmt: skip
PARTS = ("BPE", "Unigram", "WordPiece", "WordLevel", "Sequence", "Split", "Replace", "Prepend",
         "Strip", "Precompiled", "Metaspace", "ByteLevel", "ByteFallback", "Fuse", "CTC", "Digits",
         "TemplateProcessing", "Regex", "String", "Isolated", "MergedWithNext", "Fixed", "Left",
         "LongestFirst", "OnlySecond")  # fmt: skip


def mutate_file(whole: Path, kind: str, seed: int, target: Path) -> Path:
    """Write one of the whole files in the folder, damaged, into `target`; the same for a seed."""
    dice = random.Random(f"{kind} {seed}")
    source = dice.choice(sorted(whole.iterdir()))
    raw = bytearray(source.read_bytes())
    if kind == "tokenizer.json":
        raw = _odd_json(raw, dice)
    else:
        for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
            damage(raw, _part(kind, raw, dice), dice)
    path = target / source.name
    path.write_bytes(raw)
    return path


def _part(kind: str, raw: bytearray, dice: random.Random) -> tuple[int, int]:
    """Return the place of the damage: mostly in headers and footers."""
    if len(raw) < 16 or dice.random() < 0.25:
        return 0, len(raw)
    if kind == "parquet":
        footer = int.from_bytes(raw[-8:-4], "little")
        return max(0, min(len(raw) - 8 - footer, len(raw) - 8)), len(raw)
    if kind == "arrow":
        at = dice.choice((0, raw.rfind(b"\xff\xff\xff\xff"), max(len(raw) - 2000, 0)))
        return max(at, 0), min(max(at, 0) + 2000, len(raw))
    return 0, min(dice.choice((24, 2000, 12_000)), len(raw))


def damage(raw: bytearray, part: tuple[int, int], dice: random.Random) -> None:
    """Change, insert, copy or cut some bytes of `part`, from its begin to its end."""
    begin, end = part
    if end <= begin:
        return
    at, chance = dice.randrange(begin, end), dice.random()
    if chance < 0.4:
        raw[at] ^= 1 << dice.randrange(8)
    elif chance < 0.5:
        raw[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif chance < 0.8:
        width = dice.choice((2, 4, 8))
        value = dice.choice((*NUMBERS, len(raw), dice.randrange(1 << 16)))
        raw[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif chance < 0.86:
        raw[at:at] = bytes(dice.choice((0, 0xFF, 0x80)) for _ in range(dice.choice((1, 8, 40))))
    elif chance < 0.92:
        del raw[at : at + dice.choice((1, 4, 8, 100))]
    elif chance < 0.97:
        other = dice.randrange(begin, end)
        length = dice.choice((1, 4, 16, 64))
        raw[at : at + length] = raw[other : other + length]
    else:
        del raw[at:]


def _odd_json(raw: bytearray, dice: random.Random) -> bytearray:
    if dice.random() < 0.1:
        for _ in range(dice.choice((1, 1, 4))):
            damage(raw, (0, len(raw)), dice)
        return raw
    body = json.loads(raw)
    for _ in range(dice.choice((1, 1, 2, 4))):
        _odd_part(body, dice)
    return bytearray(json.dumps(body).encode())


def _odd_part(body: Any, dice: random.Random) -> None:
    """Change a value, move a part, or delete one."""
    holder, key = _somewhere(body, dice)
    if holder is None:
        return
    other, place = _somewhere(body, dice)
    chance = dice.random()
    if chance < 0.12:
        del holder[key]
    elif chance < 0.3 and other is not None:
        holder[key] = json.loads(json.dumps(other[place]))
    elif chance < 0.45:
        holder[key] = dice.choice((*PATTERNS, *PARTS))
    elif chance < 0.6 and isinstance(holder[key], int):
        holder[key] = dice.choice((*NUMBERS, -1, holder[key] + 1, holder[key] - 1))
    elif chance < 0.65 and isinstance(holder[key], list):
        holder[key] = holder[key] * dice.choice((2, 3))
    elif chance < 0.7 and isinstance(holder, dict):
        holder[dice.choice(("type", "id", "vocab", "new", ""))] = holder.pop(key)
    else:
        holder[key] = dice.choice(ODD)


def _somewhere(body: Any, dice: random.Random) -> tuple[Any, Any]:
    """Return (holder, key) of some value, small parts as likely as large ones."""
    holder, key, found = None, None, body
    while isinstance(found, dict | list) and found:
        holder = found
        key = dice.choice(sorted(found)) if isinstance(found, dict) else dice.randrange(len(found))
        found = holder[key]
        if dice.random() < 0.25:
            break
    return holder, key
