"""Whole-vocabulary passes: what a language model holds likely after each of many short texts.

Batches are as large as memory allows; the best k are chosen on the device, and a batch's results
go to the host while the next one runs. Knows torch models and ids; does not know tables or files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ngramkit.errors import InputError
from ngramkit.formats.container import Array
from ngramkit.formats.model_bigram import LOWEST

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

# Rows of a first batch. Matrices this tall keep an accelerator's (a CPU's) multipliers busy; more
# gains nothing, and less is found by halving.
ROWS = {"cpu": 512}
ACCELERATOR_ROWS = 8192
SELECTED = 1 << 25  # logits sorted at a time, 8 bytes each


@dataclass(frozen=True)
class Likeliest:
    """The k likeliest next tokens of n texts, on the host."""

    tokens: Array  # int32[n, k], best first, ties by id
    log_probs: Array  # float16[n, k]


class Passes:
    """`model` is a transformers causal LM in evaluation mode; `vocabulary` its tokenizer's.

    `absent` are ids below `vocabulary` that no token has. `prefix` is read before every text.
    """

    def __init__(
        self, model: Any, vocabulary: int, absent: Array, prefix: list[int] | None = None
    ) -> None:
        import torch

        self.model = model
        self.vocabulary = vocabulary
        self._device = model.device
        self._absent = torch.as_tensor(absent, dtype=torch.int64)
        self._prefix = prefix or []
        self._prefix_cache: Any = None
        self.rows = ROWS.get(self._device.type, ACCELERATOR_ROWS)

    def likeliest(self, tokens: Array, k: int) -> Iterator[Likeliest]:
        """The best k after every text [prefix, token], batch by batch; tokens int[n].

        Raises InputError where one text alone is too much for the memory.
        """

        def work(begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
            logits, _ = self._read(tokens[begin:end, None], use_cache=False)
            return _best(self._real(logits), k)

        for ids, log_probs in _one_behind(self._batches(0, len(tokens), work)):
            yield Likeliest(ids.cpu().numpy(), log_probs.cpu().numpy())

    def continued(self, seconds: Array, begin: int, length: int) -> Iterator[Array]:
        """Greedy continuations int32[rows, length] of the texts [prefix, token, seconds[token, j]].

        seconds int[n, k]; the texts go through it row by row, from the text `begin` on.
        """
        import torch

        flat, k = seconds.reshape(-1), seconds.shape[1]

        def work(begin: int, end: int) -> torch.Tensor:
            owners = np.arange(begin, end) // k
            first = int(owners[0])
            _, cache = self._read(np.arange(first, owners[-1] + 1)[:, None], use_cache=True)
            # On the host: the layers may be on several devices, each takes such an index.
            cache.batch_select_indices(torch.from_numpy(owners - first))
            return self._greedy(self._ids(flat[begin:end, None]), cache, length)

        for ids in _one_behind(self._batches(begin, len(flat), work)):
            yield ids.cpu().numpy()

    def _greedy(self, ids: torch.Tensor, cache: Any, length: int) -> torch.Tensor:
        import torch

        written = []
        for _ in range(length):
            logits, cache = self._forward(ids, cache, use_cache=True)
            ids, _ = _best(self._real(logits), 1)
            written.append(ids)
            ids = ids.long().to(self._device)
        return torch.cat(written, dim=1)

    def _read(self, rows: Array, *, use_cache: bool) -> tuple[torch.Tensor, Any]:
        """Logits [n, padded vocabulary] after prefix and rows [n, 1], and the cache of both."""
        cache = self._cache_of_prefix(len(rows))
        return self._forward(self._ids(rows), cache, use_cache=use_cache or cache is not None)

    def _cache_of_prefix(self, rows: int) -> Any:
        """The prefix is read once; every batch begins with a copy of its keys and values."""
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
        import torch

        return torch.as_tensor(rows, dtype=torch.int64).to(self._device)

    def _real(self, logits: torch.Tensor) -> torch.Tensor:
        """Without the columns that no token has: cut at the end, lowest inside."""
        real = logits[:, : self.vocabulary]
        if len(self._absent):
            real = real.index_fill(1, self._absent.to(real.device), float("-inf"))
        return real

    def _batches(self, begin: int, total: int, work: Callable[[int, int], T]) -> Iterator[T]:
        """`work` over begin..total; out of memory, the batch is halved for good."""
        while begin < total:
            end = min(begin + self.rows, total)
            done = self._attempt(work, begin, end)
            if done is None:
                # Here, not where the error was caught: its traceback holds the tensors.
                self._halve()
                continue
            yield done
            begin = end

    def _attempt(self, work: Callable[[int, int], T], begin: int, end: int) -> T | None:
        import torch

        try:
            with torch.inference_mode():
                return work(begin, end)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            return None

    def _halve(self) -> None:
        import torch

        if self.rows == 1:
            raise InputError(
                "out of memory with one token at a time",
                "use a device with more memory, device_map=auto for several, or a 16-bit dtype",
                option=("device_map", "dtype"),
            )
        self.rows //= 2
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether the device's or the host's allocator gave up."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text


def _one_behind(results: Iterator[T]) -> Iterator[T]:
    """Each result once its successor was asked for: a device works on while the host fetches."""
    pending: list[T] = []
    for result in results:
        yield from pending
        pending = [result]
    yield from pending


def _best(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids int32[n, k] and log-probabilities float16[n, k] of the best, ties by id."""
    import torch

    rows = max(1, SELECTED // logits.shape[1])
    parts = [_best_of(part.float(), k) for part in torch.split(logits, rows)]
    ids, log_probs = zip(*parts, strict=True)
    return torch.cat(ids), torch.cat(log_probs)


def _best_of(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    normaliser = logits.logsumexp(dim=1, keepdim=True)
    ids = select_likeliest(logits, k)
    log_probs = (logits.gather(1, ids) - normaliser).clamp(float(LOWEST), 0.0)
    return ids.to(torch.int32), log_probs.to(torch.float16)


def select_likeliest(values: torch.Tensor, k: int) -> torch.Tensor:
    """int64[n, k]: the columns of the k highest values, best first, ties to the lower column.

    torch.topk leaves ties open, and 16-bit logits are full of them, so it sorts whole numbers made
    of both: the value in the upper 32 bits (a float's bits, in an order that integers share), the
    column, backwards, in the lower.
    """
    import torch

    bits = (values + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    bits ^= (bits >> 31) & 0x7FFFFFFF
    columns = torch.arange(values.shape[1], device=values.device)
    keys = bits.long().bitwise_left_shift_(32).bitwise_or_(0xFFFFFFFF - columns)
    top = keys.topk(k, dim=1).values
    return 0xFFFFFFFF - (top & 0xFFFFFFFF)
