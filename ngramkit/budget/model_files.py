"""Facts about a model from its config.json or GGUF header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, hub_errors
from ngramkit.basics.models import ModelRef
from ngramkit.basics.untrusted import read_json
from ngramkit.budget.model_size import ModelSize, gguf_size, model_size
from ngramkit.gguf.header import read_front
from ngramkit.gguf.model_folders import find_gguf

CONFIG = "config.json"
WEIGHTS = (".safetensors", ".bin")
# Instead of weights: an index of shards, checked on loading, or an adapter of another model.
NAMES_WEIGHT_FILES = (".index.json", "adapter_config.json")


@dataclass(frozen=True)
class ModelFacts:
    """Context in tokens, number of layers, and weights; None: unknown."""

    context: int | None = None
    layers: int | None = None
    size: ModelSize | None = None


def read_facts(model: str | ModelRef) -> ModelFacts:
    """Return a model's facts without asking the Hub.

    Raises InputError for an encoder-decoder and for a folder without a model.
    """
    ref = ModelRef.of(model)
    folder = Path(ref.source)
    if (gguf := find_gguf(ref)) is not None:
        front = read_front(gguf)
        kind = front.get("general.architecture")
        return _model_facts(
            front, f"{kind}.context_length", f"{kind}.block_count", gguf_size(front)
        )
    if folder.is_dir():
        require_model(folder)
    path = folder / CONFIG if folder.is_dir() else _cached_file(ref.source, ref.revision)
    if path is None:
        return ModelFacts()
    config = read_json(path, error=InputError, hint="download the model again")
    config = config if isinstance(config, dict) else {}
    if config.get("is_encoder_decoder") is True:
        raise encoder_decoder(ref.name)
    text = config.get("text_config", config)
    text = text if isinstance(text, dict) else {}
    return _model_facts(text, "max_position_embeddings", "num_hidden_layers", model_size(config))


def _model_facts(
    values: Mapping[str, Any], context: str, layers: str, size: ModelSize | None
) -> ModelFacts:
    tokens, blocks = (
        value if type(value) is int and value > 0 else None
        for value in (values.get(context), values.get(layers))
    )
    return ModelFacts(tokens, blocks, size)


def _cached_file(repository: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    with hub_errors(repository, "model"):
        path = try_to_load_from_cache(repository, CONFIG, revision=revision)
    return Path(path) if isinstance(path, str) else None


def require_model(folder: Path) -> None:
    names = {file.name for file in folder.iterdir()}
    if CONFIG not in names:
        raise InputError(f"cannot open {folder}: it has no {CONFIG}", "check the path")
    if not any(name.endswith(WEIGHTS + NAMES_WEIGHT_FILES) for name in names):
        raise InputError(
            f"cannot open {folder}: it has no {' or '.join(f'*{end}' for end in WEIGHTS)}",
            "download the model again",
        )


def encoder_decoder(name: str) -> InputError:
    return InputError(
        f"cannot use {name}: it is an encoder-decoder", "use a decoder-only causal model"
    )
