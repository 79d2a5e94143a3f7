"""The tasks of `ngramkit.warm`: each calls kernels as commands do, with artifacts of a few tokens.

`python -c "from ngramkit.warming_tasks import main; main()" TASK...` runs some of them and prints
the names of the kernels that it compiled, as JSON. TASK@2 and TASK@4 do so for token ids of so many
bytes alone.
"""

from __future__ import annotations

import contextlib
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
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.kernels import machine_code
from ngramkit.kernels.tree import layout, paths
from ngramkit.warming_artifacts import (
    TOKENS,
    tiny_bigram,
    tiny_datastore,
    tiny_frozen,
    tiny_store,
)

# Token ids take two bytes or four, and kernels are compiled for each.
RECORDS = [TokenizerRecord(f"none-{size}", size, f"{size:064}", 0) for size in (64, 1 << 17)]
Records = Sequence[TokenizerRecord]
Task = Callable[[Path, Records], None]
BUDGET = 8


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
    for of in records:
        _request(load_drafter("rest", datastores=[tiny_datastore(folder, of)]))


def _cacheback(folder: Path, records: Records) -> None:
    _request(load_drafter("cacheback"))
    for of in records:
        _request(load_drafter("cacheback", frozen_table=tiny_frozen(folder, of)))


def _by_bigram(name: str) -> Task:
    def task(folder: Path, records: Records) -> None:
        for of in records:
            _request(load_drafter(name, bigram=tiny_bigram(folder, of)))

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
    from ngramkit.budget.auto import prepare

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
        store = tiny_store(folder, of)
        build_datastore(store, folder / f"{of.id}-datastore")
        for leader, follower in ((1, 3), (4, 8)):  # n-grams in one word, in several
            place = folder / f"{of.id}-frozen-{leader}"
            build_frozen(store, place, leader_len=leader, follower_len=follower)


def _verify(folder: Path, records: Records) -> None:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.verify import verify_artifact

    for of in records:
        store = tiny_store(folder, of)
        for path in (
            build_datastore(store, folder / f"{of.id}-datastore").path,
            tiny_frozen(folder, of).path,
        ):
            for _ in verify_artifact(path):
                """Each proof calls its kernels."""


def _recycling(folder: Path, records: Records) -> None:
    _request(load_drafter("recycling"))


def _automaton(folder: Path, records: Records) -> None:
    store = tiny_datastore(folder, records[0])
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
    # A numba of other insides compiles as it does.
    with contextlib.suppress(ImportError, AttributeError):
        from ngramkit import warming_numba

        warming_numba.spare()
    sys.stdout.write(json.dumps(run_tasks(sys.argv[1:])) + "\n")
