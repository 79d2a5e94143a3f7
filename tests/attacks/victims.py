"""Uses of an artifact: it is opened, queried, and drafted from with every drafter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ngramkit.basics.kinds import ROLES
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore, DatastoreShard
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.history import History
from ngramkit.formats.opening import CLASS_OF_KIND, open_artifact_folder
from ngramkit.formats.query import most_frequent, query_artifact
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels.suffix.sort import sort_shard

VOCABULARY, EOS = 24, 3
RECORD = TokenizerRecord("small", VOCABULARY, "5" * 64, EOS)
KINDS = tuple(CLASS_OF_KIND)
PROMPTS = ([5, 6, 7, 5, 6], [1], [VOCABULARY - 1, 0, 2])


def build_all(folder: Path) -> dict[str, Path]:
    """Build one small whole artifact of every kind."""
    random = np.random.default_rng(5)
    words = [random.integers(4, VOCABULARY, 5).tolist() for _ in range(6)]
    documents = [
        [token for word in random.integers(0, 6, 12) for token in words[word]] + [EOS]
        for _ in range(6)
    ]
    with ArtifactWriter(folder / "tokens", "tokens", {"attacked": 1}) as writer:
        tokens = np.array([token for document in documents for token in document], np.uint16)
        ends = np.cumsum([0, *map(len, documents)]).astype(np.uint64)
        writer.write("shard-00000.safetensors", {"tokens": tokens, "documents": ends})
        counts = {"documents": len(documents), "tokens": len(tokens)}
        writer.commit(RECORD, parameters={}, corpus={"id": "attacked"}, counts=counts)
    store = TokenStore.open(folder / "tokens")
    build_datastore(store, folder / "datastore", shard_tokens=1 << 10)
    build_frozen(store, folder / "frozen-table", follower_len=2, followers=8)
    _build_bigram(folder / "model-bigram", random)
    _build_unigram(folder / "model-unigram")
    _build_history(folder / "history", documents)
    return {kind: folder / kind for kind in KINDS}


def _build_bigram(path: Path, random: np.random.Generator) -> None:
    k, width = 3, 3
    best = np.stack([random.permutation(VOCABULARY)[:k] for _ in range(VOCABULARY)])
    extended = np.zeros((VOCABULARY, k, width), np.uint16)
    extended[:, :, 0] = best
    for depth in range(1, width):
        extended[:, :, depth] = best[:, 0][extended[:, :, depth - 1]]
    log_probs = np.tile(np.log([0.5, 0.25, 0.125]).astype(np.float16), (VOCABULARY, 1))
    arrays = {"next_tokens": best.astype(np.uint16), "log_probs": log_probs, "extended": extended}
    with ArtifactWriter(path, "model-bigram", {"attacked": 1}) as writer:
        writer.write("table.safetensors", arrays)
        writer.commit(
            RECORD,
            parameters={"k": k, "width": width, "extend": "bigram", "prefix": "none"},
            corpus={},
            counts={"rows": VOCABULARY, "drafts": VOCABULARY * k},
        )


def _build_unigram(path: Path) -> None:
    scores = np.log([0.4, 0.2, 0.1, 0.1]).astype(np.float32)
    arrays = {"tokens": np.array([7, 2, 4, 9], np.uint16), "scores": scores}
    with ArtifactWriter(path, "model-unigram", {"attacked": 1}) as writer:
        writer.write("table.safetensors", arrays)
        writer.commit(RECORD, parameters={"k": 4}, corpus={}, counts={"rows": 4})


def _build_history(path: Path, documents: list[list[int]]) -> None:
    history = History.at(path, RECORD)
    for document in documents:
        history.append(np.array(document, np.int32), 5)
    requests = history.log.read()
    joined = np.concatenate([np.append(r.tokens, VOCABULARY) for r in requests.requests])
    shard = DatastoreShard(**sort_shard(joined.astype(np.uint16), VOCABULARY))
    history.save_index(shard, requests.mark, complete=True)


def use(path: Path) -> bool:
    """Check that every draft is valid: its ids inside the vocabulary, its tree a tree.

    Raises NgramkitError where the artifact is refused.
    """
    artifact = open_artifact_folder(path)
    list(most_frequent(artifact, 3, 3))
    if isinstance(artifact, Datastore | FrozenTable):
        query_artifact(artifact, [5, 6], 3)
    if isinstance(artifact, TokenStore):
        for document in artifact.documents():
            if document.max(initial=0) >= artifact.tokenizer.vocabulary:
                return False
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            build_datastore(artifact, Path(scratch, "built"))
        return True
    return all(_drafts_well(drafter, artifact) for drafter in drafters(artifact))


def drafters(artifact: Artifact) -> Iterator[Drafter]:
    """Return every drafter that takes this kind."""
    if isinstance(artifact, History):
        for name in ("ssd", "blend"):
            past = PastRequests(artifact, capacity=1 << 12, read_only=True, background=False)
            yield load_drafter(name, past=past, tokenizer=artifact.tokenizer)
        return
    for name, entry in DRAFTERS.items():
        if ROLES.get(artifact.kind) in entry.artifacts:
            yield load_drafter(name, artifact)


def _drafts_well(drafter: Drafter, artifact: Artifact) -> bool:
    vocabulary = artifact.tokenizer.vocabulary
    for prompt in PROMPTS:
        inside = np.array([token for token in prompt if token < vocabulary] or [0], np.int32)
        drafter.start(inside)
        for _ in range(2):
            tree = drafter.draft(12)
            tree.check()
            ids = tree.token_ids
            if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
                return False
            if not np.isfinite(tree.scores).all():
                return False
            drafter.accept(ids[:1] if ids.size else inside[:1])
        if prompt is PROMPTS[0]:  # the next ones draft from it, too
            drafter.finish()
    return True
