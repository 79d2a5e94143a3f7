"""Profiles and learnt costs of passes, kept in the user's cache folder."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ngramkit.basics.cache import TextCache, cache_folder
from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.budget.costs import MAX_NODES, PassCosts
from ngramkit.budget.model_cost import ModelCost, free_tokens
from ngramkit.budget.model_size import model_size
from ngramkit.budget.profile import Profile
from ngramkit.decode.load import LanguageModel, digest_of, software_facts

KEPT_AFTER = 32  # passes between writes of learnt costs
COSTS = TextCache("costs", 256)
_COSTS: WeakKeyDictionary[Any, dict[tuple[Any, ...], PassCosts]] = WeakKeyDictionary()


def profile_path(model: LanguageModel) -> Path:
    name = re.sub(r"[^A-Za-z0-9.]+", "-", model.name).strip("-")
    return cache_folder("profiles") / f"{name}-{digest_of(model.model)[:8]}.json"


def profile_file(model: Any) -> Path | None:
    """Return a transformers model's profile, calibrated under any name."""
    files = sorted(cache_folder("profiles").glob(f"*-{digest_of(model)[:8]}.json"))
    return files[0] if files else None


def learnt_costs(model: Any, verify: str, profile: Profile | None = None) -> PassCosts:
    """Return the pass costs learnt in this process, by the profile, or on this machine."""
    by_key = _COSTS.setdefault(model, {})
    key = verify, profile is not None, model.device, model.dtype
    if key not in by_key:
        rows = MAX_NODES if verify == "tree" else 4 * MAX_NODES  # rows of a batch share nothing
        size = model_size(model.config.to_dict())
        costs = by_key[key] = PassCosts(ModelCost(free_tokens(model.device.type), size).curve(rows))
        if profile is not None:
            costs.recall(profile.summary())
        elif text := COSTS.get(_costs_key(model, verify)):
            with suppress(InputError):  # a damaged file is ignored
                costs.recall(parse_json(text, "learnt costs"))
    return by_key[key]


def keep_costs(model: Any, verify: str, costs: PassCosts) -> None:
    """Write the costs after every KEPT_AFTER passes; ignore errors."""
    if costs.learnt - costs.kept < KEPT_AFTER:
        return
    costs.kept = costs.learnt
    with costs.lock:
        summary = costs.summary()
    if summary:
        COSTS.put(_costs_key(model, verify), json.dumps(summary) + "\n")


def _costs_key(model: Any, verify: str) -> str:
    return f"{digest_of(model, **software_facts())[:8]}-{verify}.json"
