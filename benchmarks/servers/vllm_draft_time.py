"""Draft time of vLLM's two adapters, in alternating calls of one process.

    ENVIRONMENT/bin/python -m benchmarks.servers.vllm_draft_time --write

ENVIRONMENT needs vLLM to be importable; no engine runs. 64 rows, then 256, each write a recorded
answer, accept the correct part of their draft, and are followed by the next request. Drafts are
chains of 8 from a datastore (benchmarks._data) and a history of its first 4 million tokens. Times
contain the begin and the end of requests; the stubs keep their tokens in host memory, so copies
from a device take no time. With one thread, times are processor time of that thread, so other
programs matter less; with several they are wall time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks import markdown
from benchmarks._data import contexts, datastore
from benchmarks._figures import machine, write_figures
from ngramkit.drafters.base import NO_TOKENS, TokenArray, common_beginning
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.formats.history import History

COMMAND = "python -m benchmarks.servers.vllm_draft_time"
ROWS, CHAIN, LENGTH, CALLS, BEGUN = (64, 256), 8, 4096, 100, 20
MOST, GROWTH = 1.2, 4.0  # times V1's median; 256 rows over 64
BASE = {"V2, trimmed": "V1", "V2, fixed": "V1, all slots"}
HEAD = (
    "rows", "adapter", "ms a step, median", "ms, p99", "over V1", f"over {ROWS[0]} rows",
    "drafted a row",
)  # fmt: skip
ALL = {"min_probability": 0.0, "pause": False}  # V1 fills all slots, as V2's fixed mode does


class Answers:
    """Rows that write recorded answers. `step` returns what each row wrote, and who began."""

    def __init__(self, turns: Sequence[tuple[TokenArray, TokenArray]], rows: int) -> None:
        self._queue = cycle(pair for pair in turns if sum(map(len, pair)) < LENGTH - CHAIN)
        self._left = [NO_TOKENS] * rows

    def step(
        self, chains: Sequence[Sequence[int]]
    ) -> tuple[list[TokenArray], dict[int, TokenArray]]:
        begun, written = {}, []
        for row, left in enumerate(self._left):
            drafted = np.array(chains[row], np.int32)
            if not len(left):
                begun[row], left = next(self._queue)
                drafted = NO_TOKENS
            right = common_beginning(drafted, left)
            written.append(left[: right + 1])
            self._left[row] = left[right + 1 :]
        return written, begun


class V1:
    def __init__(self, config: Any, clock: Callable[[], float]) -> None:
        from ngramkit.engines.vllm import Proposer

        self._proposer, self._clock = Proposer(config), clock

    def begin(self, rows: int) -> None:
        self._texts, self._sizes = np.zeros((rows, LENGTH), np.int32), np.zeros(rows, np.int32)

    def draft(
        self, written: Sequence[TokenArray], begun: dict[int, TokenArray]
    ) -> tuple[float, list[list[int]]]:
        for row, new in enumerate(written):
            if row in begun:
                self._sizes[row] = len(begun[row])
                self._texts[row, : len(begun[row])] = begun[row]
            size = int(self._sizes[row])
            self._texts[row, size : size + len(new)] = new
            self._sizes[row] += len(new)
        sampled = [new.tolist() for new in written]
        started = self._clock()
        chains = self._proposer.propose(sampled, self._sizes, self._texts)
        return self._clock() - started, chains


class V2:
    def __init__(self, config: Any, clock: Callable[[], float]) -> None:
        from ngramkit.engines.vllm_v2 import Speculator

        rows, self._clock = max(ROWS), clock
        self._total, self._tokens = (
            torch.zeros(rows, dtype=torch.int32),
            torch.zeros((rows, LENGTH), dtype=torch.int32),
        )
        states = SimpleNamespace(
            total_len=SimpleNamespace(gpu=self._total),
            all_token_ids=SimpleNamespace(gpu=self._tokens),
            prompt_len=SimpleNamespace(np=np.zeros(rows, np.int32)),
            req_id_to_index={},
        )
        self._speculator: Any = Speculator(config, torch.device("cpu"), states)
        self._names: list[str] = []
        self._begun = 0

    def begin(self, rows: int) -> None:
        for name in self._names:
            self._speculator.requests.finish(name)
        self._names = [""] * rows
        self._index = np.arange(rows)

    def draft(
        self, written: Sequence[TokenArray], begun: dict[int, TokenArray]
    ) -> tuple[float, list[list[int]]]:
        ended = [self._names[row] for row in begun if self._names[row]]
        new = [self._request(row, prompt) for row, prompt in begun.items()]
        for row, tokens in enumerate(written):
            size = int(self._total[row])
            self._tokens[row, size : size + len(tokens)] = torch.from_numpy(tokens)
            self._total[row] += len(tokens)
        counts = torch.tensor([len(each) for each in written], dtype=torch.int32)
        batch = SimpleNamespace(
            num_reqs=len(written), req_ids=list(self._names), idx_mapping_np=self._index,
            idx_mapping=torch.from_numpy(self._index), num_draft_tokens_per_req=None,
        )  # fmt: skip
        started = self._clock()
        for name in ended:
            self._speculator.requests.finish(name)
        for request in new:
            self._speculator.requests.begin(request)
        drafts = self._speculator.propose(
            batch, None, None, None, None, counts, None, None, None, None, None
        )
        seconds = self._clock() - started
        ids = SimpleNamespace(req_ids=batch.req_ids, draft_token_ids=drafts.tolist())
        return seconds, self._speculator.trim(ids).draft_token_ids

    def _request(self, row: int, prompt: TokenArray) -> Any:
        self._begun += 1
        self._names[row] = f"{self._begun}-{row}"
        self._tokens[row, : len(prompt)] = torch.from_numpy(prompt)
        self._total[row] = len(prompt)
        sampling = SimpleNamespace(
            stop=[], stop_token_ids=[], eos_token_id=None, max_tokens=LENGTH, extra_args=None
        )
        return SimpleNamespace(
            req_id=self._names[row], prefill_token_ids=prompt.tolist(), prompt_len=len(prompt),
            sampling_params=sampling, lora_request=None, mm_features=[], prompt_embeds=None,
        )  # fmt: skip


def main() -> None:
    """Print the times; exit with 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers.vllm_draft_time")
    parser.add_argument("--threads", type=int, default=1, help="that draft (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as name:
        cells, missed = measure(Path(name), given.threads)
    print(markdown(HEAD, cells))
    if given.write:
        write_figures("vllm_draft_time", COMMAND, {"head": HEAD, "rows": cells})
    raise SystemExit(missed > 0)


def measure(folder: Path, threads: int) -> tuple[list[tuple[str, ...]], int]:
    """Return the rows of a table, and how many bounds were missed."""
    store = datastore(folder)
    past = write_history(store, folder / "history")
    draft = {
        "datastores": [str(store.path)], "history": str(folder / "history"), "store": False,
        "threads": threads,
    }  # fmt: skip
    vocabulary = store.tokenizer.vocabulary
    clock = time.thread_time if threads == 1 else time.perf_counter
    sides: dict[str, Any] = {
        "V1": V1(options(vocabulary, draft), clock),
        "V2, trimmed": V2(options(vocabulary, draft), clock),
        "V1, all slots": V1(options(vocabulary, {**draft, **ALL}), clock),
        "V2, fixed": V2(options(vocabulary, draft, asynchronous=True), clock),
    }
    print(f"{store.manifest.counts['tokens']:,} tokens, {past:,} of past requests; {machine()}")
    cells, missed = list[tuple[str, ...]](), 0
    medians = dict[tuple[str, int], float]()
    for rows in ROWS:
        for name, (seconds, drafted) in run(sides, rows).items():
            medians[name, rows] = float(np.median(seconds))
            base = medians[BASE.get(name, name), rows]
            ratio, growth = medians[name, rows] / base, medians[name, rows] / medians[name, ROWS[0]]
            late = float(np.quantile(seconds, 0.99))
            figures = (1e3 * medians[name, rows], 1e3 * late, ratio, growth, drafted / rows)
            cells.append((str(rows), name, *(f"{figure:.2f}" for figure in figures)))
            missed += name.startswith("V2") and (ratio > MOST or growth > GROWTH)
    return cells, missed


def write_history(store: Any, folder: Path) -> int:
    """Write the datastore's first tokens as past requests; return how many tokens."""
    history = History.at(folder, store.tokenizer)
    tokens = np.asarray(store.shards[0].tokens[:HISTORY_TOKENS]).astype(np.int32)
    ends = np.flatnonzero(tokens == store.separator)
    documents = np.split(tokens[: ends[-1]], ends[:-1])
    history.extend((each[1:], len(each) // 4) for each in documents)
    history.extend_index(HISTORY_TOKENS)
    return int(ends[-1]) - len(documents)


def options(vocabulary: int, draft: dict[str, Any], *, asynchronous: bool = False) -> Any:
    """Return the part of a VllmConfig that both adapters read."""
    return SimpleNamespace(
        model_config=SimpleNamespace(get_vocab_size=lambda: vocabulary, max_model_len=LENGTH),
        scheduler_config=SimpleNamespace(max_num_seqs=max(ROWS), async_scheduling=asynchronous),
        speculative_config=SimpleNamespace(method="ngram", num_speculative_tokens=CHAIN),
        parallel_config=SimpleNamespace(rank=0, tensor_parallel_size=1, data_parallel_index=0),
        device_config=SimpleNamespace(device_type=""),
        additional_config={"ngramkit": draft},
    )


def run(sides: dict[str, Any], rows: int) -> dict[str, tuple[list[float], float]]:
    """Return the seconds of each adapter's calls and its tokens a call, without the first calls."""
    turns = contexts()
    walks = {name: Answers(turns, rows) for name in sides}
    chains: dict[str, list[list[int]]] = {name: [[]] * rows for name in sides}
    times: dict[str, list[float]] = {name: [] for name in sides}
    drafted = dict.fromkeys(sides, 0)
    for side in sides.values():
        side.begin(rows)
    for call in range(CALLS):
        for name, side in sides.items():
            seconds, chains[name] = side.draft(*walks[name].step(chains[name]))
            if call >= BEGUN:
                times[name].append(seconds)
                drafted[name] += sum(map(len, chains[name]))
    return {name: (times[name], drafted[name] / len(times[name])) for name in sides}


if __name__ == "__main__":
    main()
