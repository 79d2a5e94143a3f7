"""A notice before a Hub corpus is built for the embedded model, which hardly anybody wants.

`ngramkit build-frozen --corpus openwebtext` works as typed, but serves no other model.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from ngramkit_cli.output import Output

try:
    from typer._click.globals import get_current_context  # newer typers have their own click
except ImportError:
    from click import get_current_context  # type: ignore[no-redef]


def warn_of_demo(corpora: Iterable[str], model: str, out: Output) -> None:
    """Print a notice with the same command for another model, unless --model demo was typed."""
    from ngramkit.corpus.open import NAMED
    from ngramkit.models import DEFAULT

    from_hub = [c for c in corpora if c.startswith("hf:") or (c in NAMED and NAMED[c].hub)]
    if model != DEFAULT or not from_hub or _typed("model"):
        return
    out.say(
        f"note: this will serve the embedded model {DEFAULT} alone (a vocabulary of 4,096 tokens); "
        "for yours:",
        f"  {same_command('--model', 'MODEL')}",
    )


def same_command(*more: str) -> str:
    """Return the running command as it was typed, and `more`, ready to be pasted."""
    context = get_current_context()
    words = ["ngramkit", *context.command_path.split()[1:]]
    for parameter in context.command.params:
        if _typed(parameter.name or ""):
            words += _words(parameter, context.params[parameter.name or ""])
    return shlex.join([*words, *more])


def _typed(name: str) -> bool:
    context = get_current_context()
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _words(parameter: Any, value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    if parameter.param_type_name == "argument":
        return [str(each) for each in values]
    if parameter.is_flag:
        return [parameter.opts[0] if value else parameter.secondary_opts[0]]
    return [word for each in values for word in (parameter.opts[0], str(each))]
