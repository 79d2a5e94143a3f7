"""Facts about a model from its config.json or GGUF header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, hub_errors
from ngramkit.basics.models import ModelRef, require_causal
from ngramkit.basics.untrusted import read_json
from ngramkit.budget.model_size import ModelSize, gguf_size, language_config, model_size
from ngramkit.budget.stored_bits import quantisation_of
from ngramkit.gguf.header import read_front, read_header
from ngramkit.gguf.model_folders import find_gguf

CONFIG = "config.json"
WEIGHTS = (".safetensors", ".bin")
# Instead of weights: an index of shards, checked on loading, or an adapter of another model.
NAMES_WEIGHT_FILES = (".index.json", "adapter_config.json")


@dataclass(frozen=True)
class ModelFacts:
    """Context in tokens, and number of layers; None: unknown."""

    context: int | None = None
    layers: int | None = None


def read_facts(model: str | ModelRef) -> ModelFacts:
    """Return a model's facts without asking the Hub.

    Raises InputError for a model that is not causal and for a folder without a model.
    """
    ref = ModelRef.of(model)
    if ref.is_gguf:
        values = read_front(find_gguf(ref))
        kind = values.get("general.architecture")
        found = values.get(f"{kind}.context_length"), values.get(f"{kind}.block_count")
    else:
        if Path(ref.source).is_dir():
            require_model(Path(ref.source))
        config = language_config(_read_config(ref))
        found = config.get("max_position_embeddings"), config.get("num_hidden_layers")
    return ModelFacts(*(each if type(each) is int and each > 0 else None for each in found))


def read_size(
    model: str | ModelRef, quantization: str | None = None, dtype: str | None = None
) -> ModelSize | None:
    """Return a model's size without asking the Hub, None if its config does not show it.

    `quantization`: an engine's option, which counts unless the model is quantised. `dtype`: the
    type in which an engine computes, by default the checkpoint's. Reads the whole header of a GGUF
    file. A folder needs no weights. Raises as `read_facts`.
    """
    ref = ModelRef.of(model)
    if ref.is_gguf:
        header = read_header(find_gguf(ref))
        return gguf_size(header.metadata, header.tensors)
    config = _read_config(ref)
    if quantization is not None and quantisation_of(config) is None:
        config["quantization_config"] = {"quant_method": quantization}
    return model_size(config, dtype)


def _read_config(ref: ModelRef) -> dict[str, Any]:
    folder = Path(ref.source)
    path = folder / CONFIG if folder.is_dir() else _cached_file(ref.source, ref.revision)
    if path is None or not path.exists():
        return {}
    config = read_json(path, error=InputError, hint="Download the model again.")
    config = config if isinstance(config, dict) else {}
    require_causal(config, ref.name)
    return config


def _cached_file(repository: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    with hub_errors(repository, "model"):
        path = try_to_load_from_cache(repository, CONFIG, revision=revision)
    return Path(path) if isinstance(path, str) else None


def require_model(folder: Path) -> None:
    names = {file.name for file in folder.iterdir()}
    if CONFIG not in names:
        raise InputError(f"cannot open {folder}: it has no {CONFIG}", "Check the path.")
    if not any(name.endswith(WEIGHTS + NAMES_WEIGHT_FILES) for name in names):
        raise InputError(
            f"cannot open {folder}: it has no {' or '.join(f'*{end}' for end in WEIGHTS)}",
            "Download the model again.",
        )
