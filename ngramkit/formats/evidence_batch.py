"""A batch of evidence (ngramkit.formats.evidence): requests to arrays, and back without trust."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Layout, require, require_layout
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.json_text import parse_json, whole_number

KEPT = 16  # likeliest tokens per row
LEAST_OVER = 1e-3  # rounding may lift a probability above 1
AGAIN = "delete the file, or record again"
LAYOUT: Layout = {
    "about": (("uint8",), 1),
    "prompts": (("int32",), 1),
    "prompt_ends": (("int64",), 1),
    "answers": (("int32",), 1),
    "answer_ends": (("int64",), 1),
    "row_ends": (("int64",), 1),
    "tokens": (("int32",), 1),
    "parents": (("int32",), 1),
    "top_ids": (("int32",), 2),
    "top_log_probs": (("float32",), 2),
}


@dataclass(frozen=True)
class About:
    """What a request was."""

    question: str
    category: str
    turn: int
    drafter: str
    longest: int  # tokens that it could write at most


@dataclass(frozen=True)
class Told:
    """One request of a batch."""

    about: About
    prompt: Array  # int32[p], p >= 1
    answer: Array  # int32[a]
    tokens: Array  # int32[n]
    parents: Array  # int32[n], rows of these; the first is -1
    top_ids: Array  # int32[n, KEPT]
    top_log_probs: Array  # float32[n, KEPT]


def joined(requests: Sequence[Told]) -> dict[str, Array]:
    about = json.dumps([asdict(each.about) for each in requests], ensure_ascii=False)
    first = np.cumsum([0, *(len(each.tokens) for each in requests)])
    parents = [
        np.where(each.parents < 0, -1, each.parents + begin)
        for each, begin in zip(requests, first[:-1], strict=True)
    ]
    columns = {
        "prompts": [each.prompt for each in requests],
        "answers": [each.answer for each in requests],
        "tokens": [each.tokens for each in requests],
        "parents": parents,
        "top_ids": [each.top_ids for each in requests],
    }
    arrays = {name: np.concatenate(parts).astype(np.int32) for name, parts in columns.items()}
    arrays["top_log_probs"] = np.concatenate([each.top_log_probs for each in requests])
    arrays["about"] = np.frombuffer(about.encode(), np.uint8)
    for ends, of in (("prompt_ends", "prompt"), ("answer_ends", "answer"), ("row_ends", "tokens")):
        arrays[ends] = np.cumsum([len(getattr(each, of)) for each in requests], dtype=np.int64)
    return arrays


def read_batch(path: Path) -> Iterator[Told]:
    """Its requests, proven. Raises ArtifactError where the file is damaged."""
    arrays = open_arrays(path)
    require_layout(path, arrays, LAYOUT)
    about = _about(path, arrays["about"])
    starts = {}
    for ends, of in (
        ("prompt_ends", "prompts"),
        ("answer_ends", "answers"),
        ("row_ends", "tokens"),
    ):
        require(len(arrays[ends]) == len(about), path, f"{ends} is of another length")
        starts[of] = _spans(path, ends, arrays[ends], len(arrays[of]))
    _check_rows(path, arrays)
    for r, each in enumerate(about):
        (p, q), (a, b), (m, n) = starts["prompts"][r], starts["answers"][r], starts["tokens"][r]
        prompt = arrays["prompts"][p:q]
        parents = _own_parents(path, arrays["parents"][m:n], m)
        tokens = arrays["tokens"][m:n]
        require(len(prompt) > 0, path, "a prompt is empty")
        require(not n > m or tokens[0] == prompt[-1], path, "a first row is not the prompt's")
        pairs = (parents.astype(np.int64) << 32) + tokens
        require(len(np.unique(pairs)) == n - m, path, "two siblings hold the same token")
        tops = arrays["top_ids"][m:n], arrays["top_log_probs"][m:n]
        yield Told(each, prompt, arrays["answers"][a:b], tokens, parents, *tops)


def _about(path: Path, raw: Array) -> list[About]:
    where = f"{path} is damaged: `about`"
    body = parse_json(raw.tobytes(), where, strict=True, error=ArtifactError, hint=AGAIN)
    require(isinstance(body, list), path, "`about` is no list")
    found = []
    for each in body:
        keys = set(About.__dataclass_fields__)
        require(isinstance(each, dict) and each.keys() == keys, path, "`about` has other keys")
        texts = [each[name] for name in ("question", "category", "drafter")]
        whole = all(isinstance(text, str) and len(text) <= 1000 for text in texts)
        numbers = whole_number(each["turn"]) and whole_number(each["longest"])
        require(whole and numbers, path, "`about` holds something else")
        found.append(About(**each))
    return found


def _spans(path: Path, name: str, ends: Array, length: int) -> list[tuple[int, int]]:
    bounds = [0, *ends.tolist()]
    rising = all(a <= b for a, b in itertools.pairwise(bounds))
    require(rising and bounds[-1] == length, path, f"{name} do not rise to the end")
    return list(itertools.pairwise(bounds))


def _check_rows(path: Path, arrays: Mapping[str, Array]) -> None:
    n, log_probs = len(arrays["tokens"]), arrays["top_log_probs"]
    for name in ("parents", "top_ids", "top_log_probs"):
        require(len(arrays[name]) == n, path, f"{name} are of another length")
    for name in ("top_ids", "top_log_probs"):
        require(arrays[name].shape[1] == KEPT, path, f"{name} have not {KEPT} columns")
    for name in ("prompts", "answers", "tokens"):
        require(arrays[name].min(initial=0) >= 0, path, f"{name} hold an id below 0")
    require(arrays["top_ids"].min(initial=0) >= -1, path, "top_ids hold an id below -1")
    with np.errstate(invalid="ignore"):
        chances = bool((log_probs <= LEAST_OVER).all())  # NaN is not
    require(chances, path, "top_log_probs hold what is no logarithm of a probability")


def _own_parents(path: Path, parents: Array, begin: int) -> Array:
    """Rows of the request itself."""
    if not len(parents):
        return parents
    own = parents - begin
    earlier = (own[1:] >= 0) & (own[1:] < np.arange(1, len(own)))
    require(parents[0] == -1 and bool(earlier.all()), path, "a row's parent is no earlier one")
    own[0] = -1
    return own
