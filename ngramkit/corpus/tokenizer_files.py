"""The small files that make a model's tokenizer: in a folder, in the Hub's cache, or on the Hub.

Reads JSON and text; knows nothing of what a tokenizer does with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import InputError, NetworkError, reason
from ngramkit.formats.files import read_plain
from ngramkit.formats.json_text import parse_json
from ngramkit.gguf.source import find_gguf
from ngramkit.hub_errors import hub_errors
from ngramkit.models import resolve_model

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SPECIAL = "special_tokens_map.json"
ADDED = "added_tokens.json"
MODEL = "config.json"
TEMPLATE = "chat_template.jinja"
NAMES = (TOKENIZER, CONFIG, SPECIAL, ADDED, MODEL, TEMPLATE)
MOST = 1 << 28  # bytes of one file; the largest tokenizers take an eighth of it


@dataclass(frozen=True)
class TokenizerFiles:
    """`source` is a folder or a Hub id; `offline` where the Hub could not be asked."""

    source: str
    paths: Mapping[str, Path]
    offline: bool = False

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object; empty where there is no such file. Raises InputError where it is none."""
        if name not in self.paths:
            return {}
        body = parse_json(self.text(name), str(self.paths[name]), hint="download the model again")
        if not isinstance(body, dict):
            raise InputError(f"{self.paths[name]} is not a JSON object", "download the model again")
        return body

    def text(self, name: str) -> str:
        """Raises InputError where the file cannot be read, is not UTF-8 or is absurdly large."""
        path, hint = self.paths[name], "download the model again"
        try:
            return read_plain(path, MOST, error=InputError, hint=hint).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {reason(error)}", hint) from error


def find_files(model: str, revision: str | None = None) -> TokenizerFiles:
    """Those of a short name, a Hub id (at `revision`), a folder or a GGUF file; what the cache
    lacks is fetched.

    Raises InputError where there is no such model, NetworkError where the Hub cannot be reached
    and its cache holds nothing of the model.
    """
    gguf = find_gguf(model, revision)
    source = resolve_model(model, revision) if gguf is None else _of_gguf(gguf)
    folder = Path(source)
    if folder.is_dir():
        return TokenizerFiles(source, {n: folder / n for n in NAMES if (folder / n).is_file()})
    try:
        return TokenizerFiles(source, _fetched(source, revision))
    except NetworkError:
        cached = _cached(source, revision)
        if not cached:
            raise
        return TokenizerFiles(source, cached, offline=True)


def _of_gguf(file: Path) -> str:
    from ngramkit.gguf.folder import tokenizer_folder  # takes longer to import than most to read

    return str(tokenizer_folder(file))


def _fetched(source: str, revision: str | None) -> dict[str, Path]:
    """One question about the repository, then what the cache does not hold of that commit."""
    from huggingface_hub import HfApi, hf_hub_download

    with hub_errors(source, "model"):
        info = HfApi().model_info(source, revision=revision)
        there = {file.rfilename for file in info.siblings or ()}
        found: dict[str, Path] = {}
        for name in NAMES:
            if name in there:
                # The first notes where the branch stands; the others are of that commit.
                commit = next(iter(found.values())).parent.name if found else revision
                found[name] = Path(hf_hub_download(source, name, revision=commit))
        return found


def _cached(source: str, revision: str | None) -> dict[str, Path]:
    from huggingface_hub import try_to_load_from_cache

    found = {name: try_to_load_from_cache(source, name, revision=revision) for name in NAMES}
    return {name: Path(path) for name, path in found.items() if isinstance(path, str)}
