"""The ssd drafter: what it learns, what a stale history costs, and its worst buffer.

References are no history on the same requests, in turns, and a buffer of ordinary code. What a
stale history costs in tokens/step is a replay of the records of benchmarks.rest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import Row, interleaved
from benchmarks._decoding import Tokens, held_out, task_of
from benchmarks.rest import _data
from ngramkit.decode.compare import warm_up
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.session import Session
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import NoDraft
from ngramkit.drafters.ssd import Ssd
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.simulation import replay_drafter
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.history import History

PROMPTS = 8
NEW_TOKENS = 96
ROUNDS = 5
BUFFER = 1_000_000  # tokens
DRAFTS = 400
STALE = 4_000_000  # tokens at most


def rows() -> Iterator[Row]:
    model = load_model("demo", device="cpu")
    task = task_of(model, max_new_tokens=NEW_TOKENS)
    prompts = held_out(model, PROMPTS)
    requests = [np.append(prompt, task.complete(prompt, NoDraft()).token_ids) for prompt in prompts]
    ordinary = np.concatenate(requests)
    yield learning(task, prompts, requests)
    yield stale(task, prompts, ordinary)
    yield stale_and_learning()
    yield worst_buffer(model, ordinary)


def learning(task: Session, prompts: list[Tokens], requests: list[Tokens]) -> Row:
    """Requests that come a second time against the same requests the first time."""
    first = passes(task, taught(task.model, ()), prompts)
    again = passes(task, taught(task.model, requests), prompts)
    pairs = zip(requests, prompts, strict=True)
    tokens = sum(len(request) - len(prompt) - 1 for request, prompt in pairs)
    return Row(
        f"ssd, {len(prompts)} requests seen before",
        f"{tokens / again:.2f} tokens/step",
        f"{tokens / first:.2f} without a history",
        first / again,
        "above 1",
    )


def stale(task: Session, prompts: list[Tokens], ordinary: Tokens) -> Row:
    """A history of requests whose words are these ones' words, in an order that nobody writes."""
    order = np.random.default_rng(0).permutation(len(ordinary) * 50) % len(ordinary)
    drafter = taught(task.model, np.split(ordinary[order], range(500, len(order), 500)))
    base = NoDraft()
    for each in (drafter, base):
        warm_up(task, prompts[0], each)
    seconds = interleaved(
        partial(passes, task, drafter, prompts), partial(passes, task, base, prompts), rounds=ROUNDS
    )
    return Row(
        f"ssd over a stale history of {len(order):,} tokens",
        f"{seconds[0]:.2f} s for {len(prompts)} requests",
        f"{seconds[1]:.2f} s without a history",
        seconds[1] / seconds[0],
        "0.98 or above",
    )


def stale_and_learning() -> Row:
    """Requests that are remembered, after a history of words in random order and after none."""
    with tempfile.TemporaryDirectory() as name:
        datastore, pairs = _data(Path(name))
        history, words = shuffled_history(Path(name) / "history", datastore)
        records = [Record(str(i), "all", [Turn(*pair)]) for i, pair in enumerate(pairs)]
        after_stale, after_none = (
            replay_drafter(
                "ssd", partial(_learner, datastore, past), records, 64, keep_state=True
            ).total
            for past in (history, None)
        )
    return Row(
        f"ssd with 64 nodes over a stale history, {after_none.tokens:,} recorded tokens",
        f"{after_stale.tokens_per_step:.2f} tokens/step after {words:,} shuffled tokens",
        f"{after_none.tokens_per_step:.2f} after none",
        after_stale.tokens_per_step / after_none.tokens_per_step,
        "0.98 or above",
    )


def _learner(datastore: Datastore, history: History | None) -> Ssd:
    tokenizer = datastore.tokenizer
    return Ssd(PastRequests(history, tokenizer=tokenizer, read_only=True, background=False))


def shuffled_history(path: Path, datastore: Datastore) -> tuple[History, int]:
    """Of a datastore's tokens, in requests of 500; and how many there are."""
    tokens = datastore.shards[0].tokens
    words = tokens[tokens != datastore.separator][:STALE].astype(np.int32)
    words = np.random.default_rng(0).permutation(words)
    history = History.at(path, datastore.tokenizer)
    for request in np.split(words, range(500, len(words), 500)):
        history.append(request, 1)
    return history, len(words)


def worst_buffer(model: LanguageModel, ordinary: npt.NDArray[np.int32]) -> Row:
    """One token, a million times, against code."""
    same = np.full(BUFFER, int(ordinary[0]), np.int32)
    code = np.resize(ordinary, BUFFER)
    medians = []
    for text in (same, code):
        drafter = taught(model, np.split(text, range(50_000, BUFFER, 50_000)))
        drafter.start(text[:1000])
        taken = []
        for token in text[1000 : 1000 + DRAFTS]:
            started = time.perf_counter()
            drafter.draft(64)
            taken.append(time.perf_counter() - started)
            drafter.accept(np.array([token], np.int32))
        medians.append(float(np.median(taken)))
    return Row(
        f"ssd, one draft of 64 nodes from {BUFFER:,} times one token",
        f"{medians[0] * 1e6:.0f} us",
        f"{medians[1] * 1e6:.0f} us from as much code",
        medians[1] / medians[0],
        "no slower",
    )


def taught(model: LanguageModel, requests: Sequence[npt.NDArray[np.int32]]) -> Ssd:
    """A drafter that has seen `requests` and learns no more."""
    past = PastRequests(tokenizer=model.tokenizer.record, background=False)
    for request in requests:
        past.remember(request.astype(np.int32), len(request))
    past.forgetful = True
    return Ssd(past, least_score=model.least_score)


def passes(task: Session, drafter: Drafter, prompts: list[Tokens]) -> int:
    return sum(task.complete(prompt, drafter).passes for prompt in prompts)
