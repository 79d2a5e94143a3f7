"""Which requests have ended, and which join the history then. Adapters ask here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ngramkit.engines.request_parameters import forbids_remembering

MAX_WATCHED_REQUESTS = 4096  # maximum requests that are watched


class EndedRequests:
    """The ends of requests that an engine shows only while they run.

    A request that no longer runs may only be preempted.
    """

    def __init__(self, has_ended: Callable[[Any], bool]) -> None:
        self._has_ended = has_ended
        self._seen: dict[str, Any] = {}

    def ended(self, running: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return requests that have ended since they ran, with their names."""
        # Another request may have the name of one that has ended.
        gone = sorted(name for name, each in self._seen.items() if running.get(name) is not each)
        ended = [name for name in gone if self._has_ended(self._seen[name])]
        found = [(name, self._seen.pop(name)) for name in ended]
        self._seen.update(running)
        # Some never report that they were aborted.
        while len(self._seen) > max(MAX_WATCHED_REQUESTS, len(running)):
            del self._seen[next(iter(self._seen))]
        return found


def joined_history(
    tenant: str | None,
    parameters: Mapping[str, Any],
    *,
    aborted: bool = False,
    undrafted: bool = False,
    hidden: bool = False,
    most: int | None = None,
) -> str | None:
    """Return the key of the history that a request joins when it ends; None if it joins none.

    `tenant`: as `tenant_of_request` returns it. `parameters`: the request's own, which may forbid
    remembering. `undrafted`: it switched drafts off, in an engine where that also forbids
    remembering. `hidden`: its prompt has inputs without ids of their own: embeddings have zeros,
    and a picture has the ids of any other. `most`: tokens of its output; one token is never drafted
    for, and beam searches consist of such requests.
    """
    if tenant is None or aborted or undrafted or hidden or forbids_remembering(parameters):
        return None
    return None if most is not None and most <= 1 else tenant
