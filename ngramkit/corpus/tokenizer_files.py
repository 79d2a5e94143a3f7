"""The small files that make a model's tokenizer: in a folder, in the Hub's cache, or on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import InputError, hub_errors, reason
from ngramkit.gguf.files import find_gguf, tokenizer_folder
from ngramkit.models import resolve_model
from ngramkit.untrusted import parse_json, read_plain

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
NAMES = (
    TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json", "config.json", TEMPLATE,
)  # fmt: skip
MOST = 1 << 28  # bytes of one file; the largest tokenizers take an eighth of it
AGAIN = "download the model again"


@dataclass(frozen=True)
class TokenizerFiles:
    """Paths by name. `source` is a folder or a Hub id."""

    source: str
    paths: Mapping[str, Path]

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object of a file, {} where there is no such file.

        Raises InputError where it holds something else.
        """
        if name not in self.paths:
            return {}
        body = parse_json(self.text(name), str(self.paths[name]), hint=AGAIN)
        if not isinstance(body, dict):
            raise InputError(f"{self.paths[name]} is not a JSON object", AGAIN)
        return body

    def text(self, name: str) -> str:
        """Return the text of a file. Raises InputError as `raw`, and where it is not UTF-8."""
        try:
            return self.raw(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.paths[name]} cannot be read: {reason(error)}", AGAIN
            ) from error

    def raw(self, name: str) -> bytes:
        """Return the bytes of a file. Raises InputError where it cannot be read or is too large."""
        path = self.paths[name]
        try:
            return read_plain(path, MOST, error=InputError, hint=AGAIN)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {reason(error)}", AGAIN) from error


def find_files(model: str, revision: str | None = None) -> TokenizerFiles:
    """Find the files of a short name, a Hub id (at `revision`), a folder or a GGUF file.

    What the Hub's cache lacks is fetched. Raises InputError where there is no such model,
    NetworkError where the Hub cannot be reached and its cache holds nothing of the model.
    """
    gguf = find_gguf(model, revision)
    source = resolve_model(model, revision) if gguf is None else str(tokenizer_folder(gguf))
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetch(source, revision)
    return TokenizerFiles(source, {n: folder / n for n in NAMES if (folder / n).is_file()})


def _fetch(source: str, revision: str | None) -> Path:
    """Return the folder in the Hub's cache of the commit that the revision names."""
    from huggingface_hub import snapshot_download

    with hub_errors(source, "model"):
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(NAMES)))
