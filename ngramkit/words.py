"""Numbers with what they count, for people."""

from __future__ import annotations


def many(count: int, what: str, plural: str | None = None) -> str:
    """1 shard; 2,000 shards; 2 passes. `plural`, where it is not `what` and an s."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"
