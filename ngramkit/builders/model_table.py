"""Option checks, plan and weights' fingerprint for the builders of model tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.models import HUB_IDS, is_gguf, require_causal, resolve_model
from ngramkit.basics.results import Result
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.safetensors import Array

if TYPE_CHECKING:
    import torch

MAX_WIDTH = 1024  # tokens of a draft
DEFAULT_K = 100  # likeliest tokens in a row of a table
CHECKSUM_ELEMENTS = 1 << 22  # elements summed at a time

Table = TypeVar("Table", bound=Artifact)


def require_bigram_options(k: int, width: int, prefix: str, extend: str) -> None:
    require_between("k", k, 1)
    require_between("width", width, 1, MAX_WIDTH)
    _require_known("prefix", prefix, "none", "bos")
    _require_known("extend", extend, "bigram", "model")


def require_unigram_options(k: int, rule: str) -> None:
    require_between("k", k, 1)
    _require_known("rule", rule, "distance", "inner-product")


def require_rows(k: int, tokenizer: TextTokenizer, prefix: str = "none") -> Array:
    """Return `absent_ids`. Raises UsageError if `k` is too large or BOS is missing."""
    absent = absent_ids(tokenizer)
    known = tokenizer.record.vocabulary - len(absent)
    require_between("k", k, 1, known, "Lower k: the vocabulary has no more tokens.")
    if prefix == "bos" and tokenizer.bos is None:
        raise UsageError(
            f"cannot use prefix=bos: {tokenizer.record.id} has no BOS token",
            "Use prefix=none.",
            option="prefix",
        )
    return absent


def table_plan(
    kind: str, model: Any, tokenizer: TextTokenizer, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that decides a table's bytes."""
    name, revision = tokenizer.record.id, getattr(model.config, "_commit_hash", None)
    parameters = {
        "model": HUB_IDS.get(name, name),
        **({"revision": revision} if revision else {}),
        **({"weights": Path(resolve_model(name)).name} if is_gguf(name) else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
        **options,
    }
    return {
        "kind": kind,
        "parameters": parameters,
        "tokenizer": tokenizer.record.fingerprint,
        "weights": weights_fingerprint(model),
    }


def _require_known(name: str, chosen: str, *known: str) -> None:
    if chosen not in known:
        raise UsageError(f"{name} must be {' or '.join(known)}, got {chosen!r}", option=name)


@dataclass(frozen=True)
class BuiltTable(Result, Generic[Table]):
    """A table read off a model."""

    table: Table
    seconds: float | None  # of building, without loading; None if the table existed already


def require_usable(model: Any, tokenizer: TextTokenizer) -> None:
    name, config = tokenizer.record.id, model.config.get_text_config()
    require_causal(model.config.to_dict(), name)
    if model.get_output_embeddings() is None:
        raise InputError(
            f"cannot use {name}: it has no output embedding ({type(model).__name__})",
            "Load it as a causal LM, with its language-modelling head.",
        )
    if model.device.type == "meta":
        raise InputError(
            f"cannot load {name}: it does not fit into memory",
            "Use more devices or dtype=bfloat16.",
            option="dtype",
        )
    if tokenizer.record.vocabulary > config.vocab_size:
        raise InputError(
            f"the tokenizer of {name} must have at most {config.vocab_size:,} ids, those of the "
            f"model, got {tokenizer.record.vocabulary:,}",
            "Use the model's own tokenizer, or resize the model's embeddings.",
        )


def weights_fingerprint(model: Any) -> str:
    """Return a sha256 over every parameter's name, shape, dtype and checksum."""
    import torch

    digest = hashlib.sha256()
    with torch.inference_mode():
        for name, parameter in sorted(model.named_parameters(), key=itemgetter(0)):
            shape = tuple(parameter.shape)
            digest.update(
                f"{name} {shape} {parameter.dtype} {_parameter_checksum(parameter)}\n".encode()
            )
    return digest.hexdigest()


def _parameter_checksum(parameter: torch.Tensor) -> int:
    """Return the sum of (2 i + 1) times the bits of element i, modulo 2**64."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = parameter.detach().contiguous().view(-1).view(whole[parameter.element_size()])
    total = 0
    for begin in range(0, len(bits), CHECKSUM_ELEMENTS):
        part = bits[begin : begin + CHECKSUM_ELEMENTS].long()
        at = torch.arange(begin, begin + len(part), device=part.device)
        total += int((part * (2 * at + 1)).sum())
    return total & 0xFFFFFFFFFFFFFFFF


def absent_ids(tokenizer: TextTokenizer) -> Array:
    """Return the ids that have no token, ascending: int64[m]."""
    present = np.zeros(tokenizer.record.vocabulary, bool)
    present[list(tokenizer.backend.get_vocab(with_added_tokens=True).values())] = True
    return np.flatnonzero(~present)
