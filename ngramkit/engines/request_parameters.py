"""The parameters of a request that switch drafts off, forbid remembering, or name a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngramkit.basics.errors import UsageError, hint_for_unknown
from ngramkit.basics.terminal_text import visible
from ngramkit.drafters.references import REFERENCE_KEY
from ngramkit.engines.request_texts import (
    IDS_KEY,
    PREDICTION_KEY,
    TEMPLATE_IDS_KEY,
    TEMPLATE_KEY,
)

DRAFT_KEY = "ngramkit"  # false: nothing is drafted for the request
HISTORY_KEY = "ngramkit_history"  # the request's tenant; false: it is not remembered
CLIENT_KEYS = (DRAFT_KEY, HISTORY_KEY, REFERENCE_KEY, TEMPLATE_KEY)
ADDED_KEYS = (PREDICTION_KEY, IDS_KEY, TEMPLATE_IDS_KEY)  # by front ends
OFF_TEXTS = ("false", "off", "no", "0")  # texts that mean false
ON_TEXTS = ("true", "on", "yes", "1")
LONGEST_TENANT = 4096  # characters of a tenant's key


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise UsageError for a misspelt parameter or a switch that is neither on nor off.

    Without an effect, "ngramkit_histroy": false would remember the request.
    """
    for key in parameters:
        if str(key).lower().startswith(DRAFT_KEY) and key not in CLIENT_KEYS + ADDED_KEYS:
            raise UsageError(
                f"unknown parameter {visible(str(key), 60)!r}", hint_for_unknown(key, CLIENT_KEYS)
            )
    check_switch(DRAFT_KEY, parameters.get(DRAFT_KEY))


def check_switch(name: str, value: object) -> None:
    """Raise UsageError unless a switch is on, off, or not given (None)."""
    text = value.strip().lower() if isinstance(value, str) else ""
    if not (value is None or is_off(value) or value == 1 or text in ON_TEXTS):
        raise UsageError(
            f"{name} must be true or false, got {visible(repr(value), 40)}", option=name
        )


def forbids_drafts(parameters: Mapping[str, Any]) -> bool:
    return is_off(parameters.get(DRAFT_KEY))


def forbids_remembering(parameters: Mapping[str, Any]) -> bool:
    return is_off(parameters.get(HISTORY_KEY))


def is_off(value: object) -> bool:
    """Return whether a parameter is false, 0, or one of OFF_TEXTS as text.

    >>> is_off(False), is_off(0.0), is_off("False"), is_off(None), is_off("")
    (True, True, True, False, False)
    """
    return value == 0 or (isinstance(value, str) and value.strip().lower() in OFF_TEXTS)


def tenant_of_request(by: str | None, parameters: Mapping[str, Any], **values: Any) -> str | None:
    """Return the tenant whose history a request drafts from and joins, "" without one.

    `by`: as `history_by`; "key" takes the request's own `parameters`, others one of `values`.
    Returns None for values of other types and long ones: such requests are not remembered.

    >>> values = ("acme", None, False, True, [])
    >>> [tenant_of_request("key", {"ngramkit_history": each}) for each in values]
    ['acme', '', '', None, None]
    >>> tenant_of_request("lora", {}, lora=7), tenant_of_request(None, {}, lora=7)
    ('7', '')
    """
    value = parameters.get(HISTORY_KEY) if by == "key" else values[by] if by else None
    if value is None or (by == "key" and is_off(value)):
        return ""
    if type(value) not in (str, int, float):
        return None
    # Python refuses to print very long integers.
    if isinstance(value, int) and value.bit_length() > LONGEST_TENANT:
        return None
    key = str(value)
    return key if len(key) <= LONGEST_TENANT else None
