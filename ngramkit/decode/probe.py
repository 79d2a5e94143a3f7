"""Whether drafts verified in some way get the model's own logits, found by trying.

A model may ignore a mask, count columns where positions are meant (ALiBi, windows inside a layer)
or keep a number from one pass for the next; none of that is written anywhere. So small drafts are
verified one after another, and a wide and deep one beyond every window that the config names; the
logits are compared with those of the same tokens read plainly.

Measured on 25 architectures: rounding moves logits by a millionth of their spread in float32 and
by 0.5 to 5 % in 16 bits; counting columns moved them by a fifth at least. Recurrent layers that
step in two ways are nearer to each other, from 1 in 5,000 on, and drift apart token by token.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from ngramkit.cache import TextCache
from ngramkit.decode.load import context_of, device_facts, software_facts
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.static_pass import StaticPass, packed
from ngramkit.decode.verify_chain import ChainVerifier
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import DraftTree

Kind = type[TreeVerifier | BatchVerifier | ChainVerifier | StaticVerifier]

PROMPT = 4  # tokens
# Siblings, nodes in a chain under the last of them, and how many nodes of that path are kept.
PASSES = ((0, 6, 4), (5, 3, 2), (0, 0, 0), (3, 2, 1))
# Chains, most of them cut off, and single tokens, which some models read by other kernels.
CHAINS = ((0, 6, 4), (0, 3, 2), (0, 0, 0), (0, 2, 2), *[(0, 0, 0)] * 5, (0, 4, 1), (0, 0, 0))
WIDE = (48, 16)  # likewise, of one pass
WINDOW = 32  # tokens, for models without one
EXACT = {torch.float32: 0.0001}  # of chains
MOST_ROWS = 0.75  # in 16 bits a near tie between a mixture's experts may fall either way
IN_16_BITS = 0.1  # of the logits' spread
TOLERANCES = {torch.float32: 0.01}
BEHIND = 40  # empty columns behind a pass of fixed shape
LONGEST_WINDOW = 16_384  # tokens; no layer of transformers has a longer one of its own


def agrees(model: Any, kind: Kind) -> bool:
    """Whether drafts verified by `kind` get the logits of plain passes.

    Running out of memory is raised; any other error of the model's is an answer: no.
    """
    with torch.inference_mode():
        try:
            if not _agrees_in_turn(model, kind):
                return False
            if not issubclass(kind, (TreeVerifier, StaticVerifier)):
                return True  # its rows are plain continuations, however many and long
            return all(_agrees_beyond(model, kind, each) for each in windows(model) or [WINDOW])
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            logging.getLogger("ngramkit").debug("%s: %r", kind.__name__, error)
            return False


def windows(model: Any) -> list[int]:
    """Numbers of tokens, ascending, to which the config's names say that a layer's view is
    bounded, and which the model's context exceeds."""
    longest = min(context_of(model) or LONGEST_WINDOW, LONGEST_WINDOW)
    found = {
        value
        for name, value in model.config.get_text_config().to_dict().items()
        if re.search("window|chunk", name) and not re.search("layers|pattern", name)
        if type(value) is int and 1 < value < longest
    }
    return sorted(found)


def _agrees_in_turn(model: Any, kind: Kind) -> bool:
    """Some passes of one request, against one plain pass over what was accepted in them."""
    tokens = spread_tokens(model)
    text = [next(tokens) for _ in range(PROMPT)]
    verifier = kind(model, room=len(text))
    parts = [verifier.prefill(np.array(text, np.int32)).clone()]
    chains = issubclass(kind, ChainVerifier)
    for siblings, chain, kept in CHAINS if chains else PASSES:
        root, tree = next(tokens), tree_of(tokens, siblings, chain)
        path = path_of(siblings, chain)[:kept]
        parts.append(verifier.verify(root, tree)[[0, *(node + 1 for node in path)]].clone())
        verifier.keep(path)
        text += [root, *tree.token_ids[path].tolist()]
    ids = torch.tensor([text], device=model.device)
    right = model(input_ids=ids, use_cache=False).logits[0, PROMPT - 1 :]
    if chains:
        return _near(torch.cat(parts), right, EXACT.get(model.dtype, IN_16_BITS), share=1.0)
    return _near(torch.cat(parts), right, tolerance_of(model))


def _agrees_beyond(model: Any, kind: Kind, window: int) -> bool:
    """One wide pass behind so many tokens that a window of that size ends among outsized ones."""
    tokens = spread_tokens(model)
    siblings, chain = WIDE
    nodes = siblings + chain
    length = window + nodes // 2
    context = context_of(model)
    if context is not None:
        length = max(1, min(length, context - chain - 2))
    edge = min(length, max(0, length - window) + nodes)
    cache = HollowCache(model.config.get_text_config().num_hidden_layers, length, edge)
    root, tree, path = next(tokens), tree_of(tokens, siblings, chain), path_of(siblings, chain)
    ids = torch.tensor([[root, *tree.token_ids[path].tolist()]], device=model.device)
    right = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0]
    if kind is StaticVerifier:
        cache.behind = BEHIND
        told = torch.from_numpy(packed(length, root, tree)).to(model.device)
        reach = length + len(told) // 2 + BEHIND
        logits = StaticPass(model).run(cache, told, reach)
    else:
        logits = TreeVerifier(model, room=0, cache=cache).verify(root, tree)
    return _near(logits[[0, *(node + 1 for node in path)]], right, tolerance_of(model))


def tolerance_of(model: Any) -> float:
    """Of the logits' spread: what rounding may come to."""
    return TOLERANCES.get(model.dtype, IN_16_BITS)


def _near(
    got: torch.Tensor, right: torch.Tensor, tolerance: float, share: float = MOST_ROWS
) -> bool:
    """Whether that share of the rows, [n, V], is as near as rounding leaves them."""
    right = right.float()
    spread = (right - right.mean(-1, keepdim=True)).norm(dim=-1)
    near = (got.float() - right).norm(dim=-1) <= tolerance * spread
    return int(near.sum()) >= len(near) * share


# Made-up drafts to try a model with: siblings, and a chain under the last of them.


def spread_tokens(model: Any) -> Iterator[int]:
    """Spread over the vocabulary; no two alike soon."""
    vocabulary = model.config.get_text_config().vocab_size
    step = max(1, vocabulary * 5 // 8) | 1
    at = 1
    while True:
        at = (at + step) % vocabulary
        yield at


def tree_of(tokens: Iterator[int], siblings: int, chain: int) -> DraftTree:
    """The chain hangs under the last sibling: its columns are far from its depths."""
    parents = [-1] * siblings + [siblings - 1 + node for node in range(chain)]
    ids = np.array([next(tokens) for _ in parents], np.int32)
    count = len(parents)
    return DraftTree(
        ids, np.array(parents, np.int32), np.zeros(count, np.float32), np.zeros(count, np.uint8)
    )


def path_of(siblings: int, chain: int) -> list[int]:
    """The chain's nodes, from the top."""
    return list(range(max(siblings - 1, 0), siblings + chain))


# A cache that only pretends to hold tokens: thousands of columns at the price of one layer's.
#
# Made to find out what a model does beyond a sliding window without reading a text that long. Its
# tokens have keys and values of zeros but for those before an edge, where the window ends. Those
# are outsized: every query finds one there that it likes, and a pass that sees some too many or
# too few is far off. Nothing that a pass writes is kept. Knows columns, not trees.

LIKED = 2.0  # times the size of a key
LOUD = 16.0  # times the size of a value, in the average over all columns


class HollowLayer(DynamicLayer):
    """One layer; computes its columns at every pass."""

    def __init__(self, cache: HollowCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows, heads, n, dim] -> [rows, heads, length + n + behind, dim], both."""
        edge, length = self._cache.edge, self._cache.length
        keys = self._loud(key_states, LIKED)
        values = self._loud(value_states, LOUD * length / max(edge, 1) ** 0.5)
        return self._behind(keys, key_states), self._behind(values, value_states)

    def get_seq_length(self) -> int:
        return self._cache.length

    def _loud(self, new: torch.Tensor, times: float) -> torch.Tensor:
        """[edge, dim], by the size of the pass's first token, which is the same in every draft."""
        size = new[:1, :, :1].float().abs().mean()
        most = torch.finfo(new.dtype).max / 8
        return (self._cache.waves(new) * size * times).clamp(-most, most)

    def _behind(self, before: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows, heads, count, dim = new.shape
        begin, end = self._cache.length, self._cache.length + count
        whole = new.new_zeros((rows, heads, end + self._cache.behind, dim))
        whole[:, :, : len(before)] = before.to(new.dtype)
        whole[:, :, begin:end] = new
        return whole


class HollowCache(Cache):
    """`length` tokens, the first `edge` outsized; `behind` empty columns follow those of a pass, as
    in memory of a fixed size."""

    at: torch.Tensor  # this and `reach` are what a pass of fixed shape tells; nothing follows
    reach: int

    def __init__(self, layers: int, length: int, edge: int) -> None:
        super().__init__(layers=[HollowLayer(self) for _ in range(layers)])
        self.length, self.edge = length, edge
        self.behind = 0

    def waves(self, like: torch.Tensor) -> torch.Tensor:
        """float32[edge, dim] between -1 and 1, no two rows alike."""
        rows = torch.arange(self.edge, dtype=torch.float32, device=like.device)[:, None]
        return torch.cos(rows * torch.arange(1, like.shape[-1] + 1, device=like.device) * 0.7 + 1)


# What trying models has found, in memory and, for other processes, on disk: it is done once.
#
# A file probes/WHAT-DIGEST in the user's cache folder says that WHAT is true of a model: a
# verifier's name, that drafts verified by it get the model's own logits. DIGEST is over all that
# decides that: the model's class and its source, its config, dtype and device, versions and
# driver, and everything that verifies. Only models that came from a checkpoint and were not
# altered since are kept so; what a model cannot do is found out anew each time.

LOG = logging.getLogger("ngramkit")
CACHE = TextCache("probes", 4096)
_FOUND: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()
_PASSES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def fits(model: Any, kind: Kind) -> bool:
    """Whether drafts verified by `kind` get the model's own logits: `probe.agrees`, tried once."""
    found = _FOUND.setdefault(model, {})
    if not known_to_fit(model, kind) and kind.__name__ not in found:
        with counted(model) as passes:
            found[kind.__name__] = agrees(model, kind)
        kept = remember(model, kind.__name__) if found[kind.__name__] else ""
        LOG.info(
            "%s: %d passes to try %s, which %s; remembered %s", model.config.model_type, passes(),
            kind.__name__, "fits" if found[kind.__name__] else "does not fit",
            kept or "in this process",
        )  # fmt: skip
    return found[kind.__name__]


def known_to_fit(model: Any, kind: Kind) -> bool:
    """Whether it was found before that they do; runs no pass."""
    return known(model, kind.__name__)


def known(model: Any, what: str) -> bool:
    """Whether `what` was remembered to be true of the model, here or on disk."""
    found = _FOUND.setdefault(model, {})
    if what not in found:
        key = _key(model, what)
        if key is not None and CACHE.get(key) is not None:
            found[what] = True
    return found.get(what, False)


def remember(model: Any, what: str) -> str:
    """`what` is true of the model; "on disk" where other processes will know, too."""
    _FOUND.setdefault(model, {})[what] = True
    key = _key(model, what)
    return "on disk" if key is not None and CACHE.put(key, "fits\n") else ""


@contextmanager
def counted(model: Any) -> Iterator[Callable[[], int]]:
    """Inside, passes of the model are for trying it; gives how many they were."""
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    hook = model.register_forward_hook(count)
    try:
        yield lambda: passes
    finally:
        hook.remove()
        _PASSES[model] = probe_passes(model) + passes


def probe_passes(model: Any) -> int:
    """How many passes of the model were spent on trying it, in this process."""
    return _PASSES.get(model, 0)


def _key(model: Any, what: str) -> str | None:
    """None for a model that is not as its checkpoint and config tell."""
    if not getattr(model, "name_or_path", "") or _altered(model):
        return None
    return f"{what}-{_digest(model)}"


def _altered(model: Any) -> bool:
    """Whether some part runs other code than its class's: patched, or wrapped by a library."""
    return any("forward" in vars(part) or part._forward_pre_hooks for part in model.modules())


def _digest(model: Any) -> str:
    config = {
        key: value
        for key, value in model.config.to_dict().items()
        if key not in ("_name_or_path", "transformers_version")
    }
    classes = {f"{type(part).__module__}.{type(part).__qualname__}" for part in model.modules()}
    decides = {
        "config": config,
        "attention": model.config._attn_implementation,
        "classes": sorted(classes),
        "devices": sorted({str(each.device) for each in model.parameters()}),
        "software": software_facts(),
        **device_facts(model),
    }
    found = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode())
    own = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    for file in [*([Path(own)] if own else []), *sorted(Path(__file__).parent.glob("*.py"))]:
        found.update(file.read_bytes())
    return found.hexdigest()[:32]
