"""Options that belong together, as one parameter of a command.

@dataclass(frozen=True)
class SamplingOptions:
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0

@takes_groups
def decode(sampling: SamplingOptions, ...): ...

Every field is an option; the command is handed the group.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Put the fields of each parameter that is a dataclass in that parameter's place."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: entry.annotation
        for name, entry in signature.parameters.items()
        if is_dataclass(entry.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, entry in signature.parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(entry.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        chosen = {
            name: group(**{each.name: values.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**chosen, **values)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return wrapped


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in fields(group)
    ]
