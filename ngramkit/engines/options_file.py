"""The YAML file of options that vLLM and SGLang read if they get `--config FILE`.

Read in vLLM 0.33 and SGLang 0.5.23. Both put the file's options before the others, which override
them, and leave out options that are false.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import read_given

FILE_OPTION = "--config"
SUFFIXES = (".yaml", ".yml")
MAX_FILE_BYTES = 1 << 16
MAX_CHARACTERS = 1 << 20  # of all options: a YAML alias may name an object often


class GivenOptions(NamedTuple):
    words: list[str]  # of the file, then the others
    false: tuple[str, ...] = ()  # names in the file that are false
    file: str | None = None


def read_options(words: Sequence[str]) -> GivenOptions:
    """Return a server's options with those of its file.

    Raises InputError if the file cannot be read, UsageError if it does not hold options.
    """
    if FILE_OPTION not in words:
        return GivenOptions(list(words))
    at = words.index(FILE_OPTION)
    if words.count(FILE_OPTION) > 1 or at + 1 == len(words):
        got = "no file" if at + 1 == len(words) else f"{words.count(FILE_OPTION)} times config"
        raise UsageError(f"options must name one config file, got {got}", option="options")
    name = words[at + 1]
    values = _read_values(Path(name))
    read, size = list[str](), 0
    for key, value in values.items():
        for word in _words_of(key, value):
            read.append(word)
            size += len(word)
            if size > MAX_CHARACTERS:
                raise _unreadable(key)
    false = tuple(key for key, value in values.items() if value is False)
    return GivenOptions([*read, *words[:at], *words[at + 2 :]], false, name)


def _read_values(path: Path) -> dict[str, Any]:
    import yaml

    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"a config file must end in {' or '.join(SUFFIXES)}, got {visible(str(path), 60)}",
            "Rename it: vLLM and SGLang refuse other names.",
            option="options",
        )
    raw = read_given(path, MAX_FILE_BYTES, too_long="Give a file of a server's options.")
    try:
        values = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise InputError(
            f"cannot read {path}: it is not YAML{where}",
            "Write a line for each option, as max-model-len: 8192.",
        ) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        got = "other keys" if isinstance(values, dict) else type(values).__name__
        raise InputError(
            f"{path} must be an object whose keys are options, got {got}",
            "Write a line for each option, as max-model-len: 8192.",
        )
    return values


def _words_of(key: str, value: Any) -> Iterator[str]:
    if value is False or value == []:
        return
    yield f"--{key}"
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict | list):
            yield _as_json(key, each)
        elif value is not True:
            yield str(each)


def _as_json(key: str, value: dict[Any, Any] | list[Any]) -> str:
    parts, size = list[str](), 0
    try:
        for part in json.JSONEncoder(default=str).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > MAX_CHARACTERS:
                break
        else:
            return "".join(parts)
    except (TypeError, ValueError, RecursionError):  # other keys than texts; an object in itself
        pass
    raise _unreadable(key)


def _unreadable(key: str) -> InputError:
    return InputError(
        f"cannot read {visible(key, 40)} of the config file: it must be JSON, and all options at "
        f"most {MAX_CHARACTERS:,} characters"
    )
