"""Whether an artifact's ids mean what they mean to an engine's model, by the model's tokenizer.

A wrong tokenizer costs speed, never correctness, and is silent; so it is refused. Compared is what
the two encode (formats.probes), not what they are called. Where the engine gives no tokenizer, or
the artifact is of an older format, how many ids there are is all that can be compared.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ngramkit.errors import ArtifactError
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.probes import difference, encodes, first_difference

LOG = logging.getLogger("ngramkit")
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Built:
    """An artifact, and the tokenizer that it was built for."""

    path: str
    tokenizer: TokenizerRecord


def require_same(built: Sequence[Built], tokenizer: Any) -> None:
    """`tokenizer`: transformers' (a fast one), or a function from text to ids without BOS; None or
    any other where the engine gives no such.

    Raises ArtifactError, naming a text that the two encode differently. What could not be compared
    is said in the log.
    """
    if not built:
        return
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None and not inspect.isroutine(tokenizer):
        LOG.warning(
            "the engine gives no tokenizer to compare: of %s only the number of ids was",
            ", ".join(each.path for each in built),
        )
        return
    for each in built:
        known = each.tokenizer.encodes
        if known is None:
            LOG.warning("%s is of an older format: only its number of ids was compared", each.path)
            continue
        encode: Encode = tokenizer if backend is None else partial(_encoded, backend)
        text = first_difference(known, encode)
        if text is not None:
            raise ArtifactError(
                f"{each.path} was built for the tokenizer of {each.tokenizer.id}; that of the "
                f"engine's model encodes {text!r} differently",
                "build it with the model's own tokenizer",
            )
        if backend is not None:
            said = difference(known, encodes(backend.get_vocab(with_added_tokens=True), encode))
            if said:  # as where tokens were added
                LOG.warning("%s and the engine's model: %s", each.path, said)


def _encoded(backend: Any, text: str) -> Sequence[int]:
    ids: Sequence[int] = backend.encode(text, add_special_tokens=False).ids
    return ids


def tokenizer_of(name: str, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """A Hub id's or folder's tokenizer as the engine's own transformers loads it; None where it
    cannot, said in the log. Code that it brings is run only where the engine was told to trust
    it."""
    try:
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(
            name, trust_remote_code=trust_remote_code, **options
        )
    except Exception as error:  # whatever a tokenizer's own code raises
        LOG.warning("the tokenizer %s cannot be loaded: %s", name, error)
        return None
