"""SpeCache's three algorithms, naively: every pass made anew from all full-precision pairs.

Keys and values stay in plain lists, nothing is packed, no buffer is kept; groups are quantised
again at every pass (the same numbers give the same codes). Attention is written out per head.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, eager_mask


def quantised_once(numbers, bits, axis):
    """Groups along an axis -> (codes, scale, zero), scale and zero as float16 keeps them."""
    low, high = numbers.min(axis, keepdims=True), numbers.max(axis, keepdims=True)
    zero, scale = (low, (high - low) / 3) if bits == 2 else ((3 * low + high) / 4, (high - low) / 2)
    zero, scale = (each.astype(np.float16).astype(numbers.dtype) for each in (zero, scale))
    steps = np.where(scale > 0, (numbers - zero) / np.where(scale > 0, scale, 1), 0)
    codes = np.clip(np.round(steps), 0, 2**bits - 1).astype(np.uint8)
    return codes, scale, zero


def low_bit(pairs, kind, bits, group):
    """[n, dim] of one head, n whole groups -> what is read back of it, and the codes."""
    tokens, dim = pairs.shape
    if kind == "keys":  # a group of tokens of one channel
        groups, axis = pairs.reshape(tokens // group, group, dim), 1
    else:  # a group of channels of one token
        groups, axis = pairs.reshape(tokens, dim // group, group), 2
    codes, scale, zero = quantised_once(groups, bits, axis)
    return (zero + scale * codes).reshape(pairs.shape), codes.reshape(pairs.shape)


class NaiveLayer(DynamicLayer):
    """All pairs in full precision; what a pass reads is mixed anew."""

    is_sliding = False

    def __init__(self, owner):
        super().__init__()
        self.owner = owner
        self.fetched = None  # per head, positions
        self.rows = None

    def update(self, key_states, value_states, *args, **kwargs):
        if self.get_seq_length() == 0:
            self.rows = (key_states, value_states)
            return self.rows
        self.rows = (key_states, value_states)
        mixed = []
        for kind, kept, new in zip(
            ("keys", "values"), (self.keys, self.values), self.rows, strict=True
        ):
            heads = kept[0].clone()
            n = self.owner.options.quantised(kept.shape[2])
            for head in range(len(heads)):
                exact = kept[0, head, :n].numpy()
                read = low_bit(exact, kind, self.owner.options.bits, self.owner.options.group)[0]
                if self.fetched is not None:
                    for position in self.fetched[head]:
                        read[position] = exact[position]
                heads[head, :n] = torch.from_numpy(read)
            mixed.append(torch.cat([heads[None], new], 2))
        return tuple(mixed)

    def keep(self, rows):
        parts = [part[:, :, :rows] for part in self.rows]
        if self.get_seq_length() == 0:
            self.keys, self.values, self.is_initialized = *parts, True
        else:
            self.keys = torch.cat([self.keys, parts[0]], 2)
            self.values = torch.cat([self.values, parts[1]], 2)

    def get_seq_length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def get_mask_sizes(self, query_length):
        return self.get_seq_length() + query_length, 0


class NaiveRun(Cache):
    def __init__(self, options, layers):
        self.options = options
        self.naive = [NaiveLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self.naive))
        self.keeps = 0
        self.asked = {}
        self.log = []  # of every pass: per layer and head, the set of positions asked for


def attend(module, query, key, value, mask, scaling=None, softcap=None, naive=None, **kwargs):
    heads, per_head = key.shape[1], query.shape[1] // key.shape[1]
    rows, n = query.shape[2], key.shape[2]
    scaling = query.shape[3] ** -0.5 if scaling is None else scaling
    out = torch.zeros_like(query)
    importance = np.zeros((heads, n))
    for head in range(query.shape[1]):
        scores = query[0, head] @ key[0, head // per_head].T * scaling
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        for row in range(rows):
            seen = torch.arange(n) <= n - rows + row
            if mask is not None:
                seen = seen & (mask[0, 0, row, :n] == 0)
            weights = torch.where(seen, scores[row], -torch.inf).softmax(0)
            out[0, head, row] = weights @ value[0, head // per_head]
        importance[head // per_head] += weights.numpy() / per_head
    if naive is not None and naive.keeps is not None:
        layer = naive.naive[module.layer_idx]
        among = naive.options.quantised(layer.get_seq_length() + naive.keeps)
        k = min(naive.options.top_k, among)
        naive.asked[module.layer_idx] = [
            np.argsort(-importance[head, :among], kind="stable")[:k] for head in range(heads)
        ]
        naive.weights[module.layer_idx] = importance
    return out.transpose(1, 2), None


@contextmanager
def attending_naively(model):
    AttentionInterface.register("naive-specache", attend)
    AttentionMaskInterface.register("naive-specache", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("naive-specache")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def decode(model, prompt, options, new_tokens):
    """(tokens, asked): the output, and after every pass what each layer and head asked for, as
    (positions, their weights)."""
    run = NaiveRun(options, model.config.num_hidden_layers)
    asked = []

    def forward(tokens, keeps, prompt=False):
        run.keeps = None if prompt else keeps
        run.weights = {}
        ids = torch.tensor([tokens])
        logits = model(input_ids=ids, past_key_values=run, use_cache=True, naive=run).logits[0]
        for i, layer in enumerate(run.naive):
            layer.keep(keeps)
            if not prompt:
                layer.fetched = run.asked[i]
        if not prompt:
            asked.append(
                [
                    [(set(p.tolist()), run.weights[i][h]) for h, p in enumerate(run.asked[i])]
                    for i in range(len(run.naive))
                ]
            )
        return logits

    with attending_naively(model), torch.inference_mode():
        token = int(forward(list(prompt), len(prompt), prompt=True)[-1].argmax())
        written = [token]
        guess = int(forward([token], 0)[0].argmax())  # pre-decode
        while len(written) < new_tokens:
            logits = forward([token, guess], 1)
            token, guess = int(logits[0].argmax()), int(logits[1].argmax())
            written.append(token)
    return written, asked
