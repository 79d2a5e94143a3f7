"""What transformers makes of a tokenizer.json, told without transformers.

Most models are read as the file stands. For some, transformers names a class that keeps the file's
vocabulary and merges, and puts normalizer, pre-tokenizer and decoder of its own in place of the
file's; ids may differ then. Those classes stand in REBUILT, as of transformers 5.23; tests compare
each with transformers itself. `OnlyTransformersError` is raised where only transformers can tell.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

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
