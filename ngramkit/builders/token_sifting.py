"""Which documents of a sifted corpus are kept, where tasks that share no memory read its parts.

Each part is read once for what decides: whether a document holds a text of an evaluation set, its
digest, with minhash its sketch. From these alone the process that runs the build decides, part
after part in order (`corpus.sifting.Sieve`), and writes down for each part which of its documents
are kept. Then parts are encoded, as those of any corpus.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.builders.stages import Apart, Stage, Written, require_shared, write_file
from ngramkit.builders.token_tasks import KEPT, MEMORY, Part, documents_of
from ngramkit.corpus.evaluation import EvaluationTexts
from ngramkit.corpus.sifting import DIGEST, Sifted, digest, sketch, sketched
from ngramkit.errors import InputError
from ngramkit.executors.base import Task
from ngramkit.formats.artifact import Layout, require, require_layout
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.writer import SCRATCH

MARKS: Layout = {
    "held": (("uint8",), 1),  # whether a document holds a text of an evaluation set
    "digests": (("uint8",), 2),
    "sketches": (("uint8",), 1),  # one behind another
    "ends": (("uint64",), 1),  # of each document's sketch
}
EVALUATION = "evaluation.safetensors"


def sift(corpus: Sifted, parts: Sequence[Part], apart: Apart) -> list[Part]:
    """The parts that hold what is kept, in order, each with the file that says what that is.

    `corpus.left_out` counts the other documents, up to the last that is kept.
    """
    texts = _put_down(corpus.evaluation, apart)
    rensa = version("rensa") if corpus.dedup == "minhash" else None
    tasks = []
    for number, part in enumerate(parts):
        name = f"marks-{number:05d}.safetensors"
        title = f"documents of part {number + 1} of {len(parts)}, {apart.writer.path.name}"
        given = (part, corpus.dedup, rensa, texts, apart.folder, name)
        key = (number, part.first)
        tasks.append(Task(title, name, mark_part, given, MEMORY, 1, key))
    choosing = _Choosing(corpus, tasks, apart)
    apart.run(Stage("choosing documents", tasks, "parts", True, choosing))
    choosing()
    files = choosing.files
    return [part._replace(kept=file) for part, file in zip(parts, files, strict=False)]


class Texts(NamedTuple):
    """The file with the texts of evaluation sets, and the checksum of the texts."""

    file: str
    sha256: str


def _put_down(evaluation: EvaluationTexts | None, apart: Apart) -> Texts | None:
    if evaluation is None:
        return None
    sha256 = evaluation.record()["sha256"]
    text = np.frombuffer(json.dumps(evaluation.texts).encode(), np.uint8)
    apart.writer.write(EVALUATION, {"json": text}, **{SCRATCH: sha256})
    return Texts(str(Path(apart.folder) / EVALUATION), sha256)


class _Choosing:
    """Decides, as far as parts have been read without a gap; says whether the limit is reached."""

    def __init__(self, corpus: Sifted, tasks: Sequence[Task[Written]], apart: Apart) -> None:
        self.files: list[str] = []  # of the parts that are decided
        self._sieve = corpus.sieve()
        self._tasks = tasks
        self._apart = apart

    def __call__(self) -> bool:
        while not self._sieve.full and len(self.files) < len(self._tasks):
            task = self._tasks[len(self.files)]
            if not self._apart.facts(task.file):
                break
            self._decide(task)
        return self._sieve.full

    def _decide(self, task: Task[Written]) -> None:
        marks = _Marks.read(self._apart.writer.partial / task.file)
        kept = np.zeros(len(marks.held), np.uint8)
        for row in range(len(kept)):
            if self._sieve.full:
                break
            digest_of, likeness = marks.digests[row].tobytes, partial(marks.sketch, row)
            kept[row] = self._sieve.keeps(bool(marks.held[row]), digest_of, likeness)
        name = task.file.replace("marks", KEPT)
        scratch = hashlib.sha256(kept.tobytes()).hexdigest()
        self._apart.writer.write(name, {KEPT: kept}, **{SCRATCH: scratch})
        self.files.append(name)


class _Marks(NamedTuple):
    """What is known of a part's documents, see MARKS."""

    held: Array
    digests: Array
    sketches: Array
    ends: Array

    @classmethod
    def read(cls, path: Path) -> _Marks:
        arrays = open_arrays(require_shared(path))
        require_layout(path, arrays, MARKS)
        marks = cls(**arrays)
        documents = len(marks.held)
        fit = marks.digests.shape == (documents, DIGEST) and len(marks.ends) == documents
        require(fit, path, "its arrays do not fit each other")
        return marks

    def sketch(self, row: int) -> Any:
        """A rensa.RMinHash."""
        begin = int(self.ends[row - 1]) if row else 0
        return sketched(self.sketches[begin : int(self.ends[row])].tobytes())


def mark_part(
    part: Part, dedup: str | None, rensa: str | None, texts: Texts | None, folder: str, name: str
) -> Written:
    """A task: what is to be known of a part's documents. Sketches are gathered on the disk."""
    if rensa is not None:
        _require_rensa(rensa)
    evaluation = None if texts is None else _evaluation(texts)
    held, digests, ends = bytearray(), bytearray(), [0]
    with tempfile.TemporaryFile() as spool:
        for text in (document.text for document in documents_of(part, None)):
            held.append(evaluation is not None and evaluation.stand_in(text))
            digests += bytes(DIGEST) if dedup is None else digest(text)
            # What is left out in any case needs none.
            state = sketch(text) if dedup == "minhash" and not held[-1] else b""
            spool.write(state)
            ends.append(ends[-1] + len(state))
        spool.flush()
        sketches = np.memmap(spool, np.uint8, "r") if ends[-1] else np.empty(0, np.uint8)
        arrays = {
            "held": np.frombuffer(held, np.uint8),
            "digests": np.frombuffer(digests, np.uint8).reshape(-1, DIGEST),
            "sketches": sketches,
            "ends": np.array(ends[1:], np.uint64),
        }
        return write_file(folder, name, arrays, documents=len(held))


@lru_cache(maxsize=2)
def _evaluation(texts: Texts) -> EvaluationTexts:
    """Once for each process, and for other texts in a file of that name."""
    text = open_arrays(require_shared(Path(texts.file)))["json"].tobytes()
    return EvaluationTexts(tuple(json.loads(text)))


def _require_rensa(wanted: str) -> None:
    try:
        found = version("rensa")
    except PackageNotFoundError:
        found = "none"
    if found != wanted:
        raise InputError(
            f"{platform.node()} has rensa {found}, the build was begun with {wanted}",
            f"pip install rensa=={wanted} on every node",
        )
