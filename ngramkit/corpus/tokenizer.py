"""Text to ids and back, and the fingerprint that says which ids they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.errors import InputError, NetworkError, NgramkitError
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.hub_errors import as_known, hub_errors
from ngramkit.models import resolve_model

# What decides ids: not the post-processor, the padding or the file's name.
DECISIVE = ("model", "added_tokens", "normalizer", "pre_tokenizer")


@dataclass(frozen=True)
class TextTokenizer:
    """A model's tokenizer. `backend` is a tokenizers.Tokenizer, `full` the transformers one."""

    record: TokenizerRecord
    backend: Any
    full: Any

    def encode(self, text: str) -> npt.NDArray[np.int32]:
        """int32[n], without special tokens."""
        ids = self.backend.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=False))


def load_tokenizer(model: str, revision: str | None = None) -> TextTokenizer:
    """The tokenizer of a short name, a Hub id or a folder; of a Hub id at `revision`.

    Raises InputError where there is none (or only a slow one), NetworkError without a network.
    """
    from transformers import AutoTokenizer

    source = resolve_model(model)
    cached_only = not Path(source).is_dir() and not _reachable(source)
    try:
        full = AutoTokenizer.from_pretrained(
            source, revision=revision, local_files_only=cached_only
        )
    except (OSError, ValueError, ImportError) as error:
        raise _not_loaded(model, source, error) from error
    backend = getattr(full, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer of {model} has no fast version (tokenizer.json)",
            "convert it with transformers first, or use another model",
        )
    vocabulary = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    record = TokenizerRecord(
        id=model, vocabulary=vocabulary, fingerprint=fingerprint(backend), eos=full.eos_token_id
    )
    return TextTokenizer(record, backend, full)


def fingerprint(backend: Any) -> str:
    """sha256 over the parts of a tokenizers.Tokenizer that decide ids, as canonical JSON."""
    body = json.loads(backend.to_str())
    decisive = {part: body.get(part) for part in DECISIVE}
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _reachable(source: str) -> bool:
    """Asks the Hub once for the model. transformers would ask for a minute, in many lines.

    Raises NetworkError or InputError where the Hub refuses, or is out of reach and nothing of the
    model is in its cache.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        with hub_errors(source, "model"):
            HfApi().model_info(source)
    except NetworkError:
        if not isinstance(try_to_load_from_cache(source, "tokenizer_config.json"), str):
            raise
        return False
    return True


def _not_loaded(model: str, source: str, error: Exception) -> NgramkitError:
    known = as_known(error, source, "model")
    return known or InputError(
        f"no tokenizer could be loaded from {source}",
        f"the model {model} must hold a tokenizer.json",
        option="model",
    )
