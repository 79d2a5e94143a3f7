"""The tasks of `ngramkit.warm`: each calls kernels as commands do, with artifacts of a few tokens.

`python -c "from ngramkit.warming_tasks import main; main()" TASK...` runs some of them and prints
the names of the kernels that it compiled, as JSON. TASK@2 and TASK@4 do so for token ids of so many
bytes alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import DraftTree, Evidence
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import Cursor
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter
from ngramkit.kernels import machine_code
from ngramkit.kernels.tree import layout, paths

# Token ids take two bytes or four, and kernels are compiled for each.
RECORDS = [TokenizerRecord(f"none-{size}", size, f"{size:064}", 0) for size in (64, 1 << 17)]
Records = Sequence[TokenizerRecord]
Task = Callable[[Path, Records], None]
TOKENS = np.tile(np.array([1, 2, 3, 4, 2, 3, 5], np.int32), 12)
BUDGET = 8


def _store(folder: Path, of: TokenizerRecord) -> TokenStore:
    """Two documents of TOKENS."""
    size = len(TOKENS)
    arrays = {
        "tokens": np.tile(TOKENS, 2).astype(token_dtype(of.vocabulary)),
        "documents": np.array([0, size, 2 * size], np.uint64),
    }
    counts = {"documents": 2, "tokens": 2 * size}
    return TokenStore.open(_written(folder / f"tokens-{of.id}", "tokens", of, arrays, counts))


def _bigram(folder: Path, of: TokenizerRecord, k: int = 2, width: int = 3) -> ModelBigram:
    ids = np.arange(of.vocabulary)[:, None] + np.arange(k)
    next_tokens = (ids % of.vocabulary).astype(token_dtype(of.vocabulary))
    arrays = {
        "next_tokens": next_tokens,
        "log_probs": np.tile(np.array([-1, -2], np.float16), (of.vocabulary, 1)),
        "extended": np.repeat(next_tokens[:, :, None], width, axis=2),
    }
    counts = {"rows": of.vocabulary, "drafts": of.vocabulary * k}
    parameters = {"k": k, "width": width, "extend": "model"}
    made = _written(folder / f"bigram-{of.id}", ModelBigram.kind, of, arrays, counts, parameters)
    return ModelBigram.open(made)


def _frozen(folder: Path, of: TokenizerRecord) -> FrozenTable:
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
    made = _written(folder / f"frozen-{of.id}", FrozenTable.kind, of, arrays, counts, asked)
    return FrozenTable.open(made)


def _written(
    path: Path,
    kind: str,
    of: TokenizerRecord,
    arrays: dict[str, Array],
    counts: dict[str, int],
    parameters: dict[str, Any] | None = None,
) -> Path:
    name = "shard-00000.safetensors" if kind == TokenStore.kind else TABLE
    with ArtifactWriter(path, kind, {"id": of.id}) as writer:
        writer.write(name, arrays)
        writer.commit(of, parameters=parameters or {}, corpus={"id": "none"}, counts=counts)
    return path


def _request(drafter: Any, **started: Any) -> None:
    """One request, as decode has it: drafts, and what the model really wrote."""
    drafter.start(TOKENS, **started)
    for _ in range(2):
        tree = drafter.draft(BUDGET)
        assert isinstance(tree, DraftTree)
        rows = len(tree) + 1
        evidence = Evidence(
            np.concatenate([TOKENS[-1:], tree.token_ids]).astype(np.int32),
            np.concatenate([np.array([-1]), tree.parents + 1]).astype(np.int32),
            np.tile(np.arange(4, dtype=np.int32), (rows, 1)),
            np.full((rows, 4), -1.5, np.float32),
        )
        drafter.accept(TOKENS[:2], evidence)
    drafter.finish()


def _blend(folder: Path, records: Records) -> None:
    """Whatever it drafts from, its kernels are the same, but for references."""
    _request(load_drafter("blend", tokenizer=records[0]))


def _blend_references(folder: Path, records: Records) -> None:
    _request(load_drafter("blend", tokenizer=records[0]), references=[TOKENS])


def _ssd(folder: Path, records: Records) -> None:
    for of in records:
        drafter = load_drafter("ssd", past=_past_requests(of))
        _request(drafter)
        _request(drafter)


def _past(folder: Path, records: Records) -> None:
    for of in records:
        _past_requests(of).remember(TOKENS, 4)


def _past_requests(of: TokenizerRecord) -> PastRequests:
    return PastRequests(tokenizer=of, background=False)


def _rest(folder: Path, records: Records) -> None:
    from ngramkit.builders.datastore import build_datastore

    for of in records:
        _request(
            load_drafter("rest", datastores=[build_datastore(_store(folder, of), folder / of.id)])
        )


def _cacheback(folder: Path, records: Records) -> None:
    _request(load_drafter("cacheback"))
    for of in records:
        _request(load_drafter("cacheback", frozen_table=_frozen(folder, of)))


def _by_bigram(name: str) -> Task:
    def task(folder: Path, records: Records) -> None:
        for of in records:
            _request(load_drafter(name, bigram=_bigram(folder, of)))

    return task


def _decoding(folder: Path, records: Records) -> None:
    layout(np.array([-1, 0, -1], np.int32), np.float32(-1))


def _references(folder: Path, records: Records) -> None:
    """Of drafters that are led by them; blend has kernels of its own."""
    cursor = Cursor([TOKENS], TOKENS)
    cursor.accept(TOKENS[:2])
    cursor.before(DraftTree.empty(), BUDGET, BUDGET)


def _budget(folder: Path, records: Records) -> None:
    """Which nodes pay for their time."""
    from ngramkit.decode.budget import prepare

    prepare()


def _rows(folder: Path, records: Records) -> None:
    """Drafts verified as rows of a batch."""
    from ngramkit.kernels.budget import LEVELS, RUNS, cells, chances

    parents, scores = np.array([-1, 0, -1], np.int32), np.array([0.5, 0.2, 0.1], np.float32)
    record, trust = np.zeros((LEVELS, RUNS, 2), np.float32), np.ones(RUNS, np.float32)
    cells(parents, chances(parents, scores, record, trust, 0), 0)
    paths(parents)


def _build(folder: Path, records: Records) -> None:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen

    for of in records:
        store = _store(folder, of)
        build_datastore(store, folder / f"{of.id}-datastore")
        for leader, follower in ((1, 3), (4, 8)):  # n-grams in one word, in several
            place = folder / f"{of.id}-frozen-{leader}"
            build_frozen(store, place, leader_len=leader, follower_len=follower)


def _verify(folder: Path, records: Records) -> None:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.verify import verify_artifact

    for of in records:
        store = _store(folder, of)
        for path in (
            build_datastore(store, folder / f"{of.id}-datastore").path,
            _frozen(folder, of).path,
        ):
            for _ in verify_artifact(path):
                """Each proof calls its kernels."""


def _recycling(folder: Path, records: Records) -> None:
    _request(load_drafter("recycling"))


def _automaton(folder: Path, records: Records) -> None:
    from ngramkit.builders.datastore import build_datastore

    store = build_datastore(_store(folder, records[0]), folder / "automaton")
    _request(load_drafter("automaton", datastores=[store], threshold=1))
    _request(load_drafter("automaton", datastores=[store], threshold=64))


TASKS: dict[str, Task] = {
    "blend": _blend,
    "blend-references": _blend_references,
    "rest": _rest,
    "cacheback": _cacheback,
    "ssd": _ssd,
    "build": _build,
    "ngrammys": _by_bigram("ngrammys"),
    "verify": _verify,
    "automaton": _automaton,
    "recycling": _recycling,
    "bigram": _by_bigram("bigram"),
    "decoding": _decoding,
    "budget": _budget,
    "rows": _rows,
    "past": _past,
    "references": _references,
}


def run_tasks(names: Sequence[str]) -> list[str]:
    """Kernels that this process has compiled and kept."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="ngramkit-warm-") as folder:
            task, _, width = name.partition("@")
            fit = [r for r in RECORDS if width in ("", str(token_dtype(r.vocabulary).itemsize))]
            TASKS[task](Path(folder), fit)
        machine_code.note_done(name)
    return machine_code.compiled()


def main() -> None:
    sys.stdout.write(json.dumps(run_tasks(sys.argv[1:])) + "\n")
