"""`ngramkit.warm`: kernels compiled beforehand.

Each task is run by a process of its own, as in `decode.compile_while_loading`:

    NAME              all that a drafter's requests may need
    serve-NAME        what a serving engine's process needs with that drafter
    build             what building and verifying artifacts needs
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import InputError, require_between
from ngramkit.basics.machine import cores
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import many
from ngramkit.decode.compile_while_loading import (
    TOKENIZERS,
    TOKENS,
    draft_first,
    run_tasks,
    serve_request,
    start,
    tiny_sources,
    write_tiny,
)
from ngramkit.drafters.registry import (
    DEFAULT_DRAFTER,
    DRAFTERS,
    DrafterSpec,
    drafter_entry,
    load_drafter,
)
from ngramkit.engines.check import require_engine
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels import code_folder

ALL = "all"
BUILD = "build"
SERVE = "serve-"  # and a drafter's name
TASKS = (*DRAFTERS, BUILD)
PROGRAM = "from ngramkit.warming import main; main()"


@dataclass(frozen=True)
class Warmed(Result):
    """The result of `warm`. `compiled`: by task, the kernels that were not on disk before."""

    folder: Path
    compiled: dict[str, list[str]]
    kernels: int  # machine code files there now
    processes: int
    seconds: float


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
    # A drafter's options change no kernel.
    tasks = TASKS if drafter == ALL else (DrafterSpec.parse(drafter).name,)
    if engine is not None:
        require_engine(engine)
        tasks = (SERVE + (DEFAULT_DRAFTER if drafter == ALL else tasks[0]),)
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


def _compile(task: str) -> list[str]:
    """Run a task in a process; return the kernels that it compiled."""
    with start(PROGRAM, [task], out=subprocess.PIPE, errors=subprocess.PIPE) as process:
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


def main() -> None:
    """Run the tasks in sys.argv."""
    run_tasks(run_task)


def run_task(task: str, scratch: Path) -> None:
    """Run one task, for token ids of two bytes and of four."""
    for tokenizer in TOKENIZERS.values():
        folder = scratch / tokenizer.id
        if task == BUILD:
            warm_builders(folder, tokenizer)
        elif task.startswith(SERVE):
            warm_engines(task.removeprefix(SERVE), folder, tokenizer)
        else:
            warm_decode(task, folder, tokenizer)


def warm_decode(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    """Draft as decode does, from the artifacts that the drafter needs, then from all that it takes,
    past requests and references included; lay out a draft as rows."""
    from ngramkit.kernels.tree_paths import paths

    sources = tiny_sources(folder, tokenizer)
    draft_first(name, sources)
    drafter = load_drafter(name, **sources)
    serve_request(drafter)
    serve_request(drafter)  # the first is a past request now
    if drafter_entry(name).references:
        serve_request(load_drafter(name, **sources), references=[TOKENS])
    paths(np.array([-1, 0, -1], np.int32))


def warm_engines(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    """Draft as engines do, from all that the drafter takes, with a history that grows."""
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
