"""The model's top-k tokens after each of many short texts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from ngramkit.basics.errors import InputError
from ngramkit.formats.model_bigram import MIN_LOG_PROBABILITY
from ngramkit.formats.safetensors import Array

# Rows of a first batch, enough to keep the multipliers busy; halved when memory runs out.
CPU_ROWS = 512
ACCELERATOR_ROWS = 8192
SORTED_LOGITS = 1 << 25  # logits sorted at a time, 8 bytes each

T = TypeVar("T")


class Passes:
    """Batched passes of `model`, a transformers causal LM in evaluation mode, over short texts.

    `absent` are the ids below `vocabulary` without a token; `prefix` comes before every text.
    """

    def __init__(
        self, model: Any, vocabulary: int, absent: Array, prefix: list[int] | None = None
    ) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self._device = model.device
        self._absent = torch.as_tensor(absent, dtype=torch.int64)
        self._prefix = prefix or []
        self._prefix_cache: Any = None
        self.rows = CPU_ROWS if self._device.type == "cpu" else ACCELERATOR_ROWS

    def likeliest(self, tokens: Array, k: int) -> Iterator[tuple[Array, Array]]:
        """Yield the top k tokens after every text [prefix, token] of `tokens`, int[n], in batches.

        A batch is ids int32[rows, k], best first, ties by id, and log-probabilities float16[rows,
        k].
        """

        def work(begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
            logits, _ = self._read(tokens[begin:end, None], use_cache=False)
            return _top_k(self._without_absent_ids(logits), k)

        for ids, log_probs in _overlapped(self._batches(0, len(tokens), work)):
            yield ids.cpu().numpy(), log_probs.cpu().numpy()

    def continued(self, seconds: Array, begin: int, length: int) -> Iterator[Array]:
        """Yield greedy continuations int32[rows, length] of [prefix, token, seconds[token, j]].

        The first text is number `begin` of `seconds`, int[n, k].
        """
        flat, k = seconds.reshape(-1), seconds.shape[1]

        def work(begin: int, end: int) -> torch.Tensor:
            owners = np.arange(begin, end) // k
            first = int(owners[0])
            _, cache = self._read(np.arange(first, owners[-1] + 1)[:, None], use_cache=True)
            # An index on the host serves layers on any device.
            cache.batch_select_indices(torch.from_numpy(owners - first))
            return self._greedy(self._ids(flat[begin:end, None]), cache, length)

        for ids in _overlapped(self._batches(begin, len(flat), work)):
            yield ids.cpu().numpy()

    def _greedy(self, ids: torch.Tensor, cache: Any, length: int) -> torch.Tensor:
        written = []
        for _ in range(length):
            logits, cache = self._forward(ids, cache, use_cache=True)
            ids, _ = _top_k(self._without_absent_ids(logits), 1)
            written.append(ids)
            ids = ids.long().to(self._device)
        return torch.cat(written, dim=1)

    def _read(self, rows: Array, *, use_cache: bool) -> tuple[torch.Tensor, Any]:
        cache = self._cache_of_prefix(len(rows))
        return self._forward(self._ids(rows), cache, use_cache=use_cache or cache is not None)

    def _cache_of_prefix(self, rows: int) -> Any:
        """Copy the prefix's keys and values, computed once."""
        if not self._prefix:
            return None
        if self._prefix_cache is None:
            ids = self._ids(np.array([self._prefix]))
            _, self._prefix_cache = self._forward(ids, None, use_cache=True)
        cache = copy.deepcopy(self._prefix_cache)
        cache.batch_repeat_interleave(rows)
        return cache

    def _forward(
        self, ids: torch.Tensor, cache: Any, *, use_cache: bool
    ) -> tuple[torch.Tensor, Any]:
        output = self.model(input_ids=ids, past_key_values=cache, use_cache=use_cache)
        return output.logits[:, -1], output.past_key_values

    def _ids(self, rows: Array) -> torch.Tensor:
        return torch.as_tensor(rows, dtype=torch.int64).to(self._device)

    def _without_absent_ids(self, logits: torch.Tensor) -> torch.Tensor:
        real = logits[:, : self.vocabulary]
        if len(self._absent):
            real = real.index_fill(1, self._absent.to(real.device), float("-inf"))
        return real

    def _batches(self, begin: int, total: int, work: Callable[[int, int], T]) -> Iterator[T]:
        """Yield `work` over begin..total; halve the batch whenever memory runs out."""
        while begin < total:
            end = min(begin + self.rows, total)
            result = None
            try:
                with torch.inference_mode():
                    result = work(begin, end)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            if result is not None:
                yield result
                begin = end
                continue
            # After the except clause, whose traceback keeps the tensors alive.
            if self.rows == 1:
                raise InputError(
                    "cannot run the model: out of memory with one token at a time",
                    "Use a larger device, device_map=auto for several, or a 16-bit dtype.",
                    option=("device_map", "dtype"),
                )
            self.rows //= 2
            if self._device.type == "cuda":
                torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text


def _overlapped(results: Iterator[T]) -> Iterator[T]:
    """Yield each result once the next has started, so that copies overlap."""
    pending: list[T] = []
    for result in results:
        yield from pending
        pending = [result]
    yield from pending


def _top_k(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the top ids int32[n, k], ties by id, and log-probabilities float16[n, k]."""
    ids, log_probs = [], []
    for part in torch.split(logits, max(1, SORTED_LOGITS // logits.shape[1])):
        values = part.float()
        normaliser = values.logsumexp(dim=1, keepdim=True)
        best = select_likeliest(values, k)
        ids.append(best.to(torch.int32))
        probs = (values.gather(1, best) - normaliser).clamp(float(MIN_LOG_PROBABILITY), 0.0)
        log_probs.append(probs.to(torch.float16))
    return torch.cat(ids), torch.cat(log_probs)


def select_likeliest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return the columns of the k highest values, best first, ties to the lower: int64[n, k].

    torch.topk breaks ties arbitrarily, so keys hold the value's bits above the complemented column.
    """
    bits = (values + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    bits ^= (bits >> 31) & 0x7FFFFFFF
    columns = torch.arange(values.shape[1], device=values.device)
    keys = bits.long().bitwise_left_shift_(32).bitwise_or_(0xFFFFFFFF - columns)
    top = keys.topk(k, dim=1).values
    return 0xFFFFFFFF - (top & 0xFFFFFFFF)
