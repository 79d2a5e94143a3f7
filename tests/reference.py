"""Naive twins of every kernel: what each one means, in the plainest Python."""

from __future__ import annotations


def suffix_array(tokens):
    """Positions in the order of their suffixes; a list that ends first is the smaller."""
    return sorted(range(len(tokens)), key=lambda i: tokens[i:])
