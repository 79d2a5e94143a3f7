"""Which requests join the history when they end. Adapters report the facts, and ask here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngramkit.engines.request_parameters import forbids_remembering


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

    `tenant`: as `tenant_of` returns it. `parameters`: the request's own, which may forbid
    remembering. `undrafted`: it switched drafts off, in an engine where that also forbids
    remembering. `hidden`: its prompt has inputs without ids of their own: embeddings have zeros,
    and a picture has the ids of any other. `most`: tokens of its output; one token is never drafted
    for, and beam searches consist of such requests.
    """
    if tenant is None or aborted or undrafted or hidden or forbids_remembering(parameters):
        return None
    return None if most is not None and most <= 1 else tenant
