"""What a user has chosen once for every command: today the model.

    ngramkit use ./my-model  ->  settings.json in the user's configuration folder: {"model": "..."}

Knows nothing of what a model is; see ngramkit.models.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ngramkit.errors import InputError
from ngramkit.formats.files import read_plain
from ngramkit.formats.json_text import parse_json

NAME = "settings.json"
MOST = 1 << 20  # bytes


def settings_path() -> Path:
    """Where the settings are, or would be."""
    from platformdirs import user_config_path

    return user_config_path("ngramkit", appauthor=False) / NAME


def read_settings() -> dict[str, str]:
    """Empty where there are none. Raises InputError where the file cannot be understood."""
    path = settings_path()
    try:
        body = parse_json(read_plain(path, MOST, error=InputError), str(path))
    except FileNotFoundError:
        return {}
    except (InputError, OSError) as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return {}
        raise _unreadable(path) from error
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise _unreadable(path)
    return body


def write_settings(settings: dict[str, str]) -> None:
    """Replaces the file at once. Raises InputError where it cannot be written."""
    path = settings_path()
    partial = path.with_name(f"{NAME}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "or set NGRAMKIT_MODEL instead"
        ) from error


def _unreadable(path: Path) -> InputError:
    return InputError(f"{path} cannot be understood", "delete it: it holds only what was chosen")
