"""The provenance of results: the command, its options, what was read, versions, the machine."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from inspect import signature
from itertools import chain
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.basics.machine import cores, processor, version_of
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted, without_secrets
from ngramkit.basics.version import __version__
from ngramkit.choose import DrafterChoice
from ngramkit.corpus.files import walk_files
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.drafters.sources import Sources
from ngramkit.evaluate.records import Question, Record
from ngramkit.evaluate.statistics import RESAMPLING_SEED
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.evidence import LOCK
from ngramkit.formats.safetensors import sha256_of
from ngramkit.formats.tokenizer_record import TokenizerRecord

PACKAGES = ("ngramkit", "torch", "transformers", "tokenizers", "numpy", "numba")
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
MAX_VALUE_CHARACTERS = 200  # characters of an option's value


@dataclass
class Provenance(Result):
    """The origin of a result; in JSON `machine` is a key next to `provenance`."""

    command: str | None  # a line of a shell; None: no line says it
    options: dict[str, Any]  # all parameters, defaults included
    files: list[dict[str, Any]]  # path, bytes and sha256 of what was read
    tokenizer: dict[str, Any]
    artifacts: list[dict[str, Any]]  # path, kind, build and bytes
    seeds: dict[str, int]
    machine: dict[str, str]
    ngramkit: str = __version__
    commit: str | None = None  # of the checkout that ran
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_dict(self) -> dict[str, Any]:
        body = super().to_dict()
        return {"provenance": body, "machine": body.pop("machine")}


def provenance_of(
    command: str,
    options: Mapping[str, Any],
    words: Mapping[str, Any],
    *,
    files: Iterable[str | Path],
    tokenizer: TokenizerRecord,
    sources: Sources | None,
    choices: Sequence[DrafterChoice],
    seeds: Mapping[str, int | None],
    device: Mapping[str, str] | None = None,
) -> Provenance:
    """Return the provenance of a call.

    `options`: the parameters as given. `words`: those of the command line (see `command_line`), to
    which those of `sources` (None: they are among them) are added. `files`: files and folders that
    were read.
    """
    past = () if sources is None or sources.past.path is None else (sources.past.path,)
    taken = {artifact.where: artifact for choice in choices for artifact in choice.opened}
    return Provenance(
        command_line(command, {**words, **(_source_words(sources, choices) if sources else {})}),
        {name: _as_json(value) for name, value in options.items()},
        list(_digest_files([*files, *past])),
        asdict(tokenizer),
        [_describe_artifact(each) for each in taken.values()],
        {
            "intervals": RESAMPLING_SEED,
            **{name: seed for name, seed in seeds.items() if seed is not None},
        },
        describe_machine(device or {}),
        commit=commit_of(Path(__file__).parents[2]),
    )


def describe_machine(device: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of the machine and of the installed packages."""
    versions = {name: version_of(name) or "" for name in PACKAGES}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        **device,
        "processor": processor(),
        "cores": str(cores()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **versions,
    }


def commit_of(checkout: Path) -> str | None:
    """Return the commit that git has checked out there, read without running git."""
    with suppress(OSError, UnicodeDecodeError):
        git = checkout / ".git"
        if git.is_file():  # a worktree
            git = checkout / git.read_text().removeprefix("gitdir: ").strip()
        head = (git / "HEAD").read_text().strip()
        common = git
        with suppress(FileNotFoundError):
            common = git / (git / "commondir").read_text().strip()
        name = head.removeprefix("ref: ")
        found = head if name == head else _commit_of_ref(common, name)
        return found if found and COMMIT.fullmatch(found) else None
    return None


def _commit_of_ref(git: Path, name: str) -> str | None:
    with suppress(FileNotFoundError):
        return (git / name).read_text().strip()
    lines = (git / "packed-refs").read_text().splitlines()
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {name}")), None)


def _digest_files(paths: Iterable[str | Path]) -> Iterator[dict[str, Any]]:
    """Yield path, bytes and sha256 of every file, of those in folders too."""
    folders = (sorted(walk_files(path)) if path.is_dir() else [path] for path in map(Path, paths))
    for path in dict.fromkeys(chain.from_iterable(folders)):
        if not path.is_file() or path.name == LOCK:
            continue
        with suppress(FileNotFoundError):  # a history's own temporary file
            yield {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _describe_artifact(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    found = {"kind": artifact.kind, "build": manifest.build, "bytes": manifest.bytes}
    return {"path": artifact.where, **found}


def _as_json(value: Any) -> Any:
    """Return JSON; objects become their names, secrets of URLs are removed."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Real):  # numpy's numbers too
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, str | Path):
        return without_secrets(str(value))
    if isinstance(value, Artifact):
        return value.where
    if isinstance(value, Mapping):
        return {str(name): _as_json(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _as_json(each) for name, each in vars(value).items()}
    if isinstance(value, Sequence) and value and isinstance(value[0], Record | Question):
        return counted(len(value), type(value[0]).__name__)
    if isinstance(value, Sequence):
        return [_as_json(each) for each in value]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}:{name}"[:MAX_VALUE_CHARACTERS]


# The command line.

SOURCES = ("artifacts", *KIND_OF_ROLE, "history", "history_tokens", "store")
SINGULAR = {"drafters": "drafter", "datastores": "datastore"}


def command_line(command: str, words: Mapping[str, Any]) -> str | None:
    """Return the line that says `words`, {parameter: value}; None if a value is an object.

    True and False are switches, None is left out, a list repeats its option, and a mapping becomes
    FIELD=VALUE,...

    >>> command_line("replay", {"answers": ["a b.jsonl"], "chain": True, "store": False})
    "ngramkit replay --answers 'a b.jsonl' --chain --no-store"
    """
    line = ["ngramkit", command]
    for name, value in words.items():
        flag = f"--{SINGULAR.get(name, name).replace('_', '-')}"
        if isinstance(value, bool):
            line.append(flag if value else f"--no-{flag[2:]}")
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{field}={each}" for field, each in value.items()) or None
        listed = value if isinstance(value, list | tuple) else [value]
        for each in listed:
            if each is None:
                continue
            if isinstance(each, Artifact):
                each = each.where
            text = _drafter_name(each) if callable(each) else each
            if not isinstance(text, str | Path | Real):
                return None
            line += [flag, without_secrets(str(text))]
    return shlex.join(line)


def _drafter_name(drafter: Any) -> str | None:
    """Return python:MODULE:NAME if that names the class or function, else None."""
    module = getattr(drafter, "__module__", None)
    name = getattr(drafter, "__qualname__", "")
    if module in (None, "__main__") or getattr(sys.modules.get(module), name, None) is not drafter:
        return None
    return f"python:{module}:{name}"


def _source_words(sources: Sources, choices: Sequence[DrafterChoice]) -> dict[str, Any]:
    """Return the words of artifacts and history.

    The artifacts are those that were used if all drafters that use a role used the same ones, else
    those that were given.
    """
    used: dict[str, list[str]] = {}
    for choice in choices:
        for role in choice.artifacts:
            found = [*used.get(role, ()), *choice.places(role)]
            used[role] = list(dict.fromkeys(found))
    alike = all(
        choice.places(role) == used[role]
        for choice in choices
        if choice.spec.make is None and choice.absent is None
        for role in DRAFTERS[choice.spec.name].artifacts
        if role in used
    )
    words: dict[str, Any] = {}
    for role in KIND_OF_ROLE:
        words[role] = used.get(role) if alike else getattr(sources, role)
    past = sources.past
    tokens = None if past.tokens == HISTORY_TOKENS else past.tokens
    stored = {} if past.store else {"store": False}
    return {**words, "history": past.path, "history_tokens": tokens, **stored}


def given_words(
    function: Callable[..., Any], options: Mapping[str, Any], leave_out: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a function's options that are not its defaults, but for `leave_out` and sources."""
    parameters = signature(function).parameters
    return {
        name: value
        for name, value in options.items()
        if name not in {*leave_out, *SOURCES} and not _same_json(value, parameters[name].default)
    }


def _same_json(value: Any, default: Any) -> bool:
    with suppress(TypeError, ValueError):
        return json.dumps(value) == json.dumps(default)
    return False
