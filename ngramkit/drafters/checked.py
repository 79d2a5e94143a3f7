"""Drafters that are not ngramkit's own: what they must have, and the check of what they draft.

Kernels trust a tree's parents, and a model its token ids. So whatever asks a drafter for a tree
asks `drafts_of` here. Tests check the trees of ngramkit's own drafters; those pass unseen.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import UsageError
from ngramkit.basics.terminal_text import visible
from ngramkit.drafters.base import Drafter, DraftTree, Source

METHODS = {  # of a drafter, and what each is given
    "start": ("prompt",),
    "draft": ("budget",),
    "accept": ("tokens", "evidence"),
    "finish": (),
}
INTEGERS, NUMBERS = "iu", "iuf"  # kinds of dtypes
ANY_VOCABULARY = 1 << 31  # ids, where none is given to a model
ROUNDING = 1e-3  # by which sums of probabilities may exceed 1


def require_drafter(given: Any, *, or_maker: bool = False) -> Any:
    """Return `given`, a drafter; with `or_maker` also a function or class that makes one.

    Raises UsageError where it is none, or a method does not take what it is given.
    """
    own = [name for name in METHODS if hasattr(given, name)]
    is_class = isinstance(given, type)
    if or_maker and callable(given) and (not own or (is_class and len(own) == len(METHODS))):
        return given
    if is_class or len(own) < len(METHODS):
        missing = ", ".join(name for name in METHODS if name not in own) or "an object of it"
        raise UsageError(
            f"drafter is {visible(repr(given), 60)}{f', without {missing}' if own else ''}",
            f"give a name, an object with {', '.join(METHODS)}, or a function that makes one",
            option="drafter",
        )
    for name, arguments in METHODS.items():
        try:
            inspect.signature(getattr(given, name)).bind(*arguments)
        except TypeError as error:
            raise UsageError(
                f"{type(given).__name__}.{name}() must take ({', '.join(arguments)}): {error}",
                "ngramkit.Drafter has the methods of a drafter",
                option="drafter",
            ) from None
        except ValueError:  # compiled, without a signature
            continue
    return given


def drafts_of(drafter: Drafter, vocabulary: int = ANY_VOCABULARY) -> Callable[[int], DraftTree]:
    """Return a function of the budget that gives the drafter's tree of at most so many nodes, with
    ids below `vocabulary`.

    Lists and whole numbers of any width become the arrays of a DraftTree. The function raises
    UsageError for what is no such tree, and whatever the drafter raises.
    """
    if type(drafter).__module__.startswith("ngramkit."):
        return drafter.draft

    def draft(budget: int) -> DraftTree:
        tree = drafter.draft(budget)
        try:
            return _sound(tree, budget, vocabulary)
        except ValueError as error:
            raise UsageError(
                f"{type(drafter).__name__}.draft({budget}) gave no valid draft: {error}",
                "ngramkit.DraftTree says what a draft is; an empty one is DraftTree.empty()",
                option="drafter",
            ) from None

    return draft


def _sound(tree: Any, budget: int, vocabulary: int) -> DraftTree:
    """Return the tree, its columns in their dtypes. Raises ValueError, which says what is wrong."""
    if not isinstance(tree, DraftTree):
        raise ValueError(f"{_shown(tree)} is no DraftTree")
    token_ids = _column("token_ids", tree.token_ids, INTEGERS, 0, vocabulary - 1)
    if len(token_ids) > budget:
        raise ValueError(f"it has {len(token_ids)} nodes, more than the budget")
    parents = _column("parents", tree.parents, INTEGERS, -1, len(token_ids) - 1)
    scores = _column("scores", tree.scores, NUMBERS, 0, 1 + ROUNDING)
    source = _column("source", tree.source, INTEGERS, 0, max(Source))
    sound = DraftTree(
        np.ascontiguousarray(token_ids, np.int32),
        np.ascontiguousarray(parents, np.int32),
        np.ascontiguousarray(scores, np.float32),
        np.ascontiguousarray(source, np.uint8),
    )
    sound.check()
    return sound


def _column(name: str, given: Any, kinds: str, least: int, most: float) -> npt.NDArray[Any]:
    """Return a column as an array of numbers in `least` to `most`. Raises ValueError."""
    try:
        values = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # of rows of unequal length, on a GPU
        values = np.empty((0, 0))
    if values.ndim != 1 or (len(values) and values.dtype.kind not in kinds):
        wanted = "whole numbers" if kinds == INTEGERS else "numbers"
        raise ValueError(f"{name} must be a list of {wanted}, is {_shown(given)}")
    if len(values) and not (values.min() >= least and values.max() <= most):  # NaN is neither
        worst = values.max() if values.min() >= least else values.min()
        raise ValueError(f"{name} must be {least} to {int(most)}, one is {worst}")
    return values


def _shown(value: Any) -> str:
    return visible(reprlib.repr(value), 60)
