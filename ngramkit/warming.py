"""`ngramkit.warm`: compile kernels before they are needed.

Processes share the tasks:

    NAME              a drafter's requests
    serve-NAME        a serving engine's process with that drafter
    build             building, verifying, merging, pruning, exporting and searching
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.thread_counts import build_threads
from ngramkit.decode.compile_while_loading import (
    COMPILED_PROMPT,
    TOKENIZERS,
    draft_first,
    run_tasks,
    serve_request,
    start_program,
    tiny_sources,
    write_tiny,
)
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.registry import DEFAULT_DRAFTER, DRAFTERS, drafter_entry
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.engines.config import DraftConfig, require_engine
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels import code_folder

ALL = "all"
BUILD = "build"
SERVE = "serve-"  # prefix of a drafter's name
TASKS = (*DRAFTERS, BUILD)
PROGRAM = "from ngramkit.warming import main; main()"


@dataclass(frozen=True)
class Warmed(Result):
    """The result of `warm`."""

    folder: Path
    compiled: dict[str, list[str]]  # newly compiled kernels by task
    kernels: int  # files of machine code in the folder
    processes: int
    seconds: float


def warm(
    drafter: str = ALL,
    *,
    engine: str | None = None,
    workers: int | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Warmed:
    """Compile the kernels of decoding with one drafter, or with "all" those of every command.

    `engine`: compile those of this engine's process instead (default drafter: blend), see
    `check_engine`. `workers`: processes (default: the number of cores).

    Raises UsageError for an unknown drafter or engine, InputError if kernels cannot be compiled or
    kept.
    """
    # A drafter's options do not change its kernels.
    tasks = TASKS if drafter == ALL else (DrafterSpec.parse(drafter).name,)
    if engine is not None:
        require_engine(engine)
        tasks = (SERVE + (DEFAULT_DRAFTER if drafter == ALL else tasks[0]),)
    processes = min(build_threads(workers), len(tasks))
    shares = [tasks[first::processes] for first in range(processes)]
    folder = code_folder.machine_code_folder()
    if folder is None or not os.access(folder, os.W_OK):
        raise InputError(
            f"cannot keep compiled kernels in {folder or 'any folder'}",
            "Set NUMBA_CACHE_DIR to a folder of yours that others cannot write.",
        )
    begun, found = time.perf_counter(), dict[str, list[str]]()
    reporter.stage("compile", len(tasks), "tasks")
    with ThreadPoolExecutor(processes) as pool:
        for share in [pool.submit(_compile_in_process, share, found, reporter) for share in shares]:
            share.result()
    compiled = {task: found[task] for task in tasks}
    kernels = len(list(folder.glob(f"*{code_folder.file_ending()}")))
    return Warmed(folder, compiled, kernels, processes, time.perf_counter() - begun)


def _compile_in_process(
    tasks: Sequence[str], found: dict[str, list[str]], reporter: Reporter
) -> None:
    """Run tasks in a process; add the kernels that each has compiled to `found`."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        start_program(PROGRAM, tasks, out=subprocess.PIPE, errors=errors.fileno()) as process,
    ):
        assert process.stdout is not None
        for task, line in zip(tasks, process.stdout, strict=False):
            found[task] = json.loads(line)
            reporter.advance(1)
            reporter.note(f"{task}: {counted(len(found[task]), 'kernel')} compiled")
        process.wait()
        errors.seek(0)
        said = errors.read()
    failed = next((task for task in tasks if task not in found), None)
    if failed is not None:
        last = (said.strip().splitlines() or ["it was killed"])[-1]
        raise InputError(
            f"cannot compile the kernels of {failed}: {last}",
            "Run it with workers=1 if memory is short.",
            option="workers",
        )


def main() -> None:
    run_tasks(run_task)


def run_task(task: str, scratch: Path) -> None:
    """Run one task, for 16-bit and 32-bit token ids."""
    for tokenizer in TOKENIZERS.values():
        folder = scratch / tokenizer.id
        if task == BUILD:
            warm_builders(folder, tokenizer)
        elif task.startswith(SERVE):
            warm_engines(task.removeprefix(SERVE), folder, tokenizer)
        else:
            warm_decode(task, folder, tokenizer)


def warm_decode(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    """Draft as decode does, from the required sources, then from all."""
    from ngramkit.kernels.tree_paths import best_path, root_to_leaf_paths

    draft_first(name, folder / "first", tokenizer)
    sources = tiny_sources(folder, tokenizer)
    drafter = load_drafter(name, **sources)
    serve_request(drafter)
    serve_request(drafter)  # with the first as a past request
    if drafter_entry(name).references:
        serve_request(load_drafter(name, **sources), references=[COMPILED_PROMPT])
    parents = np.array([-1, 0, -1], np.int32)
    root_to_leaf_paths(parents)
    best_path(parents, np.zeros(3, np.float32), 2, 0.0)


def warm_engines(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    from ngramkit.engines.batch import BatchDrafter

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
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.builders.merge import merge
    from ngramkit.builders.prune_by_worth import prune_artifact
    from ngramkit.exchange.llama_cpp import export_cache, read_cache
    from ngramkit.formats.opening import verify_artifact
    from ngramkit.kernels.suffix.search import find_from_python, shard_table

    size = len(COMPILED_PROMPT)
    arrays = {
        "tokens": np.tile(COMPILED_PROMPT, 2).astype(token_dtype(tokenizer.vocabulary)),
        "documents": np.array([0, size, 2 * size], np.uint64),
    }
    store = write_tiny(TokenStore, folder, tokenizer, arrays, {"documents": 2, "tokens": 2 * size})
    datastore = build_datastore(store, folder / "datastore")
    frozen = build_frozen(store, folder / "frozen")
    for artifact in (datastore, frozen):
        for _ in verify_artifact(artifact.path):
            pass  # each check calls its kernels
        least = 1024 + 8 * (tokenizer.vocabulary + 2) * (artifact is datastore)
        pruned = folder / f"pruned-{artifact.kind}"
        prune_artifact(artifact, pruned, least + 900, answers=[COMPILED_PROMPT])
        cache = folder / f"{artifact.kind}.bin"
        export_cache(artifact, cache, dynamic=True)
        read_cache(cache)
    merge([frozen, build_frozen(store, folder / "another", leaders=1)], folder / "merged")
    find_from_python(shard_table(datastore.shards)[0], COMPILED_PROMPT[:2])
