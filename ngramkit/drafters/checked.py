"""Checks of users' own drafters: their methods and their drafts.

Kernels trust a tree's parents, and models trust token ids.
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

DRAFTER_METHODS = {  # methods of a drafter, with their arguments
    "start": ("prompt",),
    "draft": ("budget",),
    "accept": ("tokens", "evidence"),
    "finish": (),
}
INTEGERS, NUMBERS = "iu", "iuf"  # kinds of dtypes
ANY_VOCABULARY = 1 << 31  # ids, if no model reads the drafts
MAX_ROUNDING = 1e-3  # excess over 1 that a sum of probabilities may have


def require_drafter(given: Any, *, or_maker: bool = False, name: str = "drafter") -> Any:
    """Return `given` if it is a drafter or, with `or_maker`, makes one.

    Raises UsageError, which names the parameter.
    """
    own = [method for method in DRAFTER_METHODS if hasattr(given, method)]
    is_class = isinstance(given, type)
    is_whole = len(own) == len(DRAFTER_METHODS)
    if or_maker and callable(given) and (not own or (is_class and is_whole)):
        return given
    if is_class or not is_whole:
        missing = ", ".join(method for method in DRAFTER_METHODS if method not in own)
        lacks = f", which lacks {missing}" if own and missing else ""
        raise UsageError(
            f"{name} must be a drafter or its name, got {visible(repr(given), 60)}{lacks}",
            f"Give an object with {', '.join(DRAFTER_METHODS)}, or a function that makes one.",
            option=name,
        )
    for method, arguments in DRAFTER_METHODS.items():
        try:
            inspect.signature(getattr(given, method)).bind(*arguments)
        except TypeError as error:
            raise UsageError(
                f"{type(given).__name__}.{method}() must take ({', '.join(arguments)}): {error}",
                "See ngramkit.Drafter for the methods of a drafter.",
                option=name,
            ) from None
        except ValueError:  # compiled, without a signature
            continue
    return given


def drafts_of(drafter: Drafter, vocabulary: int = ANY_VOCABULARY) -> Callable[[int], DraftTree]:
    """Return a checked `drafter.draft`: ids below `vocabulary`, the dtypes of DraftTree.

    It raises UsageError for another drafter's malformed tree. Ids that an artifact's tokenizer has
    and the model has not are left out.
    """
    if type(drafter).__module__.startswith("ngramkit."):
        return lambda budget: drafter.draft(budget).below(vocabulary)

    def draft(budget: int) -> DraftTree:
        tree = drafter.draft(budget)
        try:
            return _checked_tree(tree, budget, vocabulary)
        except ValueError as error:
            raise UsageError(
                f"cannot use the draft of {type(drafter).__name__}.draft({budget}): {error}",
                "See ngramkit.DraftTree; an empty draft is DraftTree.empty().",
                option="drafter",
            ) from None

    return draft


def _checked_tree(tree: Any, budget: int, vocabulary: int) -> DraftTree:
    if not isinstance(tree, DraftTree):
        raise ValueError(f"it must be a DraftTree, got {_show_value(tree)}")
    token_ids = _checked_column("token_ids", tree.token_ids, INTEGERS, 0, vocabulary - 1)
    if len(token_ids) > budget:
        raise ValueError(f"it must have at most {budget} nodes, got {len(token_ids)}")
    parents = _checked_column("parents", tree.parents, INTEGERS, -1, len(token_ids) - 1)
    scores = _checked_column("scores", tree.scores, NUMBERS, 0, 1 + MAX_ROUNDING)
    source = _checked_column("source", tree.source, INTEGERS, 0, max(Source))
    sound = DraftTree(
        np.ascontiguousarray(token_ids, np.int32),
        np.ascontiguousarray(parents, np.int32),
        np.ascontiguousarray(scores, np.float32),
        np.ascontiguousarray(source, np.uint8),
    )
    sound.check()
    return sound


def _checked_column(name: str, given: Any, kinds: str, least: int, most: float) -> npt.NDArray[Any]:
    try:
        values = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # rows of unequal length, or a tensor on a GPU
        values = np.empty((0, 0))
    if values.ndim != 1 or (len(values) and values.dtype.kind not in kinds):
        wanted = "whole numbers" if kinds == INTEGERS else "numbers"
        raise ValueError(f"{name} must be a list of {wanted}, got {_show_value(given)}")
    if len(values) and not (values.min() >= least and values.max() <= most):  # NaN is neither
        worst = values.max() if values.min() >= least else values.min()
        raise ValueError(f"{name} must be {least} to {int(most)}, got {worst}")
    return values


def _show_value(value: Any) -> str:
    return visible(reprlib.repr(value), 60)
