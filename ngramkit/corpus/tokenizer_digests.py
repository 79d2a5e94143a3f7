"""What tells tokenizers apart, kept in the user's cache once it is known.

To put into words which ids a tokenizer gives takes a quarter of a second at 49,152 tokens and a
second at 152,000, at the start of every command. A file's name says of which tokenizer it speaks,
whatever folder that came from; where none can be kept, it is found out each time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.caches import private_folder
from ngramkit.errors import ArtifactError
from ngramkit.formats.json_text import read_json, whole_number
from ngramkit.formats.manifest import SHA256
from ngramkit.formats.probes import FORM, PROBES, encodes
from ngramkit.formats.writer import keep_text

# What decides ids: not the post-processor, the padding or the file's name.
DECISIVE = ("model", "added_tokens", "normalizer", "pre_tokenizer")
MOST = 256  # tokenizers that are kept; the oldest go first
LARGEST = 1 << 31

log = logging.getLogger(__name__)


class Digests(NamedTuple):
    vocabulary: int  # the largest id and one
    fingerprint: str  # sha256 over the parts that decide ids
    encodes: str  # see ngramkit.formats.probes


def fingerprint(backend: Any) -> str:
    """sha256 over the parts of a tokenizers.Tokenizer that decide ids, as canonical JSON."""
    body = json.loads(backend.to_str())
    decisive = {part: body.get(part) for part in DECISIVE}
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def found_out(backend: Any) -> Digests:
    """Those of a tokenizers.Tokenizer, whatever is kept."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    return Digests(
        max(vocabulary.values()) + 1,
        fingerprint(backend),
        encodes(vocabulary, lambda text: backend.encode(text, add_special_tokens=False).ids),
    )


def digests(backend: Any, find: Callable[[Any], Digests] = found_out) -> Digests:
    """Those of a tokenizers.Tokenizer: what is kept of it, else what `find` finds, kept from now
    on."""
    folder = private_folder("tokenizers")
    if folder is None:
        return find(backend)
    file = folder / f"{_name(backend)}.json"
    kept = _read(file)
    if kept is not None:
        return kept
    found = find(backend)
    keep_text(file, json.dumps(found._asdict()), MOST)
    return found


def _name(backend: Any) -> str:
    """sha256 over all that decides what is found: the tokenizer, what reads it, what is asked."""
    import tokenizers

    asked = [tokenizers.__version__, backend.encode_special_tokens, DECISIVE, PROBES]
    return hashlib.sha256((json.dumps(asked) + backend.to_str()).encode()).hexdigest()


def _read(file: Path) -> Digests | None:
    """None for what is not there, or not as it was written."""
    with suppress(FileNotFoundError, ArtifactError, TypeError):
        kept = Digests(**read_json(file))
        texts = isinstance(kept.fingerprint, str) and isinstance(kept.encodes, str)
        if (
            whole_number(kept.vocabulary, 1, LARGEST)
            and texts
            and SHA256.fullmatch(kept.fingerprint)
            and FORM.fullmatch(kept.encodes)
        ):
            return kept
    return None
