"""Passes of a language model over its whole vocabulary, for the builders of model tables.

Batches are as large as memory allows; the best k are chosen on the device, and a batch's results go
to the host while the next one runs. Options are checked apart (`require_bigram_options`,
`require_unigram_options`), before a model is loaded in vain.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.models import HUB_IDS, is_gguf, resolve_model
from ngramkit.basics.results import Result
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.model_bigram import LOWEST
from ngramkit.formats.safetensors import Array

if TYPE_CHECKING:
    import torch


PREFIXES = ("none", "bos")
EXTENSIONS = ("bigram", "model")
MOST_WIDTH = 1024  # tokens of a draft
RULES = ("distance", "inner-product")
HASHED = 1 << 22  # elements summed up at a time
# Rows of a first batch. Matrices this tall keep an accelerator's (a CPU's) multipliers busy; more
# gains nothing, and less is found by halving.
ROWS = {"cpu": 512}
ACCELERATOR_ROWS = 8192
SELECTED = 1 << 25  # logits sorted at a time, 8 bytes each

T = TypeVar("T")
Table = TypeVar("Table", bound=Artifact)


def require_bigram_options(k: int, width: int, prefix: str, extend: str) -> None:
    """Raise UsageError for parameters that make no sense with any model."""
    require_between("k", k, 1)
    require_between("width", width, 1, MOST_WIDTH)
    _require_known("prefix", prefix, PREFIXES)
    _require_known("extend", extend, EXTENSIONS)


def require_unigram_options(k: int, rule: str) -> None:
    """Raise UsageError for parameters that make no sense with any model."""
    require_between("k", k, 1)
    _require_known("rule", rule, RULES)


def require_rows(k: int, tokenizer: TextTokenizer, prefix: str = "none") -> Array:
    """Return `absent_ids`. Raises UsageError for a `k` above the other ids, and for a BOS that the
    tokenizer lacks."""
    absent = absent_ids(tokenizer)
    known = tokenizer.record.vocabulary - len(absent)
    require_between("k", k, 1, known, "the vocabulary has no more tokens")
    if prefix == "bos" and tokenizer.bos is None:
        raise UsageError(
            f"{tokenizer.record.id} has no BOS token", "use prefix=none", option="prefix"
        )
    return absent


def table_plan(
    kind: str, model: Any, tokenizer: TextTokenizer, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that decides a table's bytes, the manifest's parameters among it.

    They name a model by its Hub id, where it has one, and by its commit, where that is known.
    """
    name, revision = tokenizer.record.id, getattr(model.config, "_commit_hash", None)
    parameters = {
        "model": HUB_IDS.get(name, name),
        **({"revision": revision} if revision else {}),
        **({"weights": Path(resolve_model(name)).name} if is_gguf(name) else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
        **options,
    }
    return {
        "kind": kind,
        "parameters": parameters,
        "tokenizer": tokenizer.record.fingerprint,
        "weights": weights_fingerprint(model),
    }


def _require_known(name: str, chosen: str, known: tuple[str, ...]) -> None:
    if chosen not in known:
        raise UsageError(f"{name} must be {' or '.join(known)}, is {chosen!r}", option=name)


# A loaded model, and which weights it has.


@dataclass(frozen=True)
class BuiltTable(Result, Generic[Table]):
    """A table read off a model, and the seconds of building it, loading left out; None where it was
    there already."""

    table: Table
    seconds: float | None


def require_usable(model: Any, tokenizer: TextTokenizer) -> None:
    """Raise InputError for models that have no next-token distribution over these ids."""
    name, config = tokenizer.record.id, model.config.get_text_config()
    if model.config.is_encoder_decoder:
        raise InputError(f"{name} is an encoder-decoder", "use a decoder-only causal model")
    if model.get_output_embeddings() is None:
        raise InputError(
            f"{name} has no output embedding ({type(model).__name__})",
            "load it with a language-modelling head: a causal LM, not its bare decoder",
        )
    if model.device.type == "meta":
        raise InputError(
            f"{name} does not fit into memory",
            "use more devices or dtype=bfloat16",
            option="dtype",
        )
    if tokenizer.record.vocabulary > config.vocab_size:
        raise InputError(
            f"the tokenizer of {name} has {tokenizer.record.vocabulary:,} ids, "
            f"its model only {config.vocab_size:,}",
            "they are not of the same model; resize the model's embeddings, or fix the tokenizer",
        )


def weights_fingerprint(model: Any) -> str:
    """Return a sha256 over every parameter's name, shape, dtype and a checksum of its bits.

    The checksum is taken where the weights are: at the speed of their memory, not of the bus.
    """
    import torch

    digest = hashlib.sha256()
    with torch.inference_mode():
        for name, parameter in sorted(model.named_parameters(), key=itemgetter(0)):
            shape = tuple(parameter.shape)
            digest.update(f"{name} {shape} {parameter.dtype} {_checksum(parameter)}\n".encode())
    return digest.hexdigest()


def _checksum(parameter: torch.Tensor) -> int:
    """Return the sum of (2 i + 1) times the bits of element i, modulo 2**64."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = parameter.detach().contiguous().view(-1).view(whole[parameter.element_size()])
    total = 0
    for begin in range(0, len(bits), HASHED):
        part = bits[begin : begin + HASHED].long()
        at = torch.arange(begin, begin + len(part), device=part.device)
        total += int((part * (2 * at + 1)).sum())
    return total & 0xFFFFFFFFFFFFFFFF


def absent_ids(tokenizer: TextTokenizer) -> Array:
    """Return ids below the vocabulary's size that no token has, ascending: int64[m]."""
    present = np.zeros(tokenizer.record.vocabulary, bool)
    present[list(tokenizer.backend.get_vocab(with_added_tokens=True).values())] = True
    return np.flatnonzero(~present)


# The likeliest tokens after each of many short texts.


class Passes:
    """Batches of `model`, a transformers causal LM in evaluation mode, over short texts.

    `vocabulary` is its tokenizer's size; `absent` are ids below it that no token has. `prefix` is
    read before every text.
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

    def likeliest(self, tokens: Array, k: int) -> Iterator[tuple[Array, Array]]:
        """Yield the best k tokens after every text [prefix, token], batch by batch; tokens int[n].

        They are int32[rows, k], best first, ties by id; with them come their log-probabilities,
        float16[rows, k], both on the host. Raises InputError where one text alone is too much for
        the memory.
        """

        def work(begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
            logits, _ = self._read(tokens[begin:end, None], use_cache=False)
            return _best(self._real(logits), k)

        for ids, log_probs in _one_behind(self._batches(0, len(tokens), work)):
            yield ids.cpu().numpy(), log_probs.cpu().numpy()

    def continued(self, seconds: Array, begin: int, length: int) -> Iterator[Array]:
        """Yield greedy continuations int32[rows, length] of [prefix, token, seconds[token, j]].

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
        """Return logits [n, padded vocabulary] after prefix and rows [n, 1], and their cache."""
        cache = self._cache_of_prefix(len(rows))
        return self._forward(self._ids(rows), cache, use_cache=use_cache or cache is not None)

    def _cache_of_prefix(self, rows: int) -> Any:
        """Return a copy of the keys and values of the prefix, which is read once."""
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
        """Return the logits of tokens alone: others are cut at the end, and -inf inside."""
        real = logits[:, : self.vocabulary]
        if len(self._absent):
            real = real.index_fill(1, self._absent.to(real.device), float("-inf"))
        return real

    def _batches(self, begin: int, total: int, work: Callable[[int, int], T]) -> Iterator[T]:
        """Yield `work` over begin..total; out of memory, halve the batch for good."""
        import torch

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
            # Not where the error was caught: its traceback holds the tensors.
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
    """Return whether the device's or the host's allocator gave up."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text


def _one_behind(results: Iterator[T]) -> Iterator[T]:
    """Yield each result after its successor was begun: the device works while the host fetches."""
    pending: list[T] = []
    for result in results:
        yield from pending
        pending = [result]
    yield from pending


def _best(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the best ids int32[n, k], ties by id, and their log-probabilities float16[n, k]."""
    import torch

    ids, log_probs = [], []
    for part in torch.split(logits, max(1, SELECTED // logits.shape[1])):
        values = part.float()
        normaliser = values.logsumexp(dim=1, keepdim=True)
        best = select_likeliest(values, k)
        ids.append(best.to(torch.int32))
        probs = (values.gather(1, best) - normaliser).clamp(float(LOWEST), 0.0)
        log_probs.append(probs.to(torch.float16))
    return torch.cat(ids), torch.cat(log_probs)


def select_likeliest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return the columns of the k highest values, best first, ties to the lower: int64[n, k].

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
