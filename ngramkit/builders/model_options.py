"""What may be asked of the model-table builders; told before a model is loaded in vain."""

from __future__ import annotations

from typing import Any

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import UsageError
from ngramkit.models import HUB_IDS

PREFIXES = ("none", "bos")
EXTENSIONS = ("bigram", "model")
RULES = ("distance", "inner-product")


def require_bigram_options(k: int, width: int, prefix: str, extend: str) -> None:
    """Raises UsageError for parameters that make no sense with any model."""
    _require_positive("k", k)
    _require_positive("width", width)
    _require_known("prefix", prefix, PREFIXES)
    _require_known("extend", extend, EXTENSIONS)


def require_unigram_options(k: int, rule: str) -> None:
    """Raises UsageError for parameters that make no sense with any model."""
    _require_positive("k", k)
    _require_known("rule", rule, RULES)


def require_k(k: int, tokens: int) -> None:
    """Raises UsageError where there are not even `k` tokens."""
    if k > tokens:
        raise UsageError(
            f"--k {k:,} is above the {tokens:,} tokens of the vocabulary", f"at most {tokens}"
        )


def model_parameters(model: Any, tokenizer: TextTokenizer) -> dict[str, Any]:
    """Which model, for the manifest: the pinned id of a short name, and its commit if known."""
    name = tokenizer.record.id
    revision = getattr(model.config, "_commit_hash", None)
    return {
        "model": HUB_IDS.get(name, name),
        **({"revision": revision} if revision else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"--{name} is {value}", "choose at least 1")


def _require_known(name: str, chosen: str, known: tuple[str, ...]) -> None:
    if chosen not in known:
        raise UsageError(f"--{name} {chosen!r} is not known", f"choose {' or '.join(known)}")
