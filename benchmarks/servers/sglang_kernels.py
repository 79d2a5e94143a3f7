"""Stand-in for SGLang's compiled kernels, in torch, as far as a plain decoder on a CPU calls them.

`benchmarks.servers.install_sglang` puts this file into an environment as the package `sgl_kernel`,
with `plugin` as a plugin of SGLang's. It follows the kernels' callers in sglang 0.5.23, and gives
correct ids slowly. Sliding windows, logit caps, sinks and cross attention are missing.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

Tensor = torch.Tensor


def plugin() -> None:
    """Let `--attention-backend torch_native` be the one that draws draft trees: SGLang's own for
    CPUs, which asks for the attention below. It refuses processors without AMX under its name."""
    from sglang.srt.layers.attention import attention_registry, intel_amx_backend

    attention_registry.register_attention_backend("torch_native")(
        intel_amx_backend.IntelAMXAttnBackend
    )


# Attention.


def extend_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    key_scale: float,
    value_scale: float,
    req_to_token: Tensor,
    rows: Tensor,
    lengths: Tensor,
    added: Tensor,
    starts: Tensor,
    longest: int,
    scaling: float,
    logit_cap: float,
    is_cross: bool,
    window: int,
    encoder_lengths: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Attend from each request's last `added` tokens, whose keys lie in the cache already, to all
    of its `lengths` tokens: among the last ones as `tree_mask` says, else to those before.

    q, out float32[tokens, heads, size]; caches [slots, key heads, size].
    """
    _refuse(logit_cap, is_cross, window, sinks)
    for i, row in enumerate(rows.tolist()):
        length, new, start = int(lengths[i]), int(added[i]), int(starts[i])
        visible = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            visible[:, length - new :] = tree_mask.view(-1, new, new)[i]
        elif is_causal:
            visible = visible.tril(length - new)
        slots = req_to_token[row, :length].long()
        out[start : start + new] = _attend(
            q[start : start + new], key_cache[slots], value_cache[slots], visible, scaling
        )


def decode_attention(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    key_scale: float,
    value_scale: float,
    out: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    new_slots: Tensor,
    logits: Tensor,
    req_to_token: Tensor,
    rows: Tensor,
    lengths: Tensor,
    scaling: float,
    logit_cap: float,
    is_cross: bool,
    window: int,
    encoder_lengths: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Write each request's new key and value to the cache, and attend to all of its tokens."""
    _refuse(logit_cap, is_cross, window, sinks)
    if k is not None and v is not None:
        key_cache[new_slots] = k.view(-1, *key_cache.shape[1:])
        value_cache[new_slots] = v.view(-1, *value_cache.shape[1:])
    for i, row in enumerate(rows.tolist()):
        slots = req_to_token[row, : int(lengths[i])].long()
        out[i] = _attend(q[i : i + 1], key_cache[slots], value_cache[slots], None, scaling)[0]


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, scale: float
) -> Tensor:
    """Return float32[queries, heads, size]."""
    by_head = (each.transpose(0, 1)[None] for each in (q, keys, values))
    attend: Any = scaled_dot_product_attention
    attended: Tensor = attend(*by_head, attn_mask=visible, scale=scale, enable_gqa=True)
    return attended[0].transpose(0, 1)


def _refuse(logit_cap: float, is_cross: bool, window: int, sinks: Tensor | None) -> None:
    if logit_cap or is_cross or window > 0 or sinks is not None:
        raise NotImplementedError("the stand-in attends to everything, without caps and sinks")


# Draft trees.


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    lengths: Tensor,
    positions: Tensor,
    index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    batch: int,
    size: int,
) -> None:
    """Write each node's position, number in the batch, first child and next sibling, or -1.

    tree_mask bool[batch * size * size]: row i marks node i and its ancestors.
    """
    mask = tree_mask.view(batch, size, size)
    positions.copy_((mask.tril(-1).sum(2) + lengths[:, None]).flatten())
    index.copy_(torch.arange(batch * size).view(batch, size))
    next_token.fill_(-1)
    next_sibling.fill_(-1)
    for row, ancestors in enumerate(mask.tolist()):
        last: dict[int, int] = {}  # the latest child of each node so far
        for node in range(1, size):
            parent = max((j for j in range(node) if ancestors[node][j]), default=-1)
            if parent < 0:
                continue
            if parent in last:
                next_sibling[row, last[parent]] = node
            else:
                next_token[row, parent] = node
            last[parent] = node


def verify_tree_greedy_cpu(
    *,
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Walk each tree from its root along the model's own choices; return what was written: the
    tokens int32[batch * size], the nodes walked int32[batch, depth], and how many were drafted.
    """
    candidate, wanted = candidates.tolist(), target_predict.tolist()
    child, sibling = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for row, numbers in enumerate(retrive_index.tolist()):
        node, depth = 0, 0
        accept_index[row, 0] = numbers[0]
        while True:
            token = wanted[row][node]
            predicts[numbers[node]] = token
            below = child[row][node]
            while below >= 0 and candidate[row][below] != token:
                below = sibling[row][below]
            if below < 0 or depth + 1 == accept_index.shape[1]:
                break
            node, depth = below, depth + 1
            accept_index[row, depth] = numbers[node]
        accept_token_num[row] = depth
    return predicts, accept_index, accept_token_num


# Places in the cache.


def assign_extend_cache_locs_cpu(
    rows: Tensor, req_to_token: Tensor, starts: Tensor, ends: Tensor, out: Tensor, width: int
) -> None:
    """Write the slots of tokens starts[i] to ends[i] of each request, one after the other."""
    slots = [
        req_to_token[row, start:end]
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]
    joined = torch.cat(slots)
    out[: len(joined)] = joined


def assign_req_to_token_pool_cpu(
    rows: Tensor, req_to_token: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, width: int
) -> None:
    """Take as many of `slots` as each request has tokens from starts[i] to ends[i]."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        req_to_token[row, start:end] = slots[taken : taken + end - start]
        taken += end - start


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, slots: Tensor, out: Tensor, *_: Any
) -> None:
    """Write the slots of accepted nodes, those of -1 left out."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted >= 0].long()
    out[: len(accepted)] = slots[accepted]


def copy_all_layer_kv_cache_cpu(
    pointers: Tensor, strides: Tensor, targets: Tensor, sources: Tensor
) -> None:
    """Copy slots in every buffer: addresses uint64[buffers], bytes of a slot int64[buffers]."""
    to, of = targets.numpy(), sources.numpy()
    slots = int(max(to.max(), of.max())) + 1 if len(to) else 0
    for address, stride in zip(pointers.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (slots * stride)).from_address(address)
        buffer = np.frombuffer(memory, np.uint8).reshape(slots, stride)
        buffer[to] = buffer[of]


def _not_asked_for(name: str) -> Any:
    def stop(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"the stand-in has no {name}: no draft model runs with it")

    return stop


for _name in (
    "assign_draft_cache_locs_contiguous_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
):
    globals()[_name] = _not_asked_for(_name)

speculative = ModuleType(f"{__name__}.speculative")
speculative.reconstruct_indices_from_tree_mask = reconstruct_indices_from_tree_mask  # type: ignore[attr-defined]
sys.modules[speculative.__name__] = speculative
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention  # type: ignore[attr-defined]
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention  # type: ignore[attr-defined]
