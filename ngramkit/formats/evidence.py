"""Evidence: a model's top-k at many contexts, recorded to evaluate drafters without the model.

    evidence.json          written once: the model, and how answers were generated
    NNNNNN.safetensors     a batch of requests each, written atomically; batches are only added
    lock                   exists while a process adds one

evidence.json holds `format` ("ngramkit-evidence"), `version` (1), `plan` (an object: what all
requests share, such as the model) and `tokenizer` (as in a manifest). A batch is a file of
named arrays (ngramkit.formats.safetensors) about its requests r = 0, 1, 2, ...:

    about          u8  [..]     JSON, a list: per request {"question", "category", "turn",
                                "drafter", "longest"}; `longest`: the most tokens it could write
    prompts        i32 [P]      the prompts' tokens, one request after another
    prompt_ends    i64 [R]      the end of each in `prompts`
    answers        i32 [A]      the model's answers, likewise; a request may have none
    answer_ends    i64 [R]
    row_ends       i64 [R]      likewise, of the rows
    tokens         i32 [n]      row i: a token that the model read
    parents        i32 [n]      the row, of the whole batch, of the token before it; -1: none
    top_ids        i32 [n, 16]  the likeliest next tokens, best first; -1 where there are fewer
    top_log_probs  f32 [n, 16]  natural logarithms, of the whole softmax; -inf where there is no id

A request's first row is its prompt's last token, with parent -1. Every other row's parent is an
earlier row of the same request, and siblings are distinct. If the rows of two requests have equal
contexts (prompt and tokens), the first in the order of file names counts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.limits import is_short_text
from ngramkit.basics.untrusted import parse_json, read_json, whole_number
from ngramkit.formats.artifact import Layout, require, require_layout
from ngramkit.formats.manifest import require_version
from ngramkit.formats.outputs import require_fit_for_output
from ngramkit.formats.replacing import (
    PRIVATE,
    hold_lock,
    replace_text,
    require_writable,
    sync_folder,
)
from ngramkit.formats.safetensors import Array, open_arrays, write_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord, parse_tokenizer

NAME, LOCK = "evidence.json", "lock"
FORMAT, VERSION = "ngramkit-evidence", 1
BATCH_FILE = re.compile(r"\d{6}\.safetensors")


class EvidenceFolder:
    def __init__(self, path: Path, plan: Mapping[str, Any], tokenizer: TokenizerRecord) -> None:
        self.path, self.plan, self.tokenizer = path, dict(plan), tokenizer

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a folder. Raises ArtifactError if it is missing, damaged or of a newer format."""
        path = Path(path)
        try:
            body = read_json(path / NAME, strict=True, hint="Record again.")
        except FileNotFoundError as error:
            raise ArtifactError(
                f"cannot read {path}: it holds no recorded evidence", "Check the path."
            ) from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise ArtifactError(
                f"cannot read {path / NAME}: it is not recorded evidence", "Check the path."
            )
        require_version(path / NAME, body.get("version"), VERSION)
        fits = body.keys() == {"format", "version", "plan", "tokenizer"}
        require(fits and isinstance(body["plan"], dict), path / NAME, "it has other keys")
        return cls(path, body["plan"], parse_tokenizer(path / NAME, body["tokenizer"]))

    @staticmethod
    def require_room(path: str | Path) -> None:
        """Raise UsageError if something else is at `path`, InputError if it is not writable."""
        path = Path(path)
        require_fit_for_output(path)
        if not (path / NAME).exists():
            begun = path.is_dir() and all(each.name == f"{NAME}.tmp" for each in path.iterdir())
            if path.exists() and not begun:
                raise UsageError(
                    f"cannot write {path}: it exists and is not recorded evidence",
                    "Choose another out.",
                    option="out",
                )
            require_writable(path)

    @classmethod
    def at(
        cls,
        path: str | Path,
        plan: Mapping[str, Any],
        tokenizer: TokenizerRecord,
        *,
        private: bool = False,
    ) -> Self:
        """Open or create the folder, for its owner only if it is `private`.

        Raises UsageError for another plan or foreign files.
        """
        path = Path(path)
        plan = json.loads(json.dumps(plan))
        cls.require_room(path)
        if not (path / NAME).exists():
            path.mkdir(mode=PRIVATE if private else 0o777, parents=True, exist_ok=True)
            body = {"format": FORMAT, "version": VERSION, "plan": plan}
            body["tokenizer"] = {k: v for k, v in asdict(tokenizer).items() if v is not None}
            replace_text(path / NAME, json.dumps(body, indent=2) + "\n")
            sync_folder(path.parent)
        folder = cls.open(path)
        if private:
            path.chmod(PRIVATE)
        for key in sorted(plan.keys() | folder.plan.keys()):
            if plan.get(key) != folder.plan.get(key):
                raise UsageError(
                    f"cannot add to {path}: it was recorded with "
                    f"{key}={folder.plan.get(key)!r:.60}, not {plan.get(key)!r:.60}",
                    "Choose another out.",
                    option="out",
                )
        folder.tokenizer.require(tokenizer, str(path))
        return folder

    def add(self, requests: Sequence[RecordedRequest]) -> str | None:
        """Write a batch atomically, synced; return its file's name, or None without requests."""
        if not requests:
            return None
        arrays = pack_batch(requests)
        with hold_lock(self.path / LOCK):
            number = max((int(path.stem) for path in self._batches()), default=0) + 1
            if number > 999_999:
                raise ArtifactError(
                    f"cannot record more in {self.path}: it is full", "Record into another folder."
                )
            temporary = self.path / f"{number:06d}.tmp"
            write_arrays(temporary, arrays)
            batch = temporary.with_suffix(".safetensors")
            temporary.replace(batch)
            sync_folder(self.path)
        return batch.name

    def requests(self) -> Iterator[RecordedRequest]:
        for path in self._batches():
            yield from read_batch(path)

    def _batches(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if BATCH_FILE.fullmatch(path.name))


# Batches.

KEPT_TOKENS = 16  # likeliest tokens per row
HOW_TO_REPEAT = "Delete the file, or record again."
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


# The array with the end of each request in another array, and that part of a request.
ENDS = (
    ("prompt_ends", "prompts", "prompt"),
    ("answer_ends", "answers", "answer"),
    ("row_ends", "tokens", "tokens"),
)


@dataclass(frozen=True)
class About:
    question: str
    category: str
    turn: int
    drafter: str
    longest: int  # maximum number of tokens in the answer


@dataclass(frozen=True)
class RecordedRequest:
    about: About
    prompt: Array  # int32[p], p >= 1
    answer: Array  # int32[a]
    tokens: Array  # int32[n]
    parents: Array  # int32[n], rows of this request; the first is -1
    top_ids: Array  # int32[n, KEPT_TOKENS]
    top_log_probs: Array  # float32[n, KEPT_TOKENS]


def pack_batch(requests: Sequence[RecordedRequest]) -> dict[str, Array]:
    about = json.dumps([asdict(request.about) for request in requests], ensure_ascii=False)
    first = np.cumsum([0, *(len(request.tokens) for request in requests)])
    parents = [
        np.where(request.parents < 0, -1, request.parents + begin)
        for request, begin in zip(requests, first[:-1], strict=True)
    ]
    columns = {
        "prompts": [request.prompt for request in requests],
        "answers": [request.answer for request in requests],
        "tokens": [request.tokens for request in requests],
        "parents": parents,
        "top_ids": [request.top_ids for request in requests],
    }
    arrays = {name: np.concatenate(parts).astype(np.int32) for name, parts in columns.items()}
    arrays["top_log_probs"] = np.concatenate([request.top_log_probs for request in requests])
    arrays["about"] = np.frombuffer(about.encode(), np.uint8)
    for ends, _, part in ENDS:
        lengths = [len(getattr(request, part)) for request in requests]
        arrays[ends] = np.cumsum(lengths, dtype=np.int64)
    return arrays


def read_batch(path: Path) -> Iterator[RecordedRequest]:
    arrays = open_arrays(path)
    require_layout(path, arrays, LAYOUT)
    about = _parse_requests(path, arrays["about"])
    starts = {}
    for ends, of, _ in ENDS:
        require(len(arrays[ends]) == len(about), path, f"{ends} is of another length")
        starts[of] = _consecutive_spans(path, ends, arrays[ends], len(arrays[of]))
    _check_rows(path, arrays)
    for r, request in enumerate(about):
        (p, q), (a, b), (m, n) = starts["prompts"][r], starts["answers"][r], starts["tokens"][r]
        prompt = arrays["prompts"][p:q]
        parents = _own_parents(path, arrays["parents"][m:n], m)
        tokens = arrays["tokens"][m:n]
        require(len(prompt) > 0, path, "a prompt is empty")
        require(not n > m or tokens[0] == prompt[-1], path, "a first row is not the prompt's")
        pairs = (parents.astype(np.int64) << 32) + tokens
        require(len(np.unique(pairs)) == n - m, path, "two siblings hold the same token")
        tops = arrays["top_ids"][m:n], arrays["top_log_probs"][m:n]
        yield RecordedRequest(request, prompt, arrays["answers"][a:b], tokens, parents, *tops)


def _parse_requests(path: Path, raw: Array) -> list[About]:
    where = f"{path} is damaged: `about`"
    body = parse_json(raw.tobytes(), where, strict=True, error=ArtifactError, hint=HOW_TO_REPEAT)
    require(isinstance(body, list), path, "`about` is not a list")
    keys = set(About.__dataclass_fields__)
    requests = []
    for entry in body:
        require(isinstance(entry, dict) and entry.keys() == keys, path, "`about` has other keys")
        texts = all(is_short_text(entry[name]) for name in ("question", "category", "drafter"))
        numbers = whole_number(entry["turn"]) and whole_number(entry["longest"])
        require(texts and numbers, path, "`about` has wrong values")
        requests.append(About(**entry))
    return requests


def _consecutive_spans(path: Path, name: str, ends: Array, length: int) -> list[tuple[int, int]]:
    bounds = [0, *ends.tolist()]
    rising = all(a <= b for a, b in itertools.pairwise(bounds))
    require(rising and bounds[-1] == length, path, f"{name} do not rise to the end")
    return list(itertools.pairwise(bounds))


def _check_rows(path: Path, arrays: Mapping[str, Array]) -> None:
    n, log_probs = len(arrays["tokens"]), arrays["top_log_probs"]
    for name in ("parents", "top_ids", "top_log_probs"):
        require(len(arrays[name]) == n, path, f"{name} are of another length")
    for name in ("top_ids", "top_log_probs"):
        require(
            arrays[name].shape[1] == KEPT_TOKENS, path, f"{name} have not {KEPT_TOKENS} columns"
        )
    for name in ("prompts", "answers", "tokens"):
        require(arrays[name].min(initial=0) >= 0, path, f"{name} hold an id below 0")
    require(arrays["top_ids"].min(initial=0) >= -1, path, "top_ids hold an id below -1")
    with np.errstate(invalid="ignore"):
        chances = bool((log_probs <= 1e-3).all())  # rounding may exceed 1; False for NaN
    require(chances, path, "top_log_probs hold a value that is not the logarithm of a probability")


def _own_parents(path: Path, parents: Array, begin: int) -> Array:
    if not len(parents):
        return parents
    own = parents - begin
    earlier = (own[1:] >= 0) & (own[1:] < np.arange(1, len(own)))
    require(parents[0] == -1 and bool(earlier.all()), path, "a row's parent is not an earlier row")
    own[0] = -1
    return own
