"""Drafters of other packages: `--drafter python:PACKAGE.MODULE:CLASS`.

Only the command line names code. The library, recipes and the engines' configuration refuse this
form, and the working folder is not searched.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import UsageError, hint_for_unknown
from ngramkit.basics.terminal_text import visible

PREFIX = "python:"
FORM = f"{PREFIX}PACKAGE.MODULE:CLASS"


def named_drafter(name: str | None) -> Any:
    """Return the class that `name` names, any other name unchanged.

    Raises UsageError for a missing module or class, and for anything that is not a drafter.
    """
    if name is None or not name.startswith(PREFIX):
        return name
    module, _, attribute = name.removeprefix(PREFIX).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(
            f"a drafter of a package must be {FORM}, got {visible(name, 80)!r}",
            "Write it like python:my_package.drafters:MyDrafter.",
            option="drafter",
        )
    found = _import_module(module)
    if not hasattr(found, attribute):
        raise UsageError(
            f"unknown class {attribute!r} of {module}",
            hint_for_unknown(
                attribute, [each for each, value in vars(found).items() if _is_own(value, module)]
            ),
            option="drafter",
        )
    return _checked_drafter(getattr(found, attribute), name)


def _is_own(value: Any, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _import_module(module: str) -> Any:
    sys.path[:] = without_working_folder(sys.path)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise UsageError(
            f"cannot import {module}: no module named {missing!r}",
            "Install its package. The working folder is not searched.",
            option="drafter",
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"cannot import {module}: {_show_error(error)}", option="drafter"
        ) from error


def _show_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {visible(error, 200)}"


def without_working_folder(path: list[str]) -> list[str]:
    """Return the module search path without the working folder, unless an installation names it.

    `python -m` and empty parts of PYTHONPATH put it before the standard library; packages that are
    installed from it (`pip install -e .`) put it after.
    """
    standard = sysconfig.get_path("stdlib")
    own = path.index(standard) if standard in path else len(path)
    here = Path.cwd().resolve()
    return [
        each
        for place, each in enumerate(path)
        if each and (place > own or Path(each).resolve() != here)
    ]


def _checked_drafter(found: Any, name: str) -> Any:
    """Return a drafter, or what creates one, after one was created."""
    from ngramkit.drafters.checked import require_drafter

    try:
        require_drafter(found, or_maker=True)
        if isinstance(found, type) or not hasattr(found, "draft"):
            require_drafter(found())
    except Exception as error:
        why = str(error) if isinstance(error, UsageError) else _show_error(error)
        raise UsageError(
            f"cannot use {name}: {why}",
            "Name a class with start, draft, accept and finish that needs no arguments.",
        ) from error
    return found
