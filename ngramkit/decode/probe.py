"""Probes: do drafts verified as trees, rows or chains get the logits of plain passes?

A model may ignore a mask, count columns instead of positions (ALiBi, windows inside a layer) or
keep a number between passes; its config does not show that.

Measured on 25 architectures, relative to the logits' spread: rounding moves logits by a millionth
in float32 and by 0.5 to 5 % in 16 bits, counting columns by at least 20 %. Recurrent layers that
step in two ways differ by 1 in 5,000 or more, growing with every token.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList
from transformers.cache_utils import Cache, DynamicLayer

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import UsageError
from ngramkit.decode.length_limits import LENGTH_BEFORE_SCALING, rope_limits, rotary_embeddings
from ngramkit.decode.load import attention_of, context_of, digest_of, software_facts
from ngramkit.decode.masks import TreeMasks
from ngramkit.decode.packed_weights import devices_of
from ngramkit.decode.passes import Forward, model_passes
from ngramkit.decode.verify_rows import BatchVerifier, ChainVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import DraftTree

LOG = logging.getLogger("ngramkit")
PROBE_CACHE = TextCache("probes", 4096)
PROMPT_TOKENS = 4  # tokens
# Passes: siblings, nodes of a chain under the last of them, kept nodes of that path.
PASSES = ((0, 6, 4), (5, 3, 2), (0, 0, 0), (3, 2, 1))
# Chains, mostly cut off, and single tokens, which some models read with other kernels.
CHAINS = ((0, 6, 4), (0, 3, 2), (0, 0, 0), (0, 2, 2), *[(0, 0, 0)] * 5, (0, 4, 1), (0, 0, 0))
SIZE_BEYOND_WINDOW = (48, 16)  # siblings and chain nodes of the pass beyond a window
DEFAULT_WINDOW = 32  # tokens, for models without one
LONGEST_WINDOW = 16_384  # tokens; no layer of transformers has a longer one
SIZE_AROUND_LENGTH = (2, 4)  # siblings and chain nodes of passes around a length in the config
# Tolerances, as shares of the logits' spread.
TOLERANCE_16_BITS = 0.1
TOLERANCES = {torch.float32: 0.01}
TOLERANCES_OF_CHAINS = {torch.float32: 0.0001}
GENERATED_ROWS = 3  # rows compared with those of generate
MIN_SHARE_OF_ROWS = 0.75  # share of rows; in 16 bits near ties between experts fall either way

Kind = type[TreeVerifier | BatchVerifier]


# Whether a model's drafts fit, by the verifier and what a caller may change later.
_PROBED: WeakKeyDictionary[Any, dict[tuple[Any, ...], bool]] = WeakKeyDictionary()


def is_verifier_exact(model: Any, kind: Kind) -> bool:
    """Return whether drafts verified by `kind` get the model's own logits; probe it once."""
    known = _PROBED.setdefault(model, {})
    way = kind, attention_of(model), model.dtype, model.device
    if way not in known:
        key = _record_name(model, kind)
        if key is not None and PROBE_CACHE.get(key) is not None:
            known[way] = True
            return True
        known[way] = agrees_with_generate(model, kind)
        is_kept = known[way] and key is not None and PROBE_CACHE.put(key, "fits\n")
        LOG.info(
            "%s: probed %s, which %s; cached %s", model.config.model_type, kind.__name__,
            "fits" if known[way] else "does not fit", "on disk" if is_kept else "in this process",
        )  # fmt: skip
    return known[way]


# The record on disk.


def _record_name(model: Any, kind: Kind) -> str | None:
    """Return the record's name; None for models that may differ from a checkpoint."""
    altered = any("forward" in vars(part) or part._forward_pre_hooks for part in model.modules())
    if altered or not getattr(model, "name_or_path", ""):
        return None
    return f"{kind.__name__}-{_model_digest(model)}"


def _model_digest(model: Any) -> str:
    classes = {f"{type(part).__module__}.{type(part).__qualname__}" for part in model.modules()}
    source = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    files = [Path(source)] if source else []
    files += sorted(Path(__file__).parent.glob("*.py"))
    return digest_of(
        model,
        classes=sorted(classes),
        devices=devices_of(model),
        sources=[hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
        **software_facts(),
    )


# The probe itself.


def agrees_with_generate(model: Any, kind: Kind) -> bool:
    """Probe `kind`; errors of the model mean False, except for lack of memory and wrong use."""
    with model_passes():
        try:
            if not _agrees_over_passes(model, kind):
                return False
            if not all(
                _agrees_around_length(model, kind, each) for each in critical_lengths(model)
            ):
                return False
            if not issubclass(kind, TreeVerifier):
                return True  # each row is an ordinary continuation for a window
            return all(
                _agrees_beyond_window(model, each)
                for each in attention_windows(model) or [DEFAULT_WINDOW]
            )
        except (torch.OutOfMemoryError, UsageError):
            raise
        except Exception as error:
            LOG.debug("%s: %r", kind.__name__, error)
            return False


def attention_windows(model: Any) -> list[int]:
    """Return the config's window sizes below the context, in tokens, ascending."""
    longest = min(context_of(model) or LONGEST_WINDOW, LONGEST_WINDOW)
    lengths = {
        value
        for name, value in model.config.get_text_config().to_dict().items()
        if re.search("window|chunk", name) and not re.search("layers|pattern", name)
        if type(value) is int and 1 < value < longest
    }
    return sorted(lengths)


def critical_lengths(model: Any) -> list[int]:
    """Return the config's lengths where positions may change or end, except rope limits."""
    config = model.config.get_text_config()
    named = {context_of(model), getattr(config, LENGTH_BEFORE_SCALING, None)}
    named |= {rope.get(LENGTH_BEFORE_SCALING) for rope in rotary_embeddings(config)}
    known = rope_limits(config).lengths
    return sorted(
        each
        for each in named
        if each is not None and each > 2 * sum(SIZE_AROUND_LENGTH) and each not in known
    )


def _agrees_over_passes(model: Any, kind: Kind) -> bool:
    """Compare passes of one request with a plain pass over the accepted tokens."""
    tokens = _spread_tokens(model)
    text = [next(tokens) for _ in range(PROMPT_TOKENS)]
    verifier = kind(model, room=len(text))
    parts = [verifier.prefill(np.array(text, np.int32)).clone()]
    is_chain = issubclass(kind, ChainVerifier)
    for siblings, chain, count in CHAINS if is_chain else PASSES:
        root, tree = next(tokens), _made_up_tree(tokens, siblings, chain)
        path = _chain_nodes(siblings, chain)[:count]
        parts.append(verifier.verify(root, tree)[[0, *(node + 1 for node in path)]].clone())
        verifier.keep(path)
        text += [root, *tree.token_ids[path].tolist()]
    logits = torch.cat(parts)
    plain = Forward(model)([text], 0)[0, PROMPT_TOKENS - 1 :]
    tolerance = TOLERANCES.get(model.dtype, TOLERANCE_16_BITS)
    exact, share = tolerance, MIN_SHARE_OF_ROWS
    if is_chain:
        exact, share = TOLERANCES_OF_CHAINS.get(model.dtype, TOLERANCE_16_BITS), 1.0
    if not _are_near(logits, plain, exact, share):
        return False
    generated = _generated_logits(model, text)
    return _are_near(logits[-GENERATED_ROWS:], generated, tolerance, share=0.6)


def _generated_logits(model: Any, text: list[int]) -> torch.Tensor:
    """Return the logits [GENERATED_ROWS, V] of `generate` after the last tokens of a text."""
    forced = text[1 - GENERATED_ROWS :]
    left = iter([*forced, text[0]])

    def force(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = torch.full_like(scores, -torch.inf)
        scores[:, next(left)] = 0
        return scores

    # The checkpoint's own settings may be beams, penalties or stop tokens. Other threads may use
    # the model meanwhile, so a shallow copy gets others.
    plain = copy.copy(model)
    plain.generation_config = GenerationConfig(pad_token_id=0)  # type: ignore[no-untyped-call]
    ids = torch.tensor([text[: -len(forced)]], device=model.device)
    output = plain.generate(
        ids,
        attention_mask=torch.ones_like(ids),  # without one, 0 in the text counts as padding
        max_new_tokens=GENERATED_ROWS,
        logits_processor=LogitsProcessorList([force]),
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.cat(output.logits)


def _agrees_around_length(model: Any, kind: Kind, length: int) -> bool:
    """Compare a draft around a length with a plain pass that ends before it.

    Nodes reach beyond only with rope: learned positions end there.
    """
    forward = Forward(model)
    if not forward.takes_positions:
        return True
    siblings, chain = (
        SIZE_AROUND_LENGTH if issubclass(kind, TreeVerifier) else (0, sum(SIZE_AROUND_LENGTH))
    )
    has_rope = getattr(model.config.get_text_config(), "rope_parameters", None) is not None
    tokens = _spread_tokens(model)
    root, tree = next(tokens), _made_up_tree(tokens, siblings, chain)
    path = _chain_nodes(siblings, chain)
    beyond = chain // 2 if has_rope else 0
    begin = length - 1 - len(path) + beyond
    inside = [root, *tree.token_ids[path].tolist()][: len(path) + 1 - beyond]
    plain = forward([inside], begin)[0]
    inputs: dict[str, Any] = {}
    if issubclass(kind, TreeVerifier):
        masks = TreeMasks(model.config.get_text_config(), model.dtype, model.device)
        positions, mask = masks.positions_and_mask(0, tree.parents)
        inputs = {"position_ids": positions + begin, "attention_mask": mask}
    drafted = [root, *tree.token_ids.tolist()]
    logits = forward([drafted], begin, **inputs)[0]
    logits = logits[[0, *(node + 1 for node in path)]][: len(inside)]
    return _are_near(logits, plain, TOLERANCES.get(model.dtype, TOLERANCE_16_BITS))


def _agrees_beyond_window(model: Any, window: int) -> bool:
    """Compare one wide pass where a window ends among outsized keys and values."""
    tokens = _spread_tokens(model)
    siblings, chain = SIZE_BEYOND_WINDOW
    nodes = siblings + chain
    length = window + nodes // 2
    context = context_of(model)
    if context is not None:
        length = max(1, min(length, context - chain - 2))
    edge = min(length, max(0, length - window) + nodes)
    cache = FakeCache(model.config.get_text_config().num_hidden_layers, length, edge)
    root, tree = next(tokens), _made_up_tree(tokens, siblings, chain)
    path = _chain_nodes(siblings, chain)
    text = [root, *tree.token_ids[path].tolist()]
    plain = Forward(model, cache)([text], length)[0]
    logits = TreeVerifier(model, room=0, cache=cache).verify(root, tree)
    logits = logits[[0, *(node + 1 for node in path)]]
    return _are_near(logits, plain, TOLERANCES.get(model.dtype, TOLERANCE_16_BITS))


def _are_near(
    logits: torch.Tensor, plain: torch.Tensor, tolerance: float, share: float = MIN_SHARE_OF_ROWS
) -> bool:
    """Return whether `share` of the rows [n, V] are within `tolerance` of their spread."""
    plain = plain.float()
    spread = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1)
    near = (logits.float() - plain).norm(dim=-1) <= tolerance * spread
    return int(near.sum()) >= len(near) * share


def _spread_tokens(model: Any) -> Iterator[int]:
    vocabulary = model.config.get_text_config().vocab_size
    step = max(1, vocabulary * 5 // 8) | 1
    token = 1
    while True:
        token = (token + step) % vocabulary
        yield token


def _made_up_tree(tokens: Iterator[int], siblings: int, chain: int) -> DraftTree:
    """Return siblings with a chain under the last: columns and depths differ."""
    parents = [-1] * siblings + [siblings - 1 + node for node in range(chain)]
    ids = np.array([next(tokens) for _ in parents], np.int32)
    count = len(parents)
    return DraftTree(
        ids, np.array(parents, np.int32), np.zeros(count, np.float32), np.zeros(count, np.uint8)
    )


def _chain_nodes(siblings: int, chain: int) -> list[int]:
    return list(range(max(siblings - 1, 0), siblings + chain))


# A cache that pretends to hold thousands of tokens but uses the memory of one layer.
#
# Keys and values are zeros, except before an edge, where a window ends. These are outsized: every
# query attends to one of them, so the logits change if a pass sees too many or too few. Nothing
# that a pass writes is kept.

KEY_SIZE = 2.0  # times the size of a key
VALUE_SIZE = 16.0  # times the size of a value, averaged over all columns


class FakeLayer(DynamicLayer):
    def __init__(self, cache: FakeCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return [rows, heads, length + n, dim]: the fake states, then the pass's."""
        edge, length = self._cache.edge, self._cache.length
        keys = self._outsized(key_states, KEY_SIZE)
        values = self._outsized(value_states, VALUE_SIZE * length / max(edge, 1) ** 0.5)
        return self._after(keys, key_states), self._after(values, value_states)

    def get_seq_length(self) -> int:
        return self._cache.length

    def _outsized(self, new: torch.Tensor, times: float) -> torch.Tensor:
        """Return [edge, dim], sized by the pass's first token, the same in every draft."""
        size = new[:1, :, :1].float().abs().mean()
        most = torch.finfo(new.dtype).max / 8
        return (self._cache.waves(new) * size * times).clamp(-most, most)

    def _after(self, outsized: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows, heads, count, dim = new.shape
        length = self._cache.length
        states = new.new_zeros((rows, heads, length + count, dim))
        states[:, :, : len(outsized)] = outsized.to(new.dtype)
        states[:, :, length:] = new
        return states


class FakeCache(Cache):
    """`length` tokens, the first `edge` of them outsized."""

    def __init__(self, layers: int, length: int, edge: int) -> None:
        super().__init__(layers=[FakeLayer(self) for _ in range(layers)])
        self.length, self.edge = length, edge

    def waves(self, like: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(self.edge, dtype=torch.float32, device=like.device)[:, None]
        return torch.cos(rows * torch.arange(1, like.shape[-1] + 1, device=like.device) * 0.7 + 1)
