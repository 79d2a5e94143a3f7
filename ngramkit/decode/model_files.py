"""Facts of a model from its files, before it is loaded: that it cannot be decoded with, its
context, its layers.

Read are config.json, of a folder or of the Hub's cache, and the front of a GGUF file. What they do
not tell is known when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, hub_errors
from ngramkit.basics.models import ModelRef
from ngramkit.basics.untrusted import read_json
from ngramkit.gguf.files import find_gguf
from ngramkit.gguf.header import read_front

CONFIG = "config.json"
WEIGHTS = (".safetensors", ".bin")
# A list of weights is judged when they are loaded; an adapter names the model that it changes.
NAMING = (".index.json", "adapter_config.json")


@dataclass(frozen=True)
class ModelFacts:
    """The most tokens that a model was made for, and its layers; None where it is not known."""

    context: int | None = None
    layers: int | None = None


def read_facts(model: str | ModelRef) -> ModelFacts:
    """Return what is known of a model before it is loaded; the Hub is not asked.

    Raises InputError for an encoder-decoder, and for a folder that holds no model.
    """
    ref = ModelRef.of(model)
    folder = Path(ref.source)
    if (gguf := find_gguf(ref)) is not None:
        front = read_front(gguf)
        kind = front.get("general.architecture")
        return _facts(front, f"{kind}.context_length", f"{kind}.block_count")
    if folder.is_dir():
        require_model(folder)
    path = folder / CONFIG if folder.is_dir() else _cached(ref.source, ref.revision)
    if path is None:
        return ModelFacts()
    config = read_json(path, error=InputError, hint="download the model again")
    config = config if isinstance(config, dict) else {}
    if config.get("is_encoder_decoder") is True:
        raise encoder_decoder(ref.name)
    text = config.get("text_config", config)
    text = text if isinstance(text, dict) else {}
    return _facts(text, "max_position_embeddings", "num_hidden_layers")


def _facts(values: Mapping[str, Any], *keys: str) -> ModelFacts:
    found = (values.get(key) for key in keys)
    return ModelFacts(*(value if type(value) is int and value > 0 else None for value in found))


def _cached(repository: str, revision: str | None) -> Path | None:
    """Return the config.json that the Hub's cache holds of a repository."""
    from huggingface_hub import try_to_load_from_cache

    with hub_errors(repository, "model"):
        path = try_to_load_from_cache(repository, CONFIG, revision=revision)
    return Path(path) if isinstance(path, str) else None


def require_model(folder: Path) -> None:
    """Raise InputError for a folder that holds no model."""
    names = {file.name for file in folder.iterdir()}
    if CONFIG not in names:
        raise InputError(f"{folder} holds no model: it has no {CONFIG}", "check the path")
    if not any(name.endswith(WEIGHTS + NAMING) for name in names):
        raise InputError(
            f"{folder} holds no weights, neither {' nor '.join(f'*{end}' for end in WEIGHTS)}",
            "download the model again",
        )


def encoder_decoder(name: str) -> InputError:
    """Return the error for a model that does not go on with its own text alone."""
    return InputError(f"{name} is an encoder-decoder", "use a decoder-only causal model")
