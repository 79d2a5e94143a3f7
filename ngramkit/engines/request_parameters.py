"""The parameters of a request that switch drafts off, forbid remembering, or name a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAFT_KEY = "ngramkit"  # false: nothing is drafted for the request
HISTORY_KEY = "ngramkit_history"  # the request's tenant; false: it is not remembered
OFF_VALUES = ("false", "off", "no", "0")  # texts that mean false
LONGEST_TENANT = 4096  # characters of a tenant's key


def forbids_drafts(parameters: Mapping[str, Any]) -> bool:
    return is_off(parameters.get(DRAFT_KEY))


def forbids_remembering(parameters: Mapping[str, Any]) -> bool:
    return is_off(parameters.get(HISTORY_KEY))


def is_off(value: object) -> bool:
    """Return whether a parameter is false, 0, or one of OFF_VALUES as text.

    >>> is_off(False), is_off(0.0), is_off("False"), is_off(None), is_off("")
    (True, True, True, False, False)
    """
    return value == 0 or (isinstance(value, str) and value.strip().lower() in OFF_VALUES)


def tenant_of(said: Any) -> str | None:
    """Return a tenant's key from a client's value, "" for None.

    Returns None for other types and long values: such requests are not remembered.
    """
    if said is None:
        return ""
    if not isinstance(said, str | int | float):
        return None
    # Python refuses to print very long integers.
    if isinstance(said, int) and said.bit_length() > LONGEST_TENANT:
        return None
    key = str(said)
    return key if len(key) <= LONGEST_TENANT else None
