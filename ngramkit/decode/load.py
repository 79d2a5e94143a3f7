"""Loading of Hugging Face causal language models."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ngramkit.basics.errors import (
    InputError,
    NgramkitError,
    UsageError,
    first_line,
    translate_hub_error,
)
from ngramkit.basics.limits import FILE_NAME
from ngramkit.basics.models import ModelRef, require_causal
from ngramkit.basics.progress import show_downloads
from ngramkit.basics.untrusted import read_json
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer, needs_code
from ngramkit.decode.gguf_weights import model_folder
from ngramkit.decode.packed_weights import is_packed, pack_linears
from ngramkit.decode.placement import require_placement
from ngramkit.gguf.model_folders import find_gguf

# Minimum probabilities by device: a draft node costs almost nothing on a GPU.
MIN_SCORES = {"cpu": 0.1, "cuda": 0.005}
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class LanguageModel:
    """A transformers causal LM in evaluation mode, with its tokenizer."""

    name: str
    model: Any
    tokenizer: TextTokenizer

    @property
    def eos(self) -> frozenset[int]:
        """The ids that end an output."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            ids = self.tokenizer.record.eos
        if ids is None:
            return frozenset()
        return frozenset(ids if isinstance(ids, list) else [ids])

    @property
    def context(self) -> int | None:
        """The maximum length of prompt and output in tokens; None: unknown."""
        return context_of(self.model)

    @property
    def vocabulary(self) -> int:
        """The number of embeddings."""
        return len(self.model.get_input_embeddings().weight)

    @property
    def least_score(self) -> float:
        """The minimum probability of a draft node worth verifying."""
        return MIN_SCORES.get(self.model.device.type, MIN_SCORES["cuda"])


def context_of(model: Any) -> int | None:
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if limit is None else int(limit)


def load_model(
    name: str | Path,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> LanguageModel:
    """Load a model by a short name, a Hub id, a folder, PATH.gguf or hf:ID:FILE.gguf.

    A Hub id may be ID@REVISION. `device` auto: CUDA if available, else the CPU; `dtype` auto:
    bfloat16 on CUDA, float32 on the CPU, a quantised checkpoint's own types. `device_map` (auto,
    balanced, sequential) spreads the layers over devices, in place of `device`. On the CPU, linear
    layers get packed weights if these are faster.

    A model's own Python code runs only with `trust_remote_code`; of pickles only tensors are read.

    Raises UsageError for an unknown device, dtype or map, InputError for a model that is missing,
    damaged, not a decoder-only causal LM or in need of its own code, NetworkError without a
    network.
    """
    require_placement(device, dtype, device_map)
    model = ModelRef.of(name, revision)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code)
    return load_weights(
        model, tokenizer, device=device, dtype=dtype, device_map=device_map,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip


def load_weights(
    ref: ModelRef,
    tokenizer: TextTokenizer,
    *,
    device: str,
    dtype: str,
    device_map: str | None,
    trust_remote_code: bool,
) -> LanguageModel:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    show_downloads()
    name, revision, where = ref.name, ref.revision, choose_device(device)
    source = str(model_folder(find_gguf(ref))) if ref.is_gguf else ref.source
    method = None
    require_own_weights(Path(source))
    try:
        config = AutoConfig.from_pretrained(
            source, revision=revision, trust_remote_code=trust_remote_code
        )
        if not trust_remote_code:
            require_no_kernels(config, name)
        require_causal(config.to_dict(), name)
        method = quantisation_method(config)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source,
            revision=revision,
            trust_remote_code=trust_remote_code,
            weights_only=True,
            **_options_of_weights(device_map, where, dtype, method),
        )
    except (NgramkitError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the checkpoint is untrusted
        raise _not_loaded(name, source, method, error) from error
    if method and not hasattr(model, "is_quantized"):  # transformers only warns
        raise _not_loaded(
            name, source, method, ValueError("transformers does not support that method")
        )
    # Quantised weights must not be moved or cast.
    placed = (model if device_map or method else model.to(where)).eval()
    if not (device_map or method) and where.type == "cpu":
        pack_linears(placed)
        _share_keys()
    return LanguageModel(name, placed, tokenizer)


def _share_keys() -> None:
    """Let attention read shared keys and values without copies, in the whole process.

    Since torch 2.9 the CPU kernel gives the same bits; other devices may not.
    """
    if torch.__version__ >= "2.9" and not torch.accelerator.is_available():
        os.environ.setdefault("TRANSFORMERS_SDPA_FORCE_GQA", "1")


def require_own_weights(folder: Path) -> None:
    """Raise InputError if an index of weights names files outside the folder."""
    for path in folder.glob("*.index.json"):
        body = read_json(path, error=InputError, hint="Download the model again.")
        listed = body.get("weight_map") if isinstance(body, dict) else None
        names = listed.values() if isinstance(listed, dict) else [None]
        if not all(isinstance(name, str) and FILE_NAME.fullmatch(name) for name in names):
            raise InputError(f"{path} must name files of its folder", "Use another model.")


def require_no_kernels(config: Any, name: str) -> None:
    """Raise InputError if the config names a repository of attention kernels.

    transformers would run its code if the package `kernels` is installed.
    """
    parts = [config, *(getattr(config, key, None) for key in config.sub_configs)]
    for part in parts:
        repository = getattr(part, "_attn_implementation", None)
        if isinstance(repository, str) and "/" in repository:
            raise InputError(
                f"cannot load {name}: it needs attention kernels of the repository "
                f"{repository:.80}, and foreign code is not run",
                "Remove them from its config.json, or give trust_remote_code=True if you trust "
                "that code.",
                option="trust_remote_code",
            )


def quantisation_method(config: Any) -> str | None:
    """Return a checkpoint's quantisation method (gptq, awq, ...), if any."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    method = settings.get("quant_method") if isinstance(settings, dict) else settings.quant_method
    return str(getattr(method, "value", method) or "quantised")


def _options_of_weights(
    device_map: str | None, where: torch.device, dtype: str, method: str | None
) -> dict[str, Any]:
    """Return the options of `from_pretrained` for the place and the type of the weights."""
    if dtype == "auto" and method is None:
        dtype = "float32" if where.type == "cpu" else "bfloat16"
    options: dict[str, Any] = {"dtype": dtype if dtype == "auto" else getattr(torch, dtype)}
    if device_map is not None:
        options["device_map"] = device_map
    elif method is not None and where.type != "cpu":
        options["device_map"] = {"": where}
    return options


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"no such device: {name}", "Use device=cpu.", option="device")
    return device


def _not_loaded(name: str, source: str, method: str | None, error: Exception) -> NgramkitError:
    if method:
        hub_error = (
            translate_hub_error(error, name, "model") if isinstance(error, OSError) else None
        )
        return hub_error or InputError(
            f"cannot load {name}, which is quantised ({method}): {first_line(error)}",
            "Install the package that this names, or use a checkpoint that is not quantised.",
        )
    known_error = translate_hub_error(error, source, "model") or needs_code(error, name)
    if known_error is not None:
        return known_error
    if isinstance(error, UnpicklingError):
        return InputError(
            f"cannot load {name}: its weights are a pickle that would run code",
            "Use a checkpoint in safetensors.",
        )
    return InputError(f"cannot load {source}: {first_line(error)}", f"Check the model {name}.")


def attention_of(model: Any) -> str | None:
    """Return the name of the attention function that reads text."""
    name: str | None = model.config.get_text_config()._attn_implementation
    return name


def digest_of(model: Any, **more: Any) -> str:
    """Return 32 hex digits of what decides a model's computation, and of `more`, JSON."""
    config = {
        key: value
        for key, value in model.config.to_dict().items()
        if key not in ("_name_or_path", "transformers_version")
    }
    decides = {"config": config, "attention": attention_of(model), **device_facts(model), **more}
    text = json.dumps(decides, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def device_facts(model: Any) -> dict[str, str]:
    device, dtype = model.device, str(model.dtype).removeprefix("torch.")
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device), "dtype": dtype}
    how = ", packed weights" if is_packed(model) else ""
    return {"device": f"{device.type}, {torch.get_num_threads()} threads{how}", "dtype": dtype}


def software_facts() -> dict[str, str]:
    facts = {name: version(name) for name in ("transformers", "torch", "ngramkit")}
    if torch.cuda.is_available():
        facts["cuda"] = str(torch.version.cuda)
    if NVIDIA_DRIVER.is_file():
        facts["driver"] = NVIDIA_DRIVER.read_text(encoding="utf-8").partition("\n")[0]
    return facts
