"""Hooks around an engine's methods. Imports nothing that can fail, see `vllm_plugin`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

MARK = "hooks_of_ngramkit"  # names of the hooks around a method


def wrap(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    """Let `hook(theirs, *arguments)` run in place of a method, if there is one and only once."""
    theirs = getattr(owner, name, None)
    hooks = getattr(theirs, MARK, ())
    if theirs is None or hook.__name__ in hooks:
        return

    @wraps(theirs)
    def wrapped(*given: Any, **named: Any) -> Any:
        return hook(theirs, *given, **named)

    setattr(wrapped, MARK, (*hooks, hook.__name__))
    setattr(owner, name, wrapped)
