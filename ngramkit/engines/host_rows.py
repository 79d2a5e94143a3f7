"""The tokens of running requests in host memory, by the engine's ids of requests.

An engine that keeps token ids on a device sends a prompt when its request begins, and afterwards
only what each step wrote.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ngramkit.drafters.base import LiveContext, TokenArray


class HostRow(LiveContext):
    """A request's tokens. `hidden`: leading positions without ids, not in `tokens`."""

    def __init__(self, tokens: TokenArray, prompt: int, hidden: int = 0, request: Any = None):
        super().__init__(tokens)
        self.prompt = prompt  # tokens of the prompt, without the hidden ones
        self.hidden = hidden
        self.request = request  # whatever the adapter knows of the request

    @property
    def output(self) -> TokenArray:
        return self.tokens[self.prompt :]


class HostRows(dict[str, HostRow]):
    """Rows by request id."""

    resynced = 0  # rows whose length differed from the engine's

    def begin(
        self, name: str, tokens: TokenArray, prompt: int, *, hidden: int = 0, request: Any = None
    ) -> HostRow:
        """Add a request with its tokens int32[n]: new, resumed, or with another prompt.

        `prompt` and `hidden`: how many of `tokens` are the prompt, and how many of these hold no
        ids. The row keeps a copy.
        """
        row = self[name] = HostRow(tokens[hidden:], max(prompt - hidden, 0), hidden, request)
        return row

    def extend(self, name: str, total: int, new: TokenArray) -> HostRow | None:
        """Append what a step wrote; None if the row would not have `total` tokens then."""
        row = self.get(name)
        if row is None or row.hidden + row.length + len(new) != total:
            return None
        row.append(new)
        return row

    def resync(self, name: str, tokens: TokenArray, prompt: int) -> HostRow:
        """Replace all tokens of a row that `extend` refused by the engine's."""
        self.resynced += 1
        row = self.get(name)
        if row is None:
            return self.begin(name, tokens, prompt)
        return self.begin(name, tokens, prompt, hidden=row.hidden, request=row.request)

    def prune(self, known: Container[str]) -> None:
        """Drop rows of requests that the engine no longer has."""
        for name in [name for name in self if name not in known]:
            del self[name]
