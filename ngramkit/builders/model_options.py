"""What may be asked of the model-table builders; told before a model is loaded in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import UsageError, require_between
from ngramkit.models import HUB_IDS, is_gguf, resolve_model

PREFIXES = ("none", "bos")
EXTENSIONS = ("bigram", "model")
MOST_WIDTH = 1024  # tokens of a draft
RULES = ("distance", "inner-product")


def require_bigram_options(k: int, width: int, prefix: str, extend: str) -> None:
    """Raises UsageError for parameters that make no sense with any model."""
    require_between("k", k, 1)
    require_between("width", width, 1, MOST_WIDTH)
    _require_known("prefix", prefix, PREFIXES)
    _require_known("extend", extend, EXTENSIONS)


def require_unigram_options(k: int, rule: str) -> None:
    """Raises UsageError for parameters that make no sense with any model."""
    require_between("k", k, 1)
    _require_known("rule", rule, RULES)


def require_k(k: int, tokens: int) -> None:
    """Raises UsageError where there are not even `k` tokens."""
    require_between("k", k, 1, tokens, "the vocabulary has no more tokens")


def model_parameters(model: Any, tokenizer: TextTokenizer) -> dict[str, Any]:
    """Which model, for the manifest: the pinned id of a short name, and its commit if known."""
    name = tokenizer.record.id
    revision = getattr(model.config, "_commit_hash", None)
    return {
        "model": HUB_IDS.get(name, name),
        **({"revision": revision} if revision else {}),
        **({"weights": Path(resolve_model(name)).name} if is_gguf(name) else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def _require_known(name: str, chosen: str, known: tuple[str, ...]) -> None:
    if chosen not in known:
        raise UsageError(f"{name} must be {' or '.join(known)}, is {chosen!r}", option=name)
