"""Tokenizers of models, and their record.

transformers converts a model's tokenizer once; the result is cached.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Tokenizer

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import (
    BadRecordError,
    InputError,
    UsageError,
    hub_errors,
    reason,
    translate_hub_error,
)
from ngramkit.basics.limits import LIMITS, SHA256
from ngramkit.basics.machine import version_of
from ngramkit.basics.models import ModelRef, embedded_model
from ngramkit.basics.terminal_text import REPLACEMENT
from ngramkit.basics.untrusted import parse_json, read_plain, whole_number
from ngramkit.formats.tokenizer_record import (
    DECISIVE_PARTS,
    FINGERPRINT_FORM,
    PROBE_TEXTS,
    TokenizerRecord,
    encode_probes,
    tokenizer_fingerprint,
)
from ngramkit.gguf.model_folders import find_gguf, tokenizer_folder

if TYPE_CHECKING:
    from ngramkit.formats.artifact import Artifact

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
NAMES = (
    TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json", "config.json", TEMPLATE,
)  # fmt: skip
SLOW_TOKENIZER = re.compile(r"vocab|merges|tekken|\.(model|spm|tiktoken|tokenizer|gguf)$")  # files
MAX_FILE_BYTES = 1 << 28  # the largest tokenizers take an eighth of it
TRY_AGAIN = "Download the model again."
TOKENIZER_CACHE = TextCache("tokenizers", 256, 1 << 29)
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # a space in SentencePiece's tokens
CACHE_VERSION = 2  # version of a cache entry
PANIC = "PanicException"  # pyo3's, for Rust panics; a BaseException that cannot be imported
log = logging.getLogger(__name__)


class Digests(NamedTuple):
    vocabulary: int  # the largest id + 1
    fingerprint: str  # sha256 of the parts that decide ids
    encodes: str  # see ngramkit.formats.tokenizer_record


class Loaded(NamedTuple):
    backend: Any  # a tokenizers.Tokenizer
    special: dict[str, str]  # {"eos_token": "</s>"} and so on
    digests: Digests


# The embedded model's tokenizer by the text of its tokenizer.json: parsing takes 15 ms.
EMBEDDED: dict[str, Loaded] = {}


@dataclass(frozen=True, repr=False)
class TextTokenizer:
    """A model's tokenizer.

    `backend` is a tokenizers.Tokenizer; `special` maps names such as "eos_token" to texts.
    """

    record: TokenizerRecord
    backend: Any
    special: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None

    def __repr__(self) -> str:
        return f"<TextTokenizer {self.record.id}, {self.record.vocabulary:,} tokens>"

    def encode_prompt(self, text: str) -> npt.NDArray[np.int32]:
        """Return ids, int32[n], with the model's special tokens. Raises as `encode`."""
        return self.encode(text, special=True)

    def encode(self, text: str, *, special: bool = False) -> npt.NDArray[np.int32]:
        """Return ids, int32[n], by default without special tokens.

        Raises InputError for invalid text.
        """
        try:
            ids = self.backend.encode(text, add_special_tokens=special).ids
        except (TypeError, UnicodeEncodeError):
            # A lone surrogate, from invalid bytes in a terminal or an incomplete pair in JSON.
            wanted = "valid Unicode" if isinstance(text, str) else "a string"
            raise BadRecordError(f"text must be {wanted}, got {text!a:.60}", "Use UTF-8.") from None
        except BaseException as error:
            refuse_fault(error, self.record.id)
            raise
        if special and max(ids, default=0) >= self.record.vocabulary:
            raise InputError(
                f"cannot use the tokenizer of {self.record.id}: it adds an id outside its "
                "vocabulary",
                "Download the model again.",
            )
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | npt.NDArray[Any], *, special: bool = True) -> str:
        try:
            return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=not special))
        except BaseException as error:
            refuse_fault(error, self.record.id)
            raise

    def decode_answer(self, ids: Sequence[int] | npt.NDArray[Any], *, special: bool = True) -> str:
        """Return the text of ids that follow a prompt.

        `decode` takes them for the beginning of a text, where SentencePiece drops a space.
        """
        prompt = self.encode("a")
        before, whole = self.decode(prompt), self.decode([*prompt, *ids], special=special)
        return whole.removeprefix(before)

    def shown(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; bytes of incomplete characters are \\xNN."""
        text = self.decode(ids)
        raw = self.raw(ids) if REPLACEMENT in text else None
        return text if raw is None else raw.decode("utf-8", "backslashreplace")

    def raw(self, ids: Sequence[int]) -> bytes | None:
        """Return the UTF-8 bytes of `ids`, which may end inside a character; None if unknown."""
        if not self._byte_of_letter and not self.byte_of_token:
            return None
        return b"".join(map(self._raw, ids))

    def _raw(self, token: int) -> bytes:
        if token in self.byte_of_token:
            return bytes([self.byte_of_token[token]])
        name = self.backend.id_to_token(token) or ""
        if self._byte_of_letter:
            letters = [self._byte_of_letter.get(letter) for letter in name]
            known = [byte for byte in letters if byte is not None]
            return bytes(known) if len(known) == len(letters) else name.encode()  # a special token
        return str(name).replace(SPACE, " ").encode()

    @cached_property
    def byte_of_token(self) -> dict[int, int]:
        """Byte-fallback token -> byte."""
        return byte_tokens(self.backend)

    @cached_property
    def _byte_of_letter(self) -> dict[str, int]:
        """Letter -> byte of a byte-level vocabulary, {} for others."""
        space = self.backend.token_to_id("Ġ")
        return byte_letters() if space is not None and self.decode([space]) == " " else {}

    @property
    def eos_token(self) -> str | None:
        return self.special.get("eos_token")

    @property
    def bos(self) -> int | None:
        token = self.special.get("bos_token")
        return None if token is None else self.backend.token_to_id(token)

    @property
    def adds_bos(self) -> bool:
        return self.bos is not None and self.encode_prompt("a")[:1].tolist() == [self.bos]


def byte_tokens(backend: Any) -> dict[int, int]:
    """Return byte-fallback token -> byte."""
    ids = {backend.token_to_id(f"<0x{byte:02X}>"): byte for byte in range(256)}
    letter = backend.token_to_id("<0x41>")
    is_fallback = letter is not None and backend.decode([letter]) == "A"
    return {token: byte for token, byte in ids.items() if token is not None} if is_fallback else {}


def byte_letters() -> dict[str, int]:
    """Return the letters that GPT-2's byte-level vocabulary writes for bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + at): byte for at, byte in enumerate(others)}


@dataclass(frozen=True)
class TokenizerFiles:
    """A model's tokenizer files, from a folder or a Hub id."""

    source: str
    folder: Path
    texts: Mapping[str, str]  # by name

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON object, {} without the file, or raise InputError."""
        if name not in self.texts:
            return {}
        body = parse_json(self.texts[name], str(self.folder / name), hint=TRY_AGAIN)
        if not isinstance(body, dict):
            raise InputError(f"{self.folder / name} must hold a JSON object", TRY_AGAIN)
        return body

    def chat_template(self) -> str | None:
        if TEMPLATE in self.texts:
            return self.texts[TEMPLATE]
        template = self.json(CONFIG).get("chat_template")
        if isinstance(template, list):
            entries = [entry for entry in template if isinstance(entry, dict)]
            default = (entry for entry in entries if entry.get("name") == "default")
            template = next(default, {}).get("template")
        elif isinstance(template, dict):
            template = template.get("default")
        return template if isinstance(template, str) else None


def find_tokenizer_files(model: ModelRef) -> TokenizerFiles:
    """Find and read tokenizer files; fetch those missing in the Hub's cache.

    Raises UsageError for an unknown name, InputError for a file that is unreadable or too large,
    NetworkError if neither Hub nor cache has it.
    """
    source = str(tokenizer_folder(find_gguf(model))) if model.is_gguf else model.source
    folder = Path(source)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        with hub_errors(source, "model"):
            folder = Path(
                snapshot_download(source, revision=model.revision, allow_patterns=list(NAMES))
            )
    texts = {}
    for path in (folder / name for name in NAMES):
        if path.is_file():
            try:
                raw = read_plain(path, MAX_FILE_BYTES, error=InputError, hint=TRY_AGAIN)
                texts[path.name] = raw.decode("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"cannot read {path}: {reason(error)}", TRY_AGAIN) from error
    return TokenizerFiles(source, folder, texts)


def load_tokenizer(
    model: str | Path | ModelRef, revision: str | None = None, *, trust_remote_code: bool = False
) -> TextTokenizer:
    """Load the tokenizer of a short name, a folder or a Hub id, at `revision` or as ID@REVISION.

    `trust_remote_code` lets transformers run the model's own Python code. Raises InputError if
    there is no fast tokenizer, NetworkError without a network.
    """
    ref = ModelRef.of(model, revision)
    files = find_tokenizer_files(ref)
    template = files.chat_template()
    has_fast = TOKENIZER in files.texts
    try:
        if files.source == embedded_model():  # as transformers loads it
            text = files.texts[TOKENIZER]
            if text not in EMBEDDED:
                named = files.json(CONFIG).items()
                special = {key: token for key, token in named if key.endswith("_token")}
                parsed = Tokenizer.from_str(text)
                EMBEDDED[text] = Loaded(parsed, special, tokenizer_digests(parsed))
            loaded = EMBEDDED[text]
        elif not has_fast and not trust_remote_code and _has_no_tokenizer(files.source):
            raise InputError(
                f"cannot find a tokenizer in {files.source}", f"Add a tokenizer.json to {ref.id}."
            )
        elif trust_remote_code or not has_fast:
            loaded = _load_by_transformers(ref, files, trust_remote_code)
        else:
            loaded = _load_cached(ref, files)
        eos = loaded.special.get("eos_token")
        record = TokenizerRecord(
            id=ref.id,
            eos=None if eos is None else loaded.backend.token_to_id(eos),
            **loaded.digests._asdict(),
        )
    except BaseException as error:
        refuse_fault(error, ref.id)
        raise
    return TextTokenizer(record, loaded.backend, loaded.special, template)


def load_tokenizer_of(artifact: Artifact, model: str | Path | None = None) -> TextTokenizer:
    """Load an artifact's tokenizer, from `model` if given.

    Raises as `load_tokenizer`, InputError if the artifact's own cannot be loaded, and ArtifactError
    if the model has another one.
    """
    try:
        tokenizer = load_tokenizer(model or artifact.tokenizer.id)
    except (InputError, UsageError) as error:
        if model is not None:
            raise
        what = f"cannot load the tokenizer of {artifact.where}: {error}"
        raise InputError(what, "Give model.", option="model") from error
    hint = "Give the model whose tokenizer it has."
    artifact.tokenizer.require(tokenizer.record, artifact.where, hint)
    return tokenizer


def _has_no_tokenizer(source: str) -> bool:
    folder = Path(source)
    return folder.is_dir() and not any(
        SLOW_TOKENIZER.search(path.name) for path in folder.iterdir()
    )


def _load_cached(ref: ModelRef, files: TokenizerFiles) -> Loaded:
    contents = {
        name: hashlib.sha256(text.encode()).hexdigest()
        for name, text in sorted(files.texts.items())
    }
    # transformers overrides the files of some Hub ids, so the id is part of the key.
    source = None if Path(files.source).is_dir() else files.source
    versions = [version_of("transformers"), tokenizers.__version__]
    decisive = json.dumps([CACHE_VERSION, versions, source, contents, DECISIVE_PARTS, PROBE_TEXTS])
    key = f"{hashlib.sha256(decisive.encode()).hexdigest()}.txt"
    cached = _parse_cached(TOKENIZER_CACHE.get(key) or "")
    if cached is not None:
        return cached
    _require_bounded_ids(files)
    loaded = _load_by_transformers(ref, files, trust_remote_code=False)
    backend, special, digests = loaded
    facts = {"special": special, "encode_special_tokens": backend.encode_special_tokens}
    head = json.dumps({**facts, "digests": digests._asdict()})
    TOKENIZER_CACHE.put(key, f"{head}\n{backend.to_str()}")
    return loaded


def _parse_cached(text: str) -> Loaded | None:
    """Parse a cache entry: a line of JSON, then the tokenizers.Tokenizer as JSON."""
    head, _, body = text.partition("\n")
    try:
        facts = json.loads(head)
        backend = Tokenizer.from_str(body)
        backend.encode_special_tokens = bool(facts["encode_special_tokens"])
        special = {str(key): str(token) for key, token in facts["special"].items()}
        digests = Digests(**facts["digests"])
        is_sound = (
            whole_number(digests.vocabulary, 1, 1 << 31)
            and SHA256.fullmatch(digests.fingerprint)
            and FINGERPRINT_FORM.fullmatch(digests.encodes)
        )
        return Loaded(backend, special, digests) if is_sound else None
    except Exception as error:  # tokenizers raises bare Exceptions
        log.debug("the tokenizer is not cached: %r", error)
        return None


def _require_bounded_ids(files: TokenizerFiles) -> None:
    """Raise InputError for ids that would exhaust memory, or a replaced tokenizer.json."""
    files.json("config.json")  # transformers reads it too
    path = files.folder / TOKENIZER
    if "fast_tokenizer_files" in files.json(CONFIG):
        raise InputError(
            f"cannot use {files.folder / CONFIG}: it names several tokenizer files",
            "Keep one tokenizer.json, and remove fast_tokenizer_files.",
        )
    try:
        vocabulary = Tokenizer.from_str(files.texts[TOKENIZER]).get_vocab()
    except Exception as error:  # tokenizers raises bare Exceptions
        raise InputError(f"cannot read the tokenizer {path}: {error}", TRY_AGAIN) from error
    if max(vocabulary.values(), default=0) >= LIMITS.vocabulary:
        raise InputError(
            f"{path} is not a tokenizer: its ids must be below {LIMITS.vocabulary:,}", TRY_AGAIN
        )


def _load_by_transformers(ref: ModelRef, files: TokenizerFiles, trust_remote_code: bool) -> Loaded:
    from transformers import AutoTokenizer

    revision = ref.revision
    here = TOKENIZER in files.texts and not trust_remote_code
    if here and not Path(files.source).is_dir():
        revision = files.folder.name  # the commit, in the Hub's cache
    try:
        full = AutoTokenizer.from_pretrained(
            files.source,
            revision=revision,
            local_files_only=here,
            trust_remote_code=trust_remote_code,
        )
    except MemoryError:
        raise
    except Exception as error:  # the files are untrusted
        what = f"the tokenizer of {ref.id}"
        explained = translate_hub_error(error, files.source, "model") or needs_code(error, what)
        raise explained or InputError(
            f"cannot load a tokenizer from {files.source}", "Check that it has a tokenizer.json."
        ) from error
    backend = getattr(full, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"cannot use the tokenizer of {ref.id}: it has no fast version (tokenizer.json)",
            "Convert it with transformers first, or use another model.",
        )
    backend.no_truncation()
    backend.no_padding()
    special = {key: str(token) for key, token in full.special_tokens_map.items()}
    return Loaded(backend, special, tokenizer_digests(backend))


def needs_code(error: Exception, what: str) -> InputError | None:
    if "trust_remote_code" not in str(error):
        return None
    return InputError(
        f"cannot load {what}: it needs its own Python code",
        "Read that code; if you trust it, decode with trust_remote_code=True.",
        option="trust_remote_code",
    )


def refuse_fault(error: BaseException, model: str) -> None:
    """Raise InputError for the bare Exceptions and Rust panics of tokenizers."""
    if type(error) is Exception or type(error).__name__ == PANIC:
        message = str(error).partition("\n")[0]
        raise InputError(
            f"cannot run the tokenizer of {model}: {message:.200}", TRY_AGAIN
        ) from error


def tokenizer_digests(backend: Any) -> Digests:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    how = encode_probes(vocabulary, lambda text: backend.encode(text, add_special_tokens=False).ids)
    return Digests(max(vocabulary.values()) + 1, tokenizer_fingerprint(backend), how)
