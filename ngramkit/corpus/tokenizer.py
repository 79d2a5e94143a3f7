"""Text to ids and back, and the fingerprint that says which ids they are.

The tokenizer's own files are read, without transformers, in a hundredth of its time; it is asked
only where it alone knows how a tokenizer is loaded.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.cache import private_folder
from ngramkit.corpus.chat_template import default_template, find_chat_template, render_confined
from ngramkit.corpus.tokenizer_files import TokenizerFiles, find_files, refuse_fault
from ngramkit.errors import ArtifactError, InputError, NgramkitError, UsageError, from_hub
from ngramkit.formats.manifest import SHA256, TokenizerRecord
from ngramkit.formats.probes import FORM, PROBES, encodes, same_ids
from ngramkit.formats.writer import keep_text
from ngramkit.models import resolve_model, split_revision
from ngramkit.untrusted import read_json, whole_number

# Where tokenizers differ: spaces, digits, contractions, scripts, combining marks, code, marks.
PROBE = (
    "Hello  world, it's 12345 days \u2014 na\u00efve e\u0301 \u6f22\u5b57 \U0001f642\n"
    "\n\tdef f(x):\n"
    "  return 'a</s><s>b' <|endoftext|> <|im_end|>\n<unk>end "
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class TextTokenizer:
    """A model's tokenizer. `backend` is a tokenizers.Tokenizer; `special` holds the text of each
    special token under its name, "eos_token" and so on."""

    record: TokenizerRecord
    backend: Any
    special: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None

    def __repr__(self) -> str:
        return f"<TextTokenizer {self.record.id}, {self.record.vocabulary:,} tokens>"

    def encode(self, text: str) -> npt.NDArray[np.int32]:
        """int32[n], without special tokens. Raises InputError for what is no text."""
        return self._ids(text, special=False)

    def encode_prompt(self, text: str) -> npt.NDArray[np.int32]:
        """int32[n], with the special tokens (BOS) that the model expects around a text.

        Raises InputError for what is no text.
        """
        return self._ids(text, special=True)

    def _ids(self, text: str, *, special: bool) -> npt.NDArray[np.int32]:
        try:
            ids = self.backend.encode(text, add_special_tokens=special).ids
        except (TypeError, UnicodeEncodeError):
            # A terminal's broken bytes, or half a pair from JSON.
            raise InputError(f"{text!a:.60} is no text", "use UTF-8") from None
        except BaseException as error:
            refuse_fault(error, self.record.id)
            raise
        if special and max(ids, default=0) >= self.record.vocabulary:
            raise InputError(
                f"the tokenizer of {self.record.id} adds an id that is none of its own",
                "download the model again",
            )
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        try:
            return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=False))
        except BaseException as error:
            refuse_fault(error, self.record.id)
            raise

    def chat(self, turns: Sequence[Mapping[str, str]]) -> str:
        """The conversation (role and content of each turn) by the model's own template, up to where
        its next answer begins. Raises UsageError where there is no template."""
        if self.chat_template is None:
            raise UsageError(
                f"the tokenizer of {self.record.id} has no template for conversations",
                "leave out chat, name a template, or use an instruction-tuned model",
                option=("chat", "template"),
            )
        return render_confined(self.chat_template, turns, self.special)

    @property
    def eos_token(self) -> str | None:
        return self.special.get("eos_token")

    @property
    def bos(self) -> int | None:
        """The id that begins a text, where the tokenizer has one; not every model expects it."""
        token = self.special.get("bos_token")
        return None if token is None else self.backend.token_to_id(token)

    @property
    def adds_bos(self) -> bool:
        """Whether a prompt begins with BOS."""
        return self.bos is not None and self.encode_prompt("a")[:1].tolist() == [self.bos]


def load_tokenizer(
    model: str,
    revision: str | None = None,
    *,
    confirm: bool = False,
    trust_remote_code: bool = False,
) -> TextTokenizer:
    """The tokenizer of a short name, a Hub id or a folder; of a Hub id at `revision`, which may
    stand behind an @ in its name.

    `confirm` asks transformers too, and takes its tokenizer where the ids differ: for a model that
    transformers runs, so that it is fed as it always is. `trust_remote_code` lets transformers run
    Python code that the model brings for its tokenizer.
    Raises InputError where there is none (or only a slow one), NetworkError without a network.
    """
    from ngramkit.corpus.tokenizer_files import OnlyTransformersError, load_json

    resolve_model(model)  # a folder has no revisions
    model, revision = split_revision(model, revision)
    files = find_files(model, revision)
    template = find_chat_template(files)
    try:
        backend, special = load_json(files)
    except OnlyTransformersError as reason:
        log.warning("the tokenizer of %s is loaded by transformers: %s", model, reason)
        full = _load_full(model, files, revision, trust_remote_code=trust_remote_code)
        return _of_transformers(model, full, template)
    tokenizer = _described(model, backend, special, template)
    if confirm:
        full = _load_full(model, files, revision, trust_remote_code=trust_remote_code)
        if not _agree(full, tokenizer):
            log.warning("%s: transformers gives other ids than tokenizer.json; taking its", model)
            return _of_transformers(model, full, template)
    return tokenizer


def _described(
    model: str, backend: Any, special: Mapping[str, str], template: str | None
) -> TextTokenizer:
    eos = special.get("eos_token")
    try:
        found = digests(backend)
    except BaseException as error:
        refuse_fault(error, model)
        raise
    record = TokenizerRecord(
        id=model,
        eos=None if eos is None else backend.token_to_id(eos),
        **found._asdict(),
    )
    return TextTokenizer(record, backend, special, template)


def _of_transformers(model: str, full: Any, template: str | None) -> TextTokenizer:
    special = {key: str(token) for key, token in full.special_tokens_map.items()}
    template = template or default_template(full.chat_template)
    return _described(model, full.backend_tokenizer, special, template)


def _agree(full: Any, tokenizer: TextTokenizer) -> bool:
    """Whether both give the same ids to PROBE, special tokens included, and end in the same way."""
    ids = full(PROBE)["input_ids"]
    same = tokenizer.encode_prompt(PROBE).tolist() == ids
    return bool(same and full.eos_token_id == tokenizer.record.eos)


def agrees(backend: Any, record: TokenizerRecord) -> bool:
    """Whether a tokenizers.Tokenizer gives the ids that `record` tells of."""
    found = digests(backend)
    return found.fingerprint == record.fingerprint or same_ids(found.encodes, record.encodes)


def _load_full(
    model: str, files: TokenizerFiles, revision: str | None, *, trust_remote_code: bool
) -> Any:
    """As transformers loads it: its fast tokenizer. Raises InputError where there is none."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise InputError(
            f"the tokenizer of {model} can be loaded by transformers only, which is not installed",
            "pip install transformers, or use a model with a tokenizer.json",
        ) from error
    try:
        full = AutoTokenizer.from_pretrained(
            files.source,
            revision=revision,
            local_files_only=files.offline,
            trust_remote_code=trust_remote_code,
        )
    except MemoryError:
        raise
    except Exception as error:  # strangers' values anywhere in transformers' reading of them
        raise _not_loaded(model, files.source, error) from error
    if getattr(full, "backend_tokenizer", None) is None:
        raise InputError(
            f"the tokenizer of {model} has no fast version (tokenizer.json)",
            "convert it with transformers first, or use another model",
        )
    return full


def _not_loaded(model: str, source: str, error: Exception) -> NgramkitError:
    known = from_hub(error, source, "model") or needs_code(error, f"the tokenizer of {model}")
    return known or InputError(
        f"no tokenizer could be loaded from {source}",
        f"the model {model} must hold a tokenizer.json",
        option="model",
    )


def needs_code(error: Exception, what: str) -> InputError | None:
    """Return the error to show where transformers refused to run code that `what` brings."""
    if "trust_remote_code" not in str(error):
        return None
    return InputError(
        f"{what} needs Python code of its own, which is not run",
        "read that code; if you trust it, decode with trust_remote_code=True",
        option="trust_remote_code",
    )


# What tells tokenizers apart, kept in the user's cache once it is known.
#
# To put into words which ids a tokenizer gives takes a quarter of a second at 49,152 tokens and a
# second at 152,000, at the start of every command. A file's name says of which tokenizer it speaks,
# whatever folder that came from; where none can be kept, it is found out each time.

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
