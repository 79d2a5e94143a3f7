"""`ngramkit.warm`: kernels compiled beforehand, or while a model loads.

A kernel is compiled when it is first called, for the types of its arguments. So a process drafts
with each drafter over artifacts of a few tokens; the machine code stays on disk
(`kernels.code_folder`). A task of such a process is one of

    NAME              all that the drafter's requests may need
    NAME@2, NAME@4    what its first draft needs, with token ids of so many bytes
    serve-NAME        what a serving engine's process needs with that drafter
    build             what building and verifying artifacts needs
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngramkit.drafters.base import Drafter, Evidence
from ngramkit.drafters.registry import (
    DEFAULT_DRAFTER,
    DRAFTERS,
    DrafterSpec,
    drafter_entry,
    load_drafter,
)
from ngramkit.engines.check import require_engine
from ngramkit.errors import InputError, require_between
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels import code_folder
from ngramkit.machine import cores, start_python
from ngramkit.progress import SILENT, Reporter
from ngramkit.public import public
from ngramkit.results import Result
from ngramkit.terminal_text import many

ALL = "all"
BUILD = "build"
SERVE = "serve-"  # and a drafter's name
TASKS = (*DRAFTERS, BUILD)
PROGRAM = "from ngramkit.warming import main; main()"
DONE = ".done"  # after a task's name: an empty file in the folder, where all of it is compiled


@dataclass(frozen=True)
class Warmed(Result):
    """The result of `warm`. `compiled`: by task, the kernels that were not on disk before."""

    folder: Path
    compiled: dict[str, list[str]]
    kernels: int  # machine code files there now
    processes: int
    seconds: float


@public
def warm(
    drafter: str = ALL,
    *,
    engine: str | None = None,
    workers: int | None = None,
    reporter: Reporter = SILENT,
) -> Warmed:
    """Compile the kernels of one drafter and of decoding, or with "all" those of every drafter, of
    building and of verifying.

    With `engine`, a name of `check_engine`, those that its process needs with that drafter
    (default: blend), whatever artifacts and history it is given. At most `workers` processes at a
    time (default: every core). What is on disk is not compiled again. Raises UsageError for an
    unknown drafter or engine, InputError where machine code cannot be kept or a kernel cannot be
    compiled.
    """
    tasks = TASKS if drafter == ALL else (_plain_name(drafter),)
    if engine is not None:
        require_engine(engine)
        tasks = (SERVE + _plain_name(DEFAULT_DRAFTER if drafter == ALL else drafter),)
    if workers is not None:
        require_between("workers", workers, 1)
    folder = code_folder.folder()
    if folder is None or not os.access(folder, os.W_OK):
        raise InputError(
            f"compiled kernels cannot be kept in {folder or 'any folder'}",
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
    kernels = len(list(folder.glob(f"*{code_folder.SUFFIX}")))
    return Warmed(folder, compiled, kernels, processes, time.perf_counter() - begun)


class Meanwhile:
    """The process that compiles kernels while this one loads a model."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._begun: set[str] = set()  # tasks

    def begin(self, *drafters: str, vocabulary: int | None = None) -> None:
        """Start compiling the kernels of first drafts, for token ids of a tokenizer with
        `vocabulary` ids; while that is unknown, only for drafters that need no artifact.

        Does nothing where they are compiled already, on a single core, or where nothing can be
        kept.
        """
        names = sorted(set(map(_plain_name, drafters)))
        if vocabulary is None and any(_needs_artifacts(name) for name in names):
            return
        width = token_dtype(vocabulary or 1).itemsize
        tasks = [f"{name}@{width if _needs_artifacts(name) else 2}" for name in names]
        missing = [task for task in tasks if task not in self._begun and not is_done(task)]
        self._begun.update(tasks)
        if not missing or cores() < 2 or code_folder.folder() is None or self._process:
            return
        code_folder.announce_compiling()
        with contextlib.suppress(OSError):
            self._process = _start(missing, out=subprocess.DEVNULL, errors=subprocess.DEVNULL)
            atexit.register(self._process.terminate)  # where loading fails; harmless afterwards

    def wait(self) -> None:
        """Wait until the process has ended. If it failed, the first draft compiles the rest."""
        if self._process is not None:
            self._process.wait()
            self._process = None


meanwhile = Meanwhile()


def is_done(task: str) -> bool:
    """Return whether a process has run the task, or all that its drafter needs."""
    folder = code_folder.folder()
    names = (task, task.partition("@")[0])
    return folder is not None and any((folder / f"{name}{DONE}").exists() for name in names)


def _plain_name(drafter: str) -> str:
    """Return a drafter's name without its options, which change no kernel. Raises UsageError as
    `DrafterSpec.parse`."""
    return DrafterSpec.parse(drafter).name


def _needs_artifacts(drafter: str) -> bool:
    entry = drafter_entry(drafter)
    return entry.required and bool(entry.sources)


def _compile(task: str) -> list[str]:
    """Run a task in a process; return the kernels that it compiled."""
    with _start([task], out=subprocess.PIPE, errors=subprocess.PIPE) as process:
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


def _start(tasks: Sequence[str], *, out: int, errors: int) -> subprocess.Popen[str]:
    folder = code_folder.folder()
    env = {} if folder is None else {code_folder.VARIABLE: str(folder.parent)}
    return start_python(
        PROGRAM, *tasks, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
    )


def main() -> None:
    """Run the tasks in sys.argv; print the names of the kernels that were compiled, as JSON."""
    from ngramkit.kernels import jit

    folder = code_folder.folder()
    for task in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="ngramkit-warm-") as scratch:
            run_task(task, Path(scratch))
        if folder is not None:
            (folder / f"{task}{DONE}").touch()
    sys.stdout.write(json.dumps(jit.compiled()) + "\n")


# Token ids take two bytes or four, and kernels are compiled for each.
TOKENIZERS = {
    token_dtype(size).itemsize: TokenizerRecord(f"none-{size}", size, f"{size:064}", 0)
    for size in (64, 1 << 17)
}
TOKENS = np.tile(np.array([1, 2, 3, 4, 2, 3, 5], np.int32), 12)
BUDGET = 8  # nodes
A = TypeVar("A", bound=Artifact)


def run_task(task: str, scratch: Path) -> None:
    """Run one task, with artifacts in the folder `scratch`."""
    name, _, width = task.partition("@")
    for tokenizer in [TOKENIZERS[int(width)]] if width else TOKENIZERS.values():
        folder = scratch / tokenizer.id
        if name == BUILD:
            warm_builders(folder, tokenizer)
        elif name.startswith(SERVE):
            warm_engines(name.removeprefix(SERVE), folder, tokenizer)
        else:
            warm_decode(name, folder, tokenizer, first_alone=bool(width))


def warm_decode(name: str, folder: Path, tokenizer: TokenizerRecord, *, first_alone: bool) -> None:
    """Draft as decode does, from the artifacts that the drafter needs.

    Unless `first_alone`, draft then from all that it takes, past requests and references included,
    and lay out a draft as rows.
    """
    from ngramkit.budget.rule import prepare
    from ngramkit.kernels.tree_paths import paths

    needs_all = _needs_artifacts(name)
    sources: dict[str, Any] = {}
    if needs_all or not first_alone:
        sources = tiny_sources(folder, tokenizer)
    serve_request(load_drafter(name, **(sources if needs_all else {"tokenizer": tokenizer})))
    prepare()
    if first_alone:
        return
    drafter = load_drafter(name, **sources)
    serve_request(drafter)
    serve_request(drafter)  # the first is a past request now
    if drafter_entry(name).references:
        serve_request(load_drafter(name, **sources), references=[TOKENS])
    paths(np.array([-1, 0, -1], np.int32))


def serve_request(drafter: Drafter, **options: Any) -> None:
    """Draft and accept twice, with evidence, as decode does."""
    drafter.start(TOKENS, **options)
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


def warm_engines(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    """Draft as engines do, from all that the drafter takes, with a history that grows."""
    from ngramkit.budget.rule import prepare
    from ngramkit.engines.batch import BatchDrafter
    from ngramkit.engines.config import DraftConfig

    sources = tiny_sources(folder, tokenizer)
    entry = drafter_entry(name)
    named: dict[str, Any] = {
        role: tuple(str(each.path) for each in sources[role])
        if role == "datastores"
        else str(sources[role].path)
        for role in entry.artifacts
    }
    history = True if "past" in entry.sources else None
    BatchDrafter.open(DraftConfig(name, history=history, **named), vocabulary=tokenizer.vocabulary)
    prepare()  # what engines of one text at a time decide by


def warm_builders(folder: Path, tokenizer: TokenizerRecord) -> None:
    """Build a datastore and a frozen table, and verify them."""
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.formats.opening import verify_artifact

    size = len(TOKENS)
    arrays = {
        "tokens": np.tile(TOKENS, 2).astype(token_dtype(tokenizer.vocabulary)),
        "documents": np.array([0, size, 2 * size], np.uint64),
    }
    store = write_tiny(TokenStore, folder, tokenizer, arrays, {"documents": 2, "tokens": 2 * size})
    datastore = build_datastore(store, folder / "datastore")
    frozen = build_frozen(store, folder / "frozen")
    for artifact in (datastore, frozen):
        for _ in verify_artifact(artifact.path):
            """Each check calls its kernels."""


def tiny_sources(folder: Path, tokenizer: TokenizerRecord) -> dict[str, Any]:
    """Write artifacts of TOKENS into `folder`; return all that `load_drafter` takes.

    The datastore is sorted by Python: drafting from it must not wait for the kernels of building.
    """
    from ngramkit.drafters.past_requests import PastRequests

    vocabulary = tokenizer.vocabulary  # also the separator
    dtype = token_dtype(vocabulary)
    text = [*TOKENS.tolist(), vocabulary]
    datastore = {
        "tokens": np.array(text, dtype),
        "suffix_array": np.array(sorted(range(len(text)), key=lambda at: text[at:]), np.int32),
        "first_token": np.append(0, np.bincount(text).cumsum()).astype(np.uint64),
    }
    frozen = {
        "leaders": np.array([[1], [2]], dtype),
        "leader_counts": np.array([12, 24], np.uint32),
        "follower_offsets": np.array([0, 1, 3], np.uint64),
        "followers": np.array([[2, 3, 4], [3, 4, 2], [3, 5, 1]], dtype),
        "follower_counts": np.array([12, 12, 11], np.uint32),
    }
    next_tokens = ((np.arange(vocabulary)[:, None] + np.arange(2)) % vocabulary).astype(dtype)
    bigram = {
        "next_tokens": next_tokens,
        "log_probs": np.tile(np.array([-1, -2], np.float16), (vocabulary, 1)),
        "extended": np.repeat(next_tokens[:, :, None], 3, axis=2),
    }
    unigram = {"tokens": np.array([1, 2], dtype), "scores": np.array([2, 1], np.float32)}
    place = (folder, tokenizer)
    return {
        "datastores": [write_tiny(Datastore, *place, datastore, {"documents": 1})],
        "frozen_table": write_tiny(
            FrozenTable,
            *place,
            frozen,
            {"documents": 1, "leaders": 2, "followers": 3},
            {"leader_len": 1, "leaders": 2, "follower_len": 3, "followers": 2},
        ),
        "bigram": write_tiny(
            ModelBigram,
            *place,
            bigram,
            {"rows": vocabulary, "drafts": 2 * vocabulary},
            {"k": 2, "width": 3, "extend": "model"},
        ),
        "unigram": write_tiny(ModelUnigram, *place, unigram, {"rows": 2}, {"k": 2}),
        "past": PastRequests(
            tokenizer=tokenizer, background=False, rebuild_tokens=64, newest_tokens=64
        ),  # so that two requests are more than the newest
        "tokenizer": tokenizer,
    }


def write_tiny(
    kind: type[A],
    folder: Path,
    tokenizer: TokenizerRecord,
    arrays: dict[str, Array],
    counts: dict[str, int],
    parameters: dict[str, Any] | None = None,
) -> A:
    """Write an artifact of `kind`; return it opened."""
    path = folder / kind.kind
    sharded = kind in (TokenStore, Datastore)
    counts = {"tokens": len(TOKENS), **counts}
    with ArtifactWriter(path, kind.kind, {"id": tokenizer.id}) as writer:
        writer.write("shard-00000.safetensors" if sharded else TABLE, arrays)
        writer.commit(tokenizer, parameters=parameters or {}, corpus={"id": "none"}, counts=counts)
    return kind.open(path)
