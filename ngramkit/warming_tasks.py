"""What the processes of `ngramkit.warm` do: draft once with a drafter, build or verify once.

All with artifacts of a few tokens. `main` runs the tasks that sys.argv names and prints the names
of the kernels that it compiled, as JSON. NAME@2 and NAME@4 are what the first draft of a drafter
needs, for token ids of so many bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.budget.auto import prepare
from ngramkit.drafters import drafter_entry, load_drafter
from ngramkit.drafters.base import Drafter, Evidence
from ngramkit.drafters.past_requests import PastRequests
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
