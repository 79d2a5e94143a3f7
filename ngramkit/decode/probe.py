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

import logging
import re
from typing import Any

import numpy as np
import torch

from ngramkit.decode.hollow_cache import HollowCache
from ngramkit.decode.load import context_of
from ngramkit.decode.probe_drafts import path_of, spread_tokens, tree_of
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.static_pass import StaticPass, packed
from ngramkit.decode.verify import TreeVerifier
from ngramkit.decode.verify_batch import BatchVerifier
from ngramkit.decode.verify_chain import ChainVerifier

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
