"""`ngramkit.warm`: kernels compiled beforehand, or while a model loads.

Kernels are compiled when they are first called, for the types that they are called with. So a
process of its own drafts once with each drafter, over tiny artifacts (`ngramkit.warm`);
what it leaves is the machine code on disk (`kernels.code_folder`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.budget.rule import prepare
from ngramkit.drafters.base import Drafter, Evidence
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import DRAFTERS, drafter_entry, load_drafter
from ngramkit.errors import InputError, require_between
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter
from ngramkit.kernels import jit
from ngramkit.kernels.code_folder import folder
from ngramkit.kernels.tree import layout, paths
from ngramkit.machine import cores, start_python
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result
from ngramkit.text import many

ALL = "all"
# The longest first, so that no process ends long after the others; then build and verify.
LONGEST = ("blend", "rest", "cacheback", "ssd", "ngrammys")
TASKS = (*LONGEST, *(name for name in DRAFTERS if name not in LONGEST), "build", "verify")
# Whose first drafts need the same kernels for token ids of two bytes and of four.
ANY_WIDTH = {"none", "blend", "context", "prompt-lookup", "recycling", "automaton"}
PROGRAM = "from ngramkit.warming import main; main()"


@dataclass(frozen=True)
class Warmed(Result):
    """`compiled`: by task, the kernels that were not on disk before; `folder`: where they are."""

    folder: Path
    compiled: dict[str, list[str]]
    kernels: int  # machine code files there now
    processes: int
    seconds: float


def warm(drafter: str = ALL, *, workers: int | None = None, reporter: Reporter = SILENT) -> Warmed:
    """Compile the kernels of one drafter and of decoding, or with "all" those of every drafter, of
    building and of verifying.

    At most `workers` processes at a time (default: every core). What is on disk is not compiled
    again. Raises UsageError for an unknown drafter, InputError where machine code cannot be kept or
    a kernel cannot be compiled.
    """
    from ngramkit.kernels.code_folder import SUFFIX, folder

    tasks = TASKS if drafter == ALL else (_plain_name(drafter),)
    if workers is not None:
        require_between("workers", workers, 1)
    place = folder()
    if place is None or not os.access(place, os.W_OK):
        raise InputError(
            f"compiled kernels cannot be kept in {place or 'any folder'}",
            "set NUMBA_CACHE_DIR to a folder that you may write",
        )
    processes = min(workers or cores(), len(tasks))
    begun, compiled = time.perf_counter(), {}
    reporter.stage("compile", len(tasks), "tasks")
    with ThreadPoolExecutor(processes) as pool:
        for task, names in zip(tasks, pool.map(_compile, tasks), strict=True):
            compiled[task] = names
            reporter.advance(1)
            reporter.note(f"{task}: {many(len(names), 'kernel')} compiled")
    held = len(list(place.glob(f"*{SUFFIX}")))
    return Warmed(place, compiled, held, processes, time.perf_counter() - begun)


def _plain_name(drafter: str) -> str:
    """Return a drafter's name without its options, which change no kernel. Raises UsageError, with
    the nearest name, where no drafter is called that."""
    name = drafter.partition(":")[0]
    drafter_entry(name)
    return name


def _compile(task: str) -> list[str]:
    """Run a task in a process; return the kernels that it compiled."""
    with _started([task], out=subprocess.PIPE, errors=subprocess.PIPE) as process:
        out, errors = process.communicate()
    if process.returncode:
        last = (errors.strip().splitlines() or ["it was killed"])[-1]
        raise InputError(
            f"the kernels of {task} could not be compiled: {last}",
            "run again with workers=1 if memory is short",
            option="workers",
        )
    names: list[str] = json.loads(out.splitlines()[-1])
    return names


def _started(tasks: Sequence[str], *, out: int, errors: int) -> subprocess.Popen[str]:
    from ngramkit.kernels.code_folder import VARIABLE, folder

    place = folder()
    kept = {} if place is None else {VARIABLE: str(place.parent)}
    return start_python(
        PROGRAM, *tasks, env=kept, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
    )


class Meanwhile:
    """Kernels that another process compiles while this one loads a model."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._asked: set[str] = set()

    def begin(self, *drafters: str, vocabulary: int | None = None) -> None:
        """Have what first drafts need compiled, for the token ids of a tokenizer with so many;
        where that is not known yet, if it is the same for any. Nothing where that was done before,
        on a single core, or where nothing can be kept."""
        from ngramkit.formats.artifact import token_dtype
        from ngramkit.kernels.code_folder import folder
        from ngramkit.kernels.jit import COMPILING, NOTICE

        names = set(map(_plain_name, drafters))
        if vocabulary is None and not names <= ANY_WIDTH:
            return
        width = token_dtype(vocabulary or 1).itemsize
        wanted = [f"{name}@{2 if name in ANY_WIDTH else width}" for name in sorted(names)]
        missing = [task for task in wanted if task not in self._asked and not is_done(task)]
        self._asked.update(wanted)
        if not missing or cores() < 2 or folder() is None or self._process:
            return
        logging.getLogger("ngramkit").log(NOTICE, f"{COMPILING}, while the model loads")
        with contextlib.suppress(OSError):
            self._process = _started(missing, out=subprocess.DEVNULL, errors=subprocess.DEVNULL)
            atexit.register(self._process.terminate)  # where loading fails; harmless afterwards

    def wait(self) -> None:
        """Wait for it. What went wrong there is left to the first draft, which compiles what is
        missing."""
        if self._process is not None:
            self._process.wait()
            self._process = None


meanwhile = Meanwhile()


# What the processes of `ngramkit.warm` do: draft once with a drafter, build or verify once.
#
# All with artifacts of a few tokens. `main` runs the tasks that sys.argv names and prints the names
# of the kernels that it compiled, as JSON. NAME@2 and NAME@4 are what the first draft of a drafter
# needs, for token ids of so many bytes.

# Token ids take two bytes or four, and kernels are compiled for each.
RECORDS = {
    token_dtype(size).itemsize: TokenizerRecord(f"none-{size}", size, f"{size:064}", 0)
    for size in (64, 1 << 17)
}
TOKENS = np.tile(np.array([1, 2, 3, 4, 2, 3, 5], np.int32), 12)
BUDGET = 8
DONE = ".done"  # behind the name of a task, all of whose kernels are in the folder
SHARDED = (TokenStore.kind, Datastore.kind)


def main() -> None:
    sys.stdout.write(json.dumps(run_tasks(sys.argv[1:])) + "\n")


def run_tasks(names: Sequence[str]) -> list[str]:
    """Run them; return the kernels that this process has compiled and kept."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="ngramkit-warm-") as place:
            task, at, width = name.partition("@")
            if at:
                draft_first(task, Path(place), RECORDS[int(width)])
            elif task == "build":
                build(Path(place))
            elif task == "verify":
                verify(Path(place))
            else:
                draft(task, Path(place))
        where = folder()
        if where is not None:
            (where / f"{name}{DONE}").touch()
    compiled: list[str] = jit.compiled()
    return compiled


def is_done(task: str) -> bool:
    """Return whether a process has run the task, or all that its drafter needs."""
    where = folder()
    names = (task, task.partition("@")[0])
    return where is not None and any((where / f"{name}{DONE}").exists() for name in names)


def draft_first(name: str, place: Path, of: TokenizerRecord) -> None:
    """What a first draft waits for, with nothing that it can do without."""
    needed = sources(place, of) if drafter_entry(name).required else {"tokenizer": of}
    request(load_drafter(name, **needed))
    layout(np.array([-1, 0, -1], np.int32), np.float32(-1))
    prepare()


def draft(name: str, place: Path) -> None:
    """Every width of token ids, with and without sources, with references, as rows too."""
    for of in RECORDS.values():
        draft_first(name, place, of)
        drafter = load_drafter(name, **sources(place, of))
        request(drafter)
        request(drafter)  # which knows past ones
        if drafter_entry(name).references:
            request(load_drafter(name, **sources(place, of)), references=[TOKENS])
    paths(np.array([-1, 0, -1], np.int32))


def request(drafter: Drafter, **started: Any) -> None:
    """One request, as decode has it: drafts, and what the model really wrote."""
    drafter.start(TOKENS, **started)
    for _ in range(2):
        tree = drafter.draft(BUDGET)
        rows = len(tree) + 1
        evidence = Evidence(
            np.concatenate([TOKENS[-1:], tree.token_ids]).astype(np.int32),
            np.concatenate([np.array([-1]), tree.parents + 1]).astype(np.int32),
            np.tile(np.arange(4, dtype=np.int32), (rows, 1)),
            np.full((rows, 4), -1.5, np.float32),
        )
        drafter.accept(TOKENS[:2], evidence)
    drafter.finish()


def build(place: Path) -> None:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen

    for of in RECORDS.values():
        store = tiny_store(place, of)
        build_datastore(store, place / f"{of.id}-built-datastore")
        for leader, follower in ((1, 3), (4, 8)):  # n-grams in one word, in several
            out = place / f"{of.id}-built-frozen-{leader}"
            build_frozen(store, out, leader_len=leader, follower_len=follower)


def verify(place: Path) -> None:
    from ngramkit.formats.verify import verify_artifact

    for of in RECORDS.values():
        given = sources(place, of)
        for artifact in (*given["datastores"], given["frozen_table"]):
            for _ in verify_artifact(artifact.path):
                """Each proof calls its kernels."""


def sources(place: Path, of: TokenizerRecord) -> dict[str, Any]:
    """One tiny artifact of every kind that drafters take, and past requests."""
    return {
        "datastores": [tiny_datastore(place, of)],
        "frozen_table": tiny_frozen(place, of),
        "bigram": tiny_bigram(place, of),
        "unigram": tiny_unigram(place, of),
        "past": PastRequests(tokenizer=of, background=False),
        "tokenizer": of,
    }


def tiny_store(place: Path, of: TokenizerRecord) -> TokenStore:
    """Two documents of TOKENS."""
    size = len(TOKENS)
    arrays = {
        "tokens": np.tile(TOKENS, 2).astype(token_dtype(of.vocabulary)),
        "documents": np.array([0, size, 2 * size], np.uint64),
    }
    return TokenStore.open(_written(place, TokenStore.kind, of, arrays, {"documents": 2}))


def tiny_datastore(place: Path, of: TokenizerRecord) -> Datastore:
    """A document of TOKENS, sorted without the kernels of building: whoever drafts from a datastore
    does not wait for those."""
    separator = of.vocabulary
    tokens = np.append(TOKENS, separator).astype(token_dtype(separator))
    text = tokens.tolist()
    arrays = {
        "tokens": tokens,
        "suffix_array": np.array(sorted(range(len(text)), key=lambda at: text[at:]), np.int32),
        "first_token": np.append(0, np.bincount(text).cumsum()).astype(np.uint64),
    }
    return Datastore.open(_written(place, Datastore.kind, of, arrays, {"documents": 1}))


def tiny_bigram(place: Path, of: TokenizerRecord, k: int = 2, width: int = 3) -> ModelBigram:
    ids = np.arange(of.vocabulary)[:, None] + np.arange(k)
    next_tokens = (ids % of.vocabulary).astype(token_dtype(of.vocabulary))
    arrays = {
        "next_tokens": next_tokens,
        "log_probs": np.tile(np.array([-1, -2], np.float16), (of.vocabulary, 1)),
        "extended": np.repeat(next_tokens[:, :, None], width, axis=2),
    }
    counts = {"rows": of.vocabulary, "drafts": of.vocabulary * k}
    parameters = {"k": k, "width": width, "extend": "model"}
    return ModelBigram.open(_written(place, ModelBigram.kind, of, arrays, counts, parameters))


def tiny_unigram(place: Path, of: TokenizerRecord) -> ModelUnigram:
    arrays = {
        "tokens": np.array([1, 2], token_dtype(of.vocabulary)),
        "scores": np.array([2, 1], np.float32),
    }
    return ModelUnigram.open(_written(place, ModelUnigram.kind, of, arrays, {"rows": 2}, {"k": 2}))


def tiny_frozen(place: Path, of: TokenizerRecord) -> FrozenTable:
    """What follows the tokens 1 and 2 of TOKENS."""
    width = token_dtype(of.vocabulary)
    arrays = {
        "leaders": np.array([[1], [2]], width),
        "leader_counts": np.array([12, 24], np.uint32),
        "follower_offsets": np.array([0, 1, 3], np.uint64),
        "followers": np.array([[2, 3, 4], [3, 4, 2], [3, 5, 1]], width),
        "follower_counts": np.array([12, 12, 11], np.uint32),
    }
    counts = {"documents": 1, "tokens": len(TOKENS), "leaders": 2, "followers": 3}
    asked = {"leader_len": 1, "leaders": 2, "follower_len": 3, "followers": 2}
    return FrozenTable.open(_written(place, FrozenTable.kind, of, arrays, counts, asked))


def _written(
    place: Path,
    kind: str,
    of: TokenizerRecord,
    arrays: dict[str, Array],
    counts: dict[str, int],
    parameters: dict[str, Any] | None = None,
) -> Path:
    path = place / f"{kind}-{of.id}"
    if path.exists():
        return path
    name = "shard-00000.safetensors" if kind in SHARDED else TABLE
    counts = {"tokens": len(TOKENS), **counts}
    with ArtifactWriter(path, kind, {"id": of.id}) as writer:
        writer.write(name, arrays)
        writer.commit(of, parameters=parameters or {}, corpus={"id": "none"}, counts=counts)
    return path
