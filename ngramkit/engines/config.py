"""The configuration of an engine's adapter: a JSON object, or a file of one, in NGRAMKIT_DRAFT.

{"drafter": "blend", "datastores": ["hf://me/chat@v1"], "min_probability": 0.4}
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import (
    ArtifactError,
    InputError,
    NgramkitError,
    UsageError,
    hint_for_unknown,
    one_line,
    reason,
)
from ngramkit.basics.kinds import KIND_OF_ROLE, TABLES
from ngramkit.basics.machine import expand_home
from ngramkit.basics.untrusted import parse_json, read_json
from ngramkit.drafters.create import require_kind, require_sources
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.formats.history import History, require_no_other
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.remote.fetch import is_hub_name
from ngramkit.remote.urls import as_path, as_url, local_folder

LOG = logging.getLogger("ngramkit")
CONFIG_VARIABLE = "NGRAMKIT_DRAFT"
PATH_KEYS = (*TABLES, "history", "metrics")
SWITCH_KEYS = ("pause", "clock", "store", "history_prompts")
FOLDER_KEYS = ("history_bytes", "history_days")
ADDING_KEYS = (*FOLDER_KEYS, "history_prompts")
TENANT_KEYS = ("lora", "salt", "key")  # properties that may name a request's tenant


class Engine(NamedTuple):
    distribution: str
    tried: tuple[str, ...]  # versions
    shows: tuple[str, ...]  # those of TENANT_KEYS that it shows a drafter
    timed: bool = False  # the time of its passes may be learnt, see `clock`
    unused: tuple[str, ...] = ()  # keys of DraftConfig without effect; vLLM's depend on its mode
    priced: bool = False  # verifies only what was drafted, as far as the passes' cost allows


ENGINES = {
    "vllm": Engine("vllm", ("0.32.0", "0.33.0"), ("lora", "key"), timed=True, priced=True),
    "sglang": Engine("sglang", ("0.5.23",), TENANT_KEYS, unused=("tokens", "clock")),
    "llama-cpp": Engine(
        "llama-cpp-python", ("0.3.36",), (), timed=True, priced=True, unused=("budget",)
    ),
    "tensorrt-llm": Engine(
        "tensorrt-llm", ("1.2",), ("lora", "salt"), priced=True, unused=("budget", "clock")
    ),
}
KEY_RANGES = {  # whole numbers: key -> least and most
    "tokens": (1, 64),
    "budget": (1, 512),
    "sessions": (1, 1 << 20),
    "threads": (1, 256),
    "vocabulary": (1, 1 << 30),
    "log_steps": (0, 1 << 40),
    "history_tokens": (1, (1 << 31) - 1),
    "history_bytes": (1 << 16, 1 << 40),
}


@dataclass(frozen=True)
class DraftConfig:
    """The keys and their defaults. Artifacts are folders or hf://USER/NAME@REVISION."""

    drafter: str = DEFAULT_DRAFTER  # with options: blend:scan=32
    datastores: tuple[str, ...] = ()
    frozen_table: str | None = None
    bigram: str | None = None
    unigram: str | None = None
    history: str | bool | None = None  # a folder of past requests; True: only in memory
    history_tokens: int = HISTORY_TOKENS  # newest tokens that are drafted from
    history_bytes: int = 1 << 26  # of the folder's log; of a larger one the oldest half is dropped
    history_days: float | None = None  # age at which requests are dropped
    history_prompts: bool = False  # remember prompts too, not only outputs
    history_by: str | None = None  # one of TENANT_KEYS: each of its values has a history
    store: bool = True  # add finished requests to the history
    min_probability: float | None = None  # minimum probability of a drafted token; None: learnt
    # The cost of a pass over 9 tokens in passes over one, "1:57,9:109", or a profile's path.
    pass_cost: float | str | None = None  # None: by the model's config
    tokens: int | None = None  # maximum of a chain; None: the engine's
    budget: int | None = None  # maximum nodes of a tree; None: the engine's
    vocabulary: int | None = None  # ids of the model, if neither artifacts nor engine give it
    sessions: int | None = None  # requests tracked at once; None: 512, 8 in llama-cpp-python
    threads: int | None = None  # None: one per core, at most four
    pause: bool = True  # do not draft for requests whose drafts do not pay
    # Learn the time of passes; None: if one rank drafts, without min_probability and pass_cost.
    clock: bool | None = None
    log_steps: int = 10_000  # rows between two lines in the log; 0: none
    metrics: str | None = None  # a file for Prometheus, written with each line in the log

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not field.default:
                _check_value(field.name, value, "the configuration")
        object.__setattr__(self, "datastores", tuple(self.datastores))

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: str = "the configuration") -> DraftConfig:
        """Return the configuration that `given` holds. Raises UsageError."""
        names = [field.name for field in fields(cls)]
        for key, value in given.items():
            if key not in names:
                raise UsageError(
                    f"unknown key {key!r} in {where}", hint_for_unknown(str(key), names)
                )
            _check_value(key, value, where)
        _refuse_contradicting_keys(given, where)
        values: dict[str, Any] = dict(given)
        values["datastores"] = tuple(map(_expand_home, given.get("datastores", ())))
        values |= {
            key: _expand_home(given[key]) for key in PATH_KEYS if isinstance(given.get(key), str)
        }
        if isinstance(history := values.get("history"), str):
            values["history"] = str(local_folder("history", history))
        if "drafter" in values:
            DrafterSpec.parse(values["drafter"])
        return cls(**values)

    @property
    def artifacts(self) -> dict[str, tuple[str, ...]]:
        given = {role: getattr(self, role) or () for role in KIND_OF_ROLE}
        named = {r: names if isinstance(names, tuple) else (names,) for r, names in given.items()}
        return {role: names for role, names in named.items() if names}

    def unused(self, keys: Iterable[str]) -> list[str]:
        """Return which of `keys`, which have no effect, differ from their defaults."""
        defaults = DraftConfig()
        return [key for key in keys if getattr(self, key) != getattr(defaults, key)]

    def log_unused(self, keys: Iterable[str], cause: str) -> None:
        """Log which of `keys` are given although `cause` leaves them unused."""
        if given := self.unused(keys):
            LOG.warning("%s: these keys have no effect: %s", cause, ", ".join(given))

    @property
    def named(self) -> bool:
        return bool(self.artifacts) or isinstance(self.history, str)

    def refuse_keys_of_other_engines(self, engine: str) -> None:
        shown = ENGINES[engine].shows
        if self.history_by is not None and self.history_by not in shown:
            named = " or ".join(f'"{key}"' for key in shown)
            raise UsageError(
                f'cannot use history_by="{self.history_by}": {engine} does not pass it to drafters',
                f"Use {named}." if shown else "Leave history_by out.",
                option="history_by",
            )
        if self.pass_cost is not None and not ENGINES[engine].priced:
            raise UsageError(
                f"cannot use pass_cost with {engine}: it pads every draft",
                "Leave it out.",
                option="pass_cost",
            )
        if self.clock and self.min_probability is None and not ENGINES[engine].timed:
            raise UsageError(
                f"cannot use clock with {engine}: the time of its passes is not learnt",
                "Leave it out.",
                option="clock",
            )

    def require_vocabulary(self, known: int | None, hint: str) -> int:
        """Return the model's number of ids. Raises UsageError if it is unknown."""
        vocabulary = self.vocabulary if known is None else known
        if vocabulary is None:
            raise UsageError(
                "the model's vocabulary must be known, or ids that it does not have may be drafted",
                hint,
                option="vocabulary",
            )
        return vocabulary

    def require_sources(self) -> None:
        given = {**self.artifacts, "history": self.history}
        require_sources(DrafterSpec.parse(self.drafter).name, given, "history")

    @classmethod
    def read(
        cls, given: str | PathLike[str] | Mapping[str, Any], where: str = CONFIG_VARIABLE
    ) -> DraftConfig:
        """Read a mapping, a JSON object, or a file of one; `where` names it in errors.

        Raises InputError if there is no JSON object, TypeError for other types, UsageError as
        `parse`.
        """
        hint = 'Write {"drafter": "blend"}, or the path of a file that holds such an object.'
        if isinstance(given, Mapping):
            return cls.parse(given, where)
        if not isinstance(given, str | PathLike):
            raise TypeError(f"{where} must be a mapping, JSON or a path, got {given!r:.60}")
        if not str(given).strip():
            raise InputError(f"{where} must be JSON or a path, got {given!r}", hint)
        if isinstance(given, str) and given.lstrip().startswith("{"):
            value = parse_json(given, where, strict=True, error=InputError, hint=hint)
        else:
            named_by = f", which {CONFIG_VARIABLE} names" if where == CONFIG_VARIABLE else ""
            where = str(given).strip()
            try:
                value = read_json(expand_home(where), strict=True, error=InputError, hint=hint)
            except (OSError, ValueError) as error:
                raise InputError(f"cannot read {where}{named_by}: {reason(error)}", hint) from None
        if not isinstance(value, dict):
            raise InputError(f"{where} must be a JSON object, got {type(value).__name__}", hint)
        return cls.parse(value, where)

    @classmethod
    def from_environment(cls) -> DraftConfig | None:
        """Return the configuration in NGRAMKIT_DRAFT, or None. Raises as `read`."""
        text = os.environ.get(CONFIG_VARIABLE, "")
        return cls.read(text) if text.strip() else None


def require_config(config: Any) -> None:
    """Raise TypeError unless `config` is a DraftConfig."""
    if not isinstance(config, DraftConfig):
        raise TypeError(
            f"config must be a DraftConfig, as DraftConfig.parse returns it, got {config!r:.60}"
        )


def config_for(engine: str, drafts: str, given: DraftConfig | None = None) -> DraftConfig:
    """Return `given`, else that of NGRAMKIT_DRAFT, else the default.

    Keys without effect on `drafts`, as the log calls them, are logged. Raises TypeError for other
    types, and as `DraftConfig.read` and `refuse_keys_of_other_engines`.
    """
    if given is None:
        given = DraftConfig.from_environment() or DraftConfig()
    require_config(given)
    given.refuse_keys_of_other_engines(engine)
    given.log_unused(ENGINES[engine].unused, drafts)
    return given


def require_engine(engine: str) -> None:
    check_type("engine", engine, [str])
    if engine not in ENGINES:
        raise UsageError(
            f"unknown engine {engine!r}", hint_for_unknown(engine, ENGINES), option="engine"
        )


def require_usable_variable(engine: str) -> None:
    """Raise NgramkitError if NGRAMKIT_DRAFT is wrong for this engine."""
    try:
        require_usable_config(DraftConfig.from_environment() or DraftConfig(), engine)
    except NgramkitError as error:
        raise type(error)(f"{CONFIG_VARIABLE} cannot be used: {one_line(error)}") from None


def require_usable_config(config: DraftConfig, engine: str) -> None:
    """Raise the errors of a configuration and of its folders' manifests.

    numba must not be imported here: a worker of vLLM 0.33 on a CPU fails at one of llvmlite's
    modules.
    """
    config.refuse_keys_of_other_engines(engine)
    config.require_sources()
    for role, folder in local_folders(config):
        require_kind(folder, read_manifest(folder).kind, role)
    existing_history(config)


def local_folders(config: DraftConfig) -> Iterator[tuple[str, Path]]:
    """Yield role and folder of each artifact that is not to be downloaded."""
    for role, names in config.artifacts.items():
        for name in names:
            if as_url(name) is None and not is_hub_name(name):
                yield role, as_path(name)


def existing_history(config: DraftConfig) -> History | None:
    """Return the one history that an engine's requests draft from, if it exists.

    Raises ArtifactError if the path holds something else, or nothing and `store` is off.
    """
    if not isinstance(config.history, str):
        return None
    path = Path(config.history)
    one = (path / MANIFEST_FILE).exists()
    if one and config.history_by is not None:
        raise ArtifactError(
            f"cannot use history_by: {path} is a single history, not a folder of histories",
            "Choose another folder, or leave history_by out.",
        )
    if one:
        return History.open(path)
    if not config.store and not path.exists():
        raise ArtifactError(f"no such history: {path}", "Check the path, or leave history out.")
    if config.history_by is None:
        require_no_other(path)
    return None


def _expand_home(name: str) -> str:
    """Expand ~ in a path; URLs stay."""
    return str(expand_home(name)) if name.startswith("~/") else name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_contradicting_keys(given: Mapping[str, Any], where: str) -> None:
    """Refuse keys that have no effect next to the others."""

    def refuse(key: str, why: str, hint: str) -> None:
        raise UsageError(f"cannot use {key} of {where}: {why}", hint, option="draft")

    history = given.get("history")
    for key in given:
        if (key.startswith("history_") or key == "store") and not history:
            refuse(key, "it needs a history", "Name a folder for it, or leave it out.")
        if key in FOLDER_KEYS and history is True:
            refuse(key, "a history in memory has no folder", "Name a folder, or leave it out.")
        if key in ADDING_KEYS and given[key] and given.get("store") is False:
            refuse(key, "with store false nothing is added", "Leave one of them out.")
    if history is True and given.get("store") is False:
        refuse("store", "a history in memory then stays empty", "Name a folder, or leave it out.")
    if "metrics" in given and given.get("log_steps") == 0:
        why = "it is written with each line in the log, and log_steps is 0"
        refuse("metrics", why, "Give log_steps, or leave metrics out.")
    for deciding in ("min_probability", "pass_cost"):
        for key in ("pass_cost", "clock"):
            if deciding in given and key != deciding and given.get(key):
                refuse(key, f"{deciding} replaces it", "Leave one of them out.")


def _check_value(key: str, value: Any, where: str) -> None:
    def refuse(wanted: str) -> None:
        raise UsageError(f"{key} of {where} must be {wanted}, got {value!r}", option="draft")

    if key == "datastores":
        if not (isinstance(value, list | tuple) and all(isinstance(v, str) and v for v in value)):
            refuse('a list of folders or hf:// names, as ["hf://me/chat@v1"]')
    elif key == "history" and isinstance(value, bool):
        return
    elif key == "drafter" or key in PATH_KEYS:
        if not isinstance(value, str) or not value:
            refuse("a folder, or true" if key == "history" else "a text")
    elif key == "history_by":
        if value not in TENANT_KEYS:
            refuse(f"one of {', '.join(TENANT_KEYS)}")
    elif key in SWITCH_KEYS:
        if not isinstance(value, bool):
            refuse("true or false")
    elif key == "pass_cost":
        if not (isinstance(value, str) and value) and not _is_number(value):
            refuse('a number, times like "1:57,9:109", or the path of a profile')
    elif key in ("history_days", "min_probability"):
        number = _is_number(value)
        if key == "history_days" and not (number and 0 < value < math.inf):
            refuse("a number above 0")
        if key == "min_probability" and not (number and 0 <= value <= 1):
            refuse("0 to 1")
    else:
        least, most = KEY_RANGES[key]
        if type(value) is not int or not least <= value <= most:
            refuse(f"a whole number, {least} to {most:,}")
