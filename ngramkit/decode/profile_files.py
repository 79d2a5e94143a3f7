"""Where profiles of passes are kept: a file in the user's cache folder for each model and machine.

It is named after the model and the first 8 hex digits of a sha256 over what decides the times: the
model's config, the device, the dtype, the number of threads and the engine.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.caches import cache_folder
from ngramkit.decode.device import device_facts

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel


def profile_path(model: LanguageModel, engine: str = "eager") -> Path:
    """Where the model's profile for this engine is kept."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", model.name).strip("-")
    return cache_folder("profiles") / f"{name}-{_digest(model.model, engine)}.json"


def profile_file(model: Any, engine: str = "eager") -> Path | None:
    """A transformers model's profile, whatever name it was calibrated under."""
    found = sorted(cache_folder("profiles").glob(f"*-{_digest(model, engine)}.json"))
    return found[0] if found else None


def _digest(model: Any, engine: str) -> str:
    config = model.config.to_dict()
    decides = {
        "config": {
            k: v for k, v in config.items() if k not in ("_name_or_path", "transformers_version")
        },
        "engine": engine,
        "attention": model.config._attn_implementation,
        **device_facts(model),
    }
    text = json.dumps(decides, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
