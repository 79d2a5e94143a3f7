"""The identity of a tokenizer: its fingerprint, and a digest of how it encodes.

An artifact fits a tokenizer if the `fingerprint` of their files is equal, or if they encode texts
identically:

    encodes = 16 hex digits: sha256 over every token's text, in order, then their ids
              4 hex digits for each of PROBE_TEXTS: sha256 over its ids, in order

Tokenizers with equal `encodes` have the same vocabulary and split all PROBE_TEXTS the same way.
PROBE_TEXTS only grows at its end; the common part is compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.limits import LIMITS, is_short_text
from ngramkit.basics.untrusted import whole_number
from ngramkit.formats.safetensors import require

# Parts of a tokenizer that decide ids; the post-processor and the padding do not.
DECISIVE_PARTS = ("model", "added_tokens", "normalizer", "pre_tokenizer")
# Tokenizers differ in spaces, line ends, digits, contractions, scripts, marks, code and specials.
PROBE_TEXTS = (
    "Hello world",
    " Hello  world   ",
    "\tdef f(x):\n    return x\n\n\n",
    ":\n\n1",
    "a\r\nb\r\n\r\n",
    "\n \n  \n",
    "x = 1\n\t\ty",
    "12345 1,234.56 3rd 0x7f",
    "in 2024-01-31, 100%",
    "\u0663\u0664\u00bd\u00b2",
    "it's WE'LL don't I'M they'Ve",
    "'s 't \u2019s",
    "na\u00efve caf\u00e9",
    "cafe\u0301 n\u0303",
    "\u6f22\u5b57\u304b\u306a\u30ab\u30ca \ud55c\uae00",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u03b3\u03b5\u03b9\u03ac",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f642\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\u2014 \u2026 \u00ab\u00bb \u201cquoted\u201d",
    "a\u00a0b\u2003c\u200bd",
    "...!!!???---***",
    "{}[]()<>;:/\\|@#$^&~`",
    "if (a != b && c >= d) { e += f[g->h]; }",
    "https://a.example/b_c?d=e&f=%20#g",
    "snake_case camelCase PascalCase",
    "e.g. i.e. U.S.A. Mr. X",
    "don't\n'quoted'\n",
    "supercalifragilisticexpialidocious",
    "<s>a</s>",
    "<|endoftext|><|im_start|>user\nhi<|im_end|>\n",
    "<|begin_of_text|><|eot_id|>",
    "[INST] a [/INST]",
    "<unk><pad>",
    "\x00\x07\x7f",
    "\ufffd\u0080",
    "   ",
    "\n",
    "",
    "Z" * 30,
    "ab" * 12,
    "0" * 13,
)
DIGITS, EACH = 16, 4
UNKNOWN = "engine-"  # begins the fingerprint of an engine that shows no tokenizer
FINGERPRINT_FORM = re.compile(r"[0-9a-f]{20,1000}")

ANOTHER_HISTORY = "Name another folder: the requests of a history have one tokenizer."  # a hint


@dataclass(frozen=True)
class TokenizerRecord:
    """An artifact's tokenizer, identified by `fingerprint` or `encodes`; `id` is for people."""

    id: str
    vocabulary: int  # one more than the highest id
    fingerprint: str  # sha256, see `tokenizer_fingerprint`
    eos: int | None = None
    encodes: str | None = None  # older manifests lack it

    @classmethod
    def unknown(cls, vocabulary: int) -> TokenizerRecord:
        """Return the record of a model that is known by its number of ids only."""
        return cls("the engine's model", vocabulary, f"{UNKNOWN}{vocabulary}")

    @property
    def is_known(self) -> bool:
        return not self.fingerprint.startswith(UNKNOWN)

    @property
    def separator(self) -> int:
        """The id after each document, which the tokenizer does not have."""
        return self.vocabulary

    def is_same_tokenizer(self, other: TokenizerRecord) -> bool:
        """Return whether both have the same files, or encode all PROBE_TEXTS identically.

        An unknown one may be any with as many ids.
        """
        if self.fingerprint == other.fingerprint:
            return True
        if not (self.is_known and other.is_known):
            return self.vocabulary == other.vocabulary
        if self.encodes is None or other.encodes is None:
            return False
        return text_encoded_differently(self.encodes, other.encodes) == ""

    def require(self, other: TokenizerRecord, where: str, hint: str = "") -> None:
        """Raise ArtifactError for another tokenizer; `hint`: for what cannot be built again."""
        if not self.is_same_tokenizer(other):
            why = ""
            if self.encodes is not None and other.encodes is not None:
                why = f": {text_encoded_differently(self.encodes, other.encodes)}"
            raise ArtifactError(
                f"cannot use {where} with {other.id} ({other.vocabulary:,} tokens, "
                f"{other.fingerprint[:12]}): it was built for the tokenizer of {self.id} "
                f"({self.vocabulary:,} tokens, {self.fingerprint[:12]}){why}",
                hint or f"Build it again with model={other.id}.",
                option="model",
            )


def parse_tokenizer(path: object, body: Any) -> TokenizerRecord:
    keys = {"id", "vocabulary", "fingerprint"}
    fits = isinstance(body, dict) and keys <= body.keys() <= keys | {"eos", "encodes"}
    require(fits, path, "`tokenizer` has wrong keys")
    texts = is_short_text(body["id"]) and is_short_text(body["fingerprint"])
    require(texts, path, "the tokenizer's id or fingerprint is not a text")
    size, eos = body["vocabulary"], body.get("eos")
    require(
        whole_number(size, 1, LIMITS.vocabulary), path, f"its vocabulary has {size!r:.30} tokens"
    )
    inside = eos is None or whole_number(eos, 0, size - 1)
    require(inside, path, f"eos {eos!r:.30} is not in its vocabulary")
    encodes = body.get("encodes")
    sound = encodes is None or (
        isinstance(encodes, str) and bool(FINGERPRINT_FORM.fullmatch(encodes))
    )
    require(sound, path, "`encodes` is not hex digits")
    return TokenizerRecord(**body)


def tokenizer_fingerprint(backend: Any) -> str:
    body = json.loads(backend.to_str())
    decisive = {part: body.get(part) for part in DECISIVE_PARTS}
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def encode_probes(vocabulary: Mapping[str, int], encode: Callable[[str], Sequence[int]]) -> str:
    """Return TokenizerRecord.encodes; `vocabulary` maps texts to ids."""
    texts = sorted(vocabulary)
    whole = "\0".join([*texts, *(str(vocabulary[text]) for text in texts)]).encode(
        "utf-8", "surrogatepass"
    )
    parts = [hashlib.sha256(whole).hexdigest()[:DIGITS]]
    return "".join([*parts, *(_digest_of_ids(encode(text)) for text in PROBE_TEXTS)])


def _digest_of_ids(ids: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:EACH]


def record_of(given: Any) -> TokenizerRecord:
    """Return a loaded tokenizer's record, or a given one. Raises UsageError for anything else."""
    record = getattr(given, "record", given)
    if not isinstance(record, TokenizerRecord):
        what = "name" if isinstance(given, str) else type(given).__name__
        hint = "Give a loaded tokenizer: ngramkit.load_tokenizer(MODEL)."
        raise UsageError(f"tokenizer must be a tokenizer, got a {what}", hint, option="tokenizer")
    return record


def text_encoded_differently(encodes: str, other: str) -> str:
    if encodes[:DIGITS] != other[:DIGITS]:
        return "their vocabularies differ"
    pairs = zip(PROBE_TEXTS, _split_digests(encodes), _split_digests(other), strict=False)
    text = next((text for text, a, b in pairs if a != b), None)
    return "" if text is None else f"they encode {text!r} differently"


def first_difference(encodes: str, encode: Callable[[str], Sequence[int]]) -> str | None:
    pairs = zip(PROBE_TEXTS, _split_digests(encodes), strict=False)
    return next((text for text, digest in pairs if _digest_of_ids(encode(text)) != digest), None)


def _split_digests(encodes: str) -> list[str]:
    rest = encodes[DIGITS:]
    return [rest[at : at + EACH] for at in range(0, len(rest), EACH)]
