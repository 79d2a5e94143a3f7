"""Evidence: what a model held likely, kept so that drafters are judged without it.

    evidence.json          written once: whose opinions these are, and how the answers were written
    NNNNNN.safetensors     one batch of requests each; batches are only ever added
    lock                   there while somebody adds one

evidence.json holds `format` ("ngramkit-evidence"), `version` (1), `plan` (an object: what the
requests have in common, such as the model) and `tokenizer` (as in a manifest). A batch is a file of
named arrays (ngramkit.formats.container) about its requests r = 0, 1, 2, ...:

    about          u8  [..]     JSON, a list: per request {"question", "category", "turn",
                                "drafter", "longest"}; `longest`: the most tokens it could write
    prompts        i32 [P]      the prompts' tokens, one request behind another
    prompt_ends    i64 [R]      where in `prompts` each ends
    answers        i32 [A]      what the model wrote, likewise; a request may have none
    answer_ends    i64 [R]
    row_ends       i64 [R]      likewise, of the rows
    tokens         i32 [n]      row i: a token that the model read
    parents        i32 [n]      the row, of the whole batch, of the token before it; -1: none
    top_ids        i32 [n, 16]  the likeliest next tokens, best first; -1 where there are fewer
    top_log_probs  f32 [n, 16]  natural logarithms, of the whole softmax; -inf where there is no id

A request's first row is its prompt's last token, its parent -1; every other row's parent is an
earlier row of the same request, and siblings are distinct. So a row is keyed by its whole context:
the prompt, then the tokens from the first row down to it. Rows of equal contexts in several batches
are one: the first counts, in the order of the files' names. A batch of a killed process is not
there at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from ngramkit.errors import ArtifactError, UsageError
from ngramkit.formats.artifact import require
from ngramkit.formats.container import write_arrays
from ngramkit.formats.evidence_batch import KEPT as KEPT
from ngramkit.formats.evidence_batch import About as About
from ngramkit.formats.evidence_batch import Told as Told
from ngramkit.formats.evidence_batch import joined, read_batch
from ngramkit.formats.json_text import read_json, whole_number
from ngramkit.formats.locks import locked
from ngramkit.formats.manifest import TokenizerRecord, tokenizer_record
from ngramkit.formats.outputs import require_fit_for_output
from ngramkit.formats.writer import write_text

NAME, LOCK = "evidence.json", "lock"
FORMAT, VERSION = "ngramkit-evidence", 1
BATCH = re.compile(r"\d{6}\.safetensors")
MOST_BATCHES = 999_999


class EvidenceFolder:
    """An open folder; `plan` is what its requests have in common."""

    def __init__(self, path: Path, plan: Mapping[str, Any], tokenizer: TokenizerRecord) -> None:
        self.path, self.plan, self.tokenizer = path, dict(plan), tokenizer

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Raises ArtifactError where there is none, or it is damaged or of a newer format."""
        path = Path(path)
        try:
            body = read_json(path / NAME, strict=True, hint="record again")
        except FileNotFoundError as error:
            raise ArtifactError(f"{path} holds no recorded evidence", "check the path") from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise ArtifactError(f"{path / NAME} is not of recorded evidence", "check the path")
        version = body.get("version")
        if not whole_number(version, 1, VERSION):
            raise ArtifactError(
                f"{path / NAME} has version {version!r:.20}; this ngramkit reads 1 to {VERSION}",
                "upgrade: pip install -U ngramkit",
            )
        fits = body.keys() == {"format", "version", "plan", "tokenizer"}
        require(fits and isinstance(body["plan"], dict), path / NAME, "its keys are others")
        return cls(path, body["plan"], tokenizer_record(path / NAME, body["tokenizer"]))

    @classmethod
    def at(cls, path: str | Path, plan: Mapping[str, Any], tokenizer: TokenizerRecord) -> Self:
        """The folder at `path`, a new one where there is none.

        Raises UsageError where something else is there, or evidence of another plan.
        """
        path = Path(path)
        plan = json.loads(json.dumps(plan))
        require_fit_for_output(path)
        if not (path / NAME).exists():
            if path.exists() and _holds_other_things(path):
                raise UsageError(
                    f"{path} exists and is no evidence", "choose another out", option="out"
                )
            path.mkdir(parents=True, exist_ok=True)
            body = {"format": FORMAT, "version": VERSION, "plan": plan}
            body["tokenizer"] = {k: v for k, v in asdict(tokenizer).items() if v is not None}
            write_text(path / NAME, json.dumps(body, indent=2) + "\n")
        found = cls.open(path)
        for key in sorted(plan.keys() | found.plan.keys()):
            if plan.get(key) != found.plan.get(key):
                raise UsageError(
                    f"{path} was recorded with {key}={found.plan.get(key)!r:.60}, "
                    f"not {plan.get(key)!r:.60}",
                    "choose another out",
                    option="out",
                )
        found.tokenizer.require(tokenizer, str(path))
        return found

    def add(self, requests: Sequence[Told]) -> str | None:
        """A batch of `requests`, whole or not at all; it is on the disk when this returns its name.
        None where there are none to add."""
        if not requests:
            return None
        arrays = joined(requests)
        with locked(self.path / LOCK):
            number = max((int(path.stem) for path in self._batches()), default=0) + 1
            if number > MOST_BATCHES:
                raise ArtifactError(f"{self.path} is full", "record into another folder")
            temporary = self.path / f"{number:06d}.tmp"
            write_arrays(temporary, arrays)
            batch = temporary.with_suffix(".safetensors")
            temporary.replace(batch)
        return batch.name

    def requests(self, read: set[str] | None = None) -> Iterator[Told]:
        """All, batch by batch, each proven; none of batches named in `read`, which the others join.
        Raises ArtifactError where one is damaged."""
        for path in self._batches():
            if read is None or path.name not in read:
                yield from read_batch(path)
                if read is not None:
                    read.add(path.name)

    def _batches(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if BATCH.fullmatch(path.name))


def _holds_other_things(path: Path) -> bool:
    return not path.is_dir() or any(each.name != f"{NAME}.tmp" for each in path.iterdir())
