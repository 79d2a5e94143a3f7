"""What tokenizers raises where a file asks for what it cannot do: it has no errors of its own."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ngramkit.errors import InputError, NetworkError, hub_errors, reason
from ngramkit.formats.manifest import MOST_TOKENS
from ngramkit.gguf.source import find_gguf
from ngramkit.models import resolve_model
from ngramkit.untrusted import parse_json, read_plain

PANIC = "PanicException"  # of Rust, by pyo3; no Exception, and nowhere to import from


def refuse_fault(error: BaseException, model: str) -> None:
    """Raise InputError where `error` is a bare Exception or a panic of Rust's."""
    if type(error) is Exception or type(error).__name__ == PANIC:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"the tokenizer of {model} fails: {said:.200}", "download the model again"
        ) from error


# The small files that make a model's tokenizer: in a folder, in the Hub's cache, or on the Hub.
#
# Reads JSON and text; knows nothing of what a tokenizer does with them.

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


# A tokenizers.Tokenizer from a model's own files, as transformers would have it, without it.
#
# tokenizer.json is read; the class that transformers would use may put parts of its own in place of
# the file's (tokenizer_classes); then special and added tokens that the file lacks are added. The
# order and the rules are those of transformers 5.23 (`TokenizersBackend.__init__`).

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


# What transformers makes of a tokenizer.json, told without transformers.
#
# Most models are read as the file stands. For some, transformers names a class that keeps the
# file's vocabulary and merges, and puts normalizer, pre-tokenizer and decoder of its own in place
# of the file's; ids may differ then. Those classes stand in REBUILT, as of transformers 5.23;
# tests compare each with transformers itself. `OnlyTransformersError` is raised where only
# transformers can tell.

Config = Mapping[str, Any]

AS_IT_STANDS = "TokenizersBackend"
GENERIC = {AS_IT_STANDS, "PreTrainedTokenizer", "PythonBackend", "Bloom", "BloomTokenizer"}


class OnlyTransformersError(Exception):
    """Only transformers knows how this tokenizer is loaded; the text says why."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Model types whose file is read as it stands, whatever class the repository names.
PLAIN_TYPES = _words(
    "arctic beam bigbird_pegasus chatlm ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe "
    "glm4_moe_lite got_ocr2 gpt_bigcode granite granitemoe granitemoehybrid granitemoeshared "
    "h2ovl_chat hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_linear "
    "llava llava_next mimo_v2_flash minicpm3 minicpmv minimax_m2 ministral ministral3 mistral "
    "mistral3 mixtral modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 olmo2 olmo3 "
    "olmo_hybrid opencua openvla persimmon phi3 phi3_v phimoe pixtral smolvlm stablelm step3_vl "
    "vipllava xlm-roberta-xl"
)
# Model types whose class is known: taken where the repository names none.
TYPES = {
    "Cohere": "cohere cohere2",
    "GPT2": "codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 jais2 opt phi starcoder2",
    "GPTNeoX": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
    "Gemma": "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma zaya",
    "Qwen2": "dots3_note moss_transcribe_diarize qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next",
    "Qwen3_5": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
}
CLASS_OF = {kind: f"{name}Tokenizer" for name, kinds in TYPES.items() for kind in kinds.split()}
# Of these the repositories name a wrong class: the type's own is taken.
MISNAMED = _words("hyperclovax_vision_v2 qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp")
PLAIN_IDS = (
    "deepseek-ai/deepseek-r1-distill-llama-*",
    "deepseek-ai/deepseek-coder-*",
    "allenai/dolma2-tokenizer",
    "stepfun-ai/step-3.7-*",
)
# Model types whose class is not in REBUILT, since nobody decodes with them: transformers is asked.
OTHER_TYPES = _words(
    "bart bert big_bird biogpt blenderbot blenderbot-small camembert cpmant ctrl data2vec-text "
    "electra ernie git gpt_neox_japanese mbart megatron-bert musicgen musicgen_melody mvp "
    "openai-gpt pegasus plbart prophetnet reformer rembert roberta roberta-prelayernorm roc_bert "
    "roformer siglip2 t5 trocr whisper xglm xlm xlm-roberta xlnet xmod"
)


def class_of(source: str, config: Config, model: Config, byte_level: bool) -> str:
    """AS_IT_STANDS or a name in REBUILT, by tokenizer_config.json and the model's config.json.

    `byte_level` tells whether the file speaks of ByteLevel. Raises OnlyTransformersError.
    """
    named = _text(config.get("tokenizer_class")) or _text(model.get("tokenizer_class"))
    named = named and named.removesuffix("Fast")
    kind = _text(model.get("model_type"))
    if _has_own_code(config) and kind not in PLAIN_TYPES | MISNAMED:
        raise OnlyTransformersError("it has Python code of its own")
    if any(fnmatch.fnmatch(source.lower(), pattern) for pattern in PLAIN_IDS):
        return AS_IT_STANDS
    if kind in PLAIN_TYPES:
        return AS_IT_STANDS
    if named == "LlamaTokenizer" and byte_level and kind not in MISNAMED:
        return AS_IT_STANDS
    name = CLASS_OF[kind] if kind in MISNAMED or (not named and kind in CLASS_OF) else named
    if name is None:
        if kind in OTHER_TYPES:
            raise OnlyTransformersError(
                f"models of type {kind} have a tokenizer class of their own"
            )
        return AS_IT_STANDS
    if name in GENERIC:
        return AS_IT_STANDS
    if name not in REBUILT:
        raise OnlyTransformersError(f"its class is {name}")
    return name


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _has_own_code(config: Config) -> bool:
    mapped = config.get("auto_map")
    return isinstance(mapped, list) or (isinstance(mapped, dict) and "AutoTokenizer" in mapped)


@dataclass(frozen=True)
class Rebuilt:
    """A class of transformers: what it puts in place of the file's parts.

    `special` are its default special tokens; `flags` those of the BPE model.
    """

    special: Mapping[str, str]
    flags: Mapping[str, Any]
    parts: Callable[[Tokenizer, Config], None]
    adds_bos: bool | None = None  # None: as the file's post-processor says


def _metaspace(backend: Tokenizer, config: Config) -> None:
    prefix = config.get("add_prefix_space")
    scheme = "never" if prefix is False else "always" if config.get("legacy") else "first"
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [] if prefix is False else [decoders.Strip(content=" ", left=1)]
    backend.decoder = decoders.Sequence([*steps, *strip])


def _code_llama(backend: Tokenizer, config: Config) -> None:
    _metaspace(backend, {"add_prefix_space": config.get("add_prefix_space")})


def _gemma(backend: Tokenizer, config: Config) -> None:
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps)


def _byte_level(form: Any = None, before: Any = None) -> Callable[[Tokenizer, Config], None]:
    """GPT-2's splitting into bytes, after a normal form and another splitting if any."""

    def put(backend: Tokenizer, config: Config) -> None:
        prefix = config.get("add_prefix_space") is True
        trim = config.get("trim_offsets") is not False
        step = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=trim)
        backend.normalizer = form
        backend.pre_tokenizer = pre_tokenizers.Sequence([before, step]) if before else step
        backend.decoder = decoders.ByteLevel()

    return put


def _qwen(words: str) -> Callable[[Tokenizer, Config], None]:
    """Qwen's splitting by a regular expression, in which `words` are what letters may be."""
    rest = words.replace("[", "").replace("]", "")
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?" + words + r"+|\p{N}| ?[^\s" + rest
        + r"\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )  # fmt: skip

    def put(backend: Tokenizer, config: Config) -> None:
        prefix = config.get("add_prefix_space") is True
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        step = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, step])
        backend.decoder = decoders.ByteLevel()

    return put


LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
END = "<|endoftext|>"
OPEN = {"unk_token": END, "bos_token": END, "eos_token": END}
QWEN = {"unk_token": END, "eos_token": END, "pad_token": END}
FALLBACK = {"fuse_unk": True, "byte_fallback": True, "unk_token": None}
BYTES = {"continuing_subword_prefix": "", "end_of_word_suffix": "", "unk_token": None}
REBUILT: dict[str, Rebuilt] = {
    "LlamaTokenizer": Rebuilt(LLAMA, FALLBACK, _metaspace),
    "CodeLlamaTokenizer": Rebuilt(
        {
            **LLAMA,
            "prefix_token": "▁<PRE>",
            "middle_token": "▁<MID>",
            "suffix_token": "▁<SUF>",
            "eot_token": "▁<EOT>",
            "fill_token": "<FILL_ME>",
        },
        {**FALLBACK, "unk_token": "unk_token"},
        _code_llama,
        adds_bos=True,
    ),
    "GemmaTokenizer": Rebuilt(
        {
            "unk_token": "<unk>",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
        },
        {**FALLBACK, "unk_token": "unk_token"},
        _gemma,
    ),
    "GPT2Tokenizer": Rebuilt(OPEN, BYTES, _byte_level()),
    "GPTNeoXTokenizer": Rebuilt(
        {**OPEN, "pad_token": "<|padding|>"}, BYTES, _byte_level(normalizers.NFC()), adds_bos=False
    ),
    "Qwen2Tokenizer": Rebuilt(QWEN, BYTES, _qwen(r"\p{L}")),
    "Qwen3_5Tokenizer": Rebuilt(QWEN, BYTES, _qwen(r"[\p{L}\p{M}]")),
    "CohereTokenizer": Rebuilt(
        {
            "unk_token": "<UNK>",
            "bos_token": "<BOS_TOKEN>",
            "eos_token": "<|END_OF_TURN_TOKEN|>",
            "pad_token": "<PAD>",
            "cls_token": "<CLS>",
            "sep_token": "<SEP>",
            "mask_token": "<MASK_TOKEN>",
        },
        BYTES,
        _byte_level(normalizers.NFC(), pre_tokenizers.Digits(individual_digits=True)),
    ),
}
