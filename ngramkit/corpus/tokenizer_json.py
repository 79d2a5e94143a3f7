"""A tokenizers.Tokenizer from a model's own files, as transformers would have it, without it.

tokenizer.json is read; the class that transformers would use may put parts of its own in place of
the file's (tokenizer_classes); then special and added tokens that the file lacks are added. The
order and the rules are those of transformers 5.23 (`TokenizersBackend.__init__`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Tokenizer, models, processors

from ngramkit.corpus.tokenizer_classes import (
    AS_IT_STANDS,
    REBUILT,
    OnlyTransformersError,
    Rebuilt,
    class_of,
)
from ngramkit.corpus.tokenizer_faults import refuse_fault
from ngramkit.corpus.tokenizer_files import ADDED, CONFIG, MODEL, SPECIAL, TOKENIZER, TokenizerFiles
from ngramkit.errors import InputError
from ngramkit.formats.manifest import MOST_TOKENS

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA, OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
Token = str | AddedToken
PLAIN_BPE = {
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
}


class Loaded(NamedTuple):
    backend: Tokenizer
    special: dict[str, str]  # "eos_token": "</s>" and so on


class _Wanted(NamedTuple):
    """What the files beside tokenizer.json say of tokens."""

    named: dict[str, Token]
    extra: list[Token]
    by_id: dict[int, AddedToken]


def load_json(files: TokenizerFiles) -> Loaded:
    """Raises OnlyTransformersError where only transformers can, InputError for broken files."""
    if TOKENIZER not in files.paths:
        raise OnlyTransformersError(f"it has no {TOKENIZER}")
    text, config, model = files.text(TOKENIZER), files.json(CONFIG), files.json(MODEL)
    if config.get("fix_mistral_regex"):
        raise OnlyTransformersError(
            "it asks for another splitting than its file's (fix_mistral_regex)"
        )
    name = class_of(files.source, config, model, '"ByteLevel"' in text)
    place = files.paths[TOKENIZER]
    try:
        backend = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exceptions
        raise InputError(f"{place} is no tokenizer: {error}", "download the model again") from error
    except BaseException as error:
        refuse_fault(error, str(place))
        raise
    _require_near_ids(place, text, backend)
    try:
        return _completed(backend, name, files, config)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise InputError(
            f"the special tokens of {files.source} cannot be read: {error!r}",
            f"check its {CONFIG} and {SPECIAL}",
        ) from error


def _require_near_ids(place: Path, text: str, backend: Tokenizer) -> None:
    """Raises InputError for ids so far apart that tokenizers' walk over them all takes all memory.

    To ask for the ids takes half as long as to read them all; so only where the text holds a number
    of eight digits behind something else than a point, a letter or a quotation mark.
    """
    raw = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    digit = np.concatenate([[False], raw - 48 < 10])  # wraps around below 48
    runs = digit[1:] & ~digit[:-1]
    for step in range(1, 8):
        runs[: len(runs) - step] &= digit[1 + step :]
    before = set(raw[np.flatnonzero(runs) - 1].tolist()) if runs.any() else set()
    if before & set(b" :,[\n\t-") and max(backend.get_vocab().values(), default=0) >= MOST_TOKENS:
        raise InputError(
            f"{place} is no tokenizer: an id of it is {MOST_TOKENS:,} or more",
            "download the model again",
        )


def _completed(
    backend: Tokenizer, name: str, files: TokenizerFiles, config: Mapping[str, Any]
) -> Loaded:
    rebuilt = None if name == AS_IT_STANDS else REBUILT[name]
    wanted = _wanted(files, dict(config), backend, rebuilt)
    if rebuilt is not None:
        backend = _rebuild(backend, name, rebuilt, config, wanted)
    _add(backend, wanted)
    if name == "Qwen2Tokenizer":
        special = [*wanted.named.values(), *wanted.extra]
        backend.add_tokens([AddedToken(str(token), special=True) for token in special])
    if name == "CohereTokenizer":
        backend.add_special_tokens([_special(token) for token in _each(wanted)])
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = config.get("split_special_tokens") is True
    return Loaded(backend, {key: str(token) for key, token in wanted.named.items()})


def _wanted(
    files: TokenizerFiles, config: dict[str, Any], backend: Tokenizer, rebuilt: Rebuilt | None
) -> _Wanted:
    """tokenizer_config.json, and where it is of the old form, what stands beside it."""
    if not config.get(EXTRA) and OLD_EXTRA in config:
        config[EXTRA] = config.pop(OLD_EXTRA)
    named = {key: _token(value) for key, value in config.items() if _is_named(key, value)}
    extra = config.get(EXTRA) or []
    if isinstance(extra, dict):
        named |= {key: _token(value) for key, value in extra.items()}
        extra = []
    extra = [_token(value) for value in extra]
    by_id = {}
    if "added_tokens_decoder" in config:
        by_id = {int(i): _added(value) for i, value in config["added_tokens_decoder"].items()}
    else:
        beside = files.json(SPECIAL)
        more = beside.pop(EXTRA, None) or beside.pop(OLD_EXTRA, None) or []
        named |= {key: _token(v, special=True) for key, v in beside.items() if _is_named(key, v)}
        if isinstance(more, dict):
            named |= {key: _token(value) for key, value in more.items()}
        else:
            known = set(map(str, extra))
            fresh = [_token(value, special=True) for value in more]
            extra += [token for token in fresh if str(token) not in known]
        special = {*map(str, named.values()), *map(str, extra)}
        for content, i in files.json(ADDED).items():
            flag = content in special
            by_id[int(i)] = AddedToken(content, normalized=not flag, special=flag)
        by_id |= backend.get_added_tokens_decoder()
    if rebuilt is not None:
        # null in the configuration takes a token of the class away
        for key, token in rebuilt.special.items():
            if config.get(key, token) is not None:
                named.setdefault(key, token)
    flags = {str(token): token for token in by_id.values()}
    order = [*(key for key in NAMED if key in named), *(key for key in named if key not in NAMED)]
    chosen = {key: flags.get(str(named[key]), named[key]) for key in order}
    return _Wanted(chosen, extra, by_id)


def _is_named(key: str, value: Any) -> bool:
    return key.endswith("_token") and (isinstance(value, (str, dict)) and bool(value))


def _token(value: Any, special: bool = False) -> Token:
    if isinstance(value, dict):
        return _added(value, special)
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no token")
    return value


def _added(value: Any, special: bool = False) -> AddedToken:
    fields = {key: entry for key, entry in value.items() if key not in ("__type", "id")}
    return AddedToken(**({**fields, "special": True} if special else fields))


def _rebuild(
    file: Tokenizer, name: str, rebuilt: Rebuilt, config: Mapping[str, Any], wanted: _Wanted
) -> Tokenizer:
    """The file's vocabulary and merges with the class's own parts, and no added tokens yet."""
    model = file.model
    if not isinstance(model, models.BPE):
        raise OnlyTransformersError(f"its class is {name}, but its file holds no BPE model")
    for flag, value in {**PLAIN_BPE, **rebuilt.flags}.items():
        if isinstance(value, str) and value.endswith("_token"):
            value = str(wanted.named[value])
        if getattr(model, flag) != value:
            setattr(model, flag, value)
    backend = Tokenizer(model)
    rebuilt.parts(backend, config)
    if rebuilt.adds_bos is None:
        backend.post_processor = file.post_processor
    elif rebuilt.adds_bos:
        bos = str(wanted.named["bos_token"])
        _add(backend, wanted)
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos}:0 $A:0",
            pair=f"{bos}:0 $A:0 {bos}:1 $B:1",
            special_tokens=[(bos, backend.token_to_id(bos))],
        )
    return backend


def _each(wanted: _Wanted) -> Iterator[Token]:
    yield from wanted.named.values()
    yield from wanted.extra


def _special(token: Token) -> AddedToken:
    return AddedToken(token, special=True, normalized=False) if isinstance(token, str) else token


def _add(backend: Tokenizer, wanted: _Wanted) -> None:
    """Those of the listed tokens, then of the special ones, that the backend does not know so."""
    there = backend.get_added_tokens_decoder().values()
    known, contents = {repr(token) for token in there}, {str(token) for token in there}
    missing: list[Token] = [t for _, t in sorted(wanted.by_id.items()) if repr(t) not in known]
    contents |= set(map(str, missing))
    for token in _each(wanted):
        if str(token) not in contents:
            missing.append(token)
            contents.add(str(token))
    names = set(map(str, wanted.named.values()))
    fresh = []
    for token in missing:
        made = AddedToken(token, special=True) if isinstance(token, str) else token
        if not made.special and str(made) in names:
            made.special = True
        fresh.append(made)
    if fresh:
        backend.add_tokens(fresh)
