"""Every drafter of the registry, over artifacts that hold given texts: some drafts are right.

Drafters that know nothing but the live context are shown the texts before each prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.drafters.base import Drafter, Evidence, TokenArray
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.formats.history import History
from ngramkit.formats.resumable_writer import ArtifactWriter

K, WIDTH = 4, 3
ENDS = 12  # tokens of a text that the unigram table is made of
LIVE = ("context", "prompt-lookup", "ngrammys", "automaton")


def knowing_drafters(
    texts: Sequence[TokenArray], token_store: Any, record: Any, folder: Path
) -> dict[str, Drafter]:
    """By name. `token_store` is the fixture, `record` the tokenizer's."""
    store = token_store(texts, record=record)
    past = History.at(folder / "past", record)
    for text in texts:
        past.append(text, 1)
    artifacts = {
        "datastores": [build_datastore(store, folder / "datastore")],
        "frozen_table": build_frozen(store, folder / "frozen"),
        "bigram": _bigram(texts, record, folder / "bigram"),
        "unigram": _unigram(texts, record, folder / "unigram"),
    }
    found: dict[str, Drafter] = {}
    for name in DRAFTERS:
        earlier = PastRequests(past, background=False, forgetful=True)
        drafter = load_drafter(name, **artifacts, past=earlier)
        found[name] = Told(drafter, np.concatenate(texts)) if name in LIVE else drafter
    _teach(found["recycling"], np.concatenate(texts))
    return found


def _teach(drafter: Drafter, text: TokenArray) -> None:
    """As if a model had held likely what follows in `text`."""
    size = len(text) - 1
    likely = text[1:, None].astype(np.int32)
    parents = np.arange(-1, size - 1, dtype=np.int32)
    drafter.start(text[:1])
    evidence = Evidence(text[:-1], parents, likely, np.zeros((size, 1), np.float32))
    drafter.accept(text[1:], evidence)
    drafter.finish()


class Told:
    """A drafter whose context begins with `text`."""

    def __init__(self, drafter: Drafter, text: TokenArray) -> None:
        self._text = text
        self.draft, self.accept, self.finish = drafter.draft, drafter.accept, drafter.finish
        self._start = drafter.start

    def start(self, prompt: TokenArray) -> None:
        self._start(np.concatenate([self._text, prompt]))


def _bigram(texts: Sequence[TokenArray], record: Any, path: Path) -> Path:
    followers: list[Counter[int]] = [Counter() for _ in range(record.vocabulary)]
    for text in texts:
        for one, other in zip(text[:-1].tolist(), text[1:].tolist(), strict=True):
            followers[one][other] += 1
    tokens = np.empty((record.vocabulary, K), np.uint16)
    for token, counts in enumerate(followers):
        others = (other for other in range(record.vocabulary) if other not in counts)
        known = [other for other, _ in counts.most_common(K)]
        tokens[token] = [*known, *(next(others) for _ in range(K - len(known)))]
    extended = np.stack([tokens, tokens[tokens, 0], tokens[tokens[tokens, 0], 0]], -1)
    log_probs = np.tile(np.log([0.5, 0.25, 0.125, 0.0625]).astype(np.float16), (len(tokens), 1))
    arrays = {"next_tokens": tokens, "log_probs": log_probs, "extended": extended}
    parameters = {"k": K, "width": WIDTH, "extend": "bigram"}
    counted = {"rows": len(tokens), "drafts": tokens.size}
    return _written(path, "model-bigram", arrays, record, parameters, counted)


def _unigram(texts: Sequence[TokenArray], record: Any, path: Path) -> Path:
    ends = np.stack([text[-ENDS:] for text in texts], 1).ravel()  # each text's are as frequent
    frequent = [token for token, _ in Counter(ends.tolist()).most_common(64)]
    scores = np.log(0.5) * np.arange(1, len(frequent) + 1)
    arrays = {"tokens": np.array(frequent, np.uint16), "scores": scores.astype(np.float32)}
    return _written(
        path, "model-unigram", arrays, record, {"k": len(frequent)}, {"rows": len(frequent)}
    )


def _written(
    path: Path, kind: str, arrays: Any, record: Any, parameters: Any, counts: dict[str, int]
) -> Path:
    with ArtifactWriter(path, kind, parameters) as writer:
        writer.write("table.safetensors", arrays)
        writer.commit(record, parameters=parameters, corpus={}, counts=counts)
    return path
