"""Compile kernels in a second process while this one loads a model.

It drafts over tiny artifacts. Task NAME@2 or NAME@4 is a drafter's first draft with token ids of 2
or 4 bytes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngramkit.basics.machine import cores, start_python
from ngramkit.drafters.base import Drafter, Evidence
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.registry import drafter_entry
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.safetensors import Array
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels import code_folder

PROGRAM = "from ngramkit.decode.compile_while_loading import main; main()"
# By bytes per token id: kernels are compiled for both.
TOKENIZERS = {
    token_dtype(size).itemsize: TokenizerRecord(f"none-{size}", size, f"{size:064}", 0)
    for size in (64, 1 << 17)
}
COMPILED_PROMPT = np.tile(np.array([1, 2, 3, 4, 2, 3, 5], np.int32), 12)
COMPILED_BUDGET = 8  # nodes
A = TypeVar("A", bound=Artifact)


@contextlib.contextmanager
def compile_meanwhile(drafters: Iterable[str], vocabulary: int) -> Iterator[None]:
    """Compile the drafters' kernels while the block runs, then wait."""
    width = token_dtype(vocabulary).itemsize
    names = sorted(set(drafters))
    tasks = tuple(f"{name}@{width if needs_artifacts(name) else 2}" for name in names)
    process = start_compiling(tasks)
    try:
        yield
        if process is not None:
            process.wait()
    finally:
        if process is not None:
            process.terminate()


@functools.cache
def start_compiling(tasks: tuple[str, ...]) -> subprocess.Popen[str] | None:
    missing = [task for task in tasks if not is_done(task)]
    if not missing or cores() < 2 or code_folder.machine_code_folder() is None:
        return None
    code_folder.announce_compiling()
    with contextlib.suppress(OSError):
        return start_program(PROGRAM, missing, out=subprocess.DEVNULL, errors=subprocess.DEVNULL)
    return None


def is_done(task: str) -> bool:
    folder = code_folder.machine_code_folder()
    names = (task, task.partition("@")[0])
    return folder is not None and any((folder / done_file(name)).exists() for name in names)


def done_file(task: str) -> str:
    return task + code_folder.file_ending(".done")


def needs_artifacts(drafter: str) -> bool:
    entry = drafter_entry(drafter)
    return entry.required and bool(entry.sources)


def start_program(
    program: str, tasks: Sequence[str], *, out: int, errors: int
) -> subprocess.Popen[str]:
    folder = code_folder.machine_code_folder()
    env = {} if folder is None else {code_folder.CACHE_VARIABLE: str(folder)}
    return start_python(
        program, *tasks, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
    )


def main() -> None:
    run_tasks(run_first_draft)


def run_tasks(run: Callable[[str, Path], None]) -> None:
    """Run each task in sys.argv; print the kernels that it has compiled, a line of JSON a task."""
    from ngramkit.kernels import jit

    gc.disable()  # one collection between kernels takes as long as a small kernel
    folder, known = code_folder.machine_code_folder(), Counter[str]()
    for task in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="ngramkit-warm-") as scratch:
            run(task, Path(scratch))
        if folder is not None:
            (folder / done_file(task)).touch()
        now = Counter(jit.compiled())
        print(json.dumps(sorted((now - known).elements())), flush=True)
        known = now


def run_first_draft(task: str, scratch: Path) -> None:
    name, _, width = task.partition("@")
    draft_first(name, scratch, TOKENIZERS[int(width)])


def draft_first(name: str, folder: Path, tokenizer: TokenizerRecord) -> None:
    from ngramkit.budget.auto import compile_kernels

    tiny = tiny_sources(folder, tokenizer) if needs_artifacts(name) else {"tokenizer": tokenizer}
    serve_request(load_drafter(name, **tiny))
    compile_kernels()


def serve_request(drafter: Drafter, **options: Any) -> None:
    drafter.start(COMPILED_PROMPT, **options)
    for _ in range(2):
        tree = drafter.draft(COMPILED_BUDGET)
        rows = len(tree) + 1
        evidence = Evidence(
            np.concatenate([COMPILED_PROMPT[-1:], tree.token_ids]).astype(np.int32),
            np.concatenate([np.array([-1]), tree.parents + 1]).astype(np.int32),
            np.tile(np.arange(4, dtype=np.int32), (rows, 1)),
            np.full((rows, 4), -1.5, np.float32),
        )
        drafter.accept(COMPILED_PROMPT[:2], evidence)
    drafter.finish()


def tiny_sources(folder: Path, tokenizer: TokenizerRecord) -> dict[str, Any]:
    """Write artifacts of COMPILED_PROMPT; return all sources that `load_drafter` takes.

    Python sorts the datastore, so that the build kernels are not compiled.
    """
    from ngramkit.drafters.past_requests import PastRequests

    vocabulary = tokenizer.vocabulary  # also the separator
    dtype = token_dtype(vocabulary)
    text = [*COMPILED_PROMPT.tolist(), vocabulary]
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
        ),  # two requests exceed `newest_tokens`
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
    path = folder / kind.kind
    sharded = kind in (TokenStore, Datastore)
    counts = {"tokens": len(COMPILED_PROMPT), **counts}
    with ArtifactWriter(path, kind.kind, {"id": tokenizer.id}) as writer:
        writer.write("shard-00000.safetensors" if sharded else TABLE, arrays)
        writer.commit(tokenizer, parameters=parameters or {}, corpus={"id": "none"}, counts=counts)
    return kind.open(path)
