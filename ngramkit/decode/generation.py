"""Generation configs of checkpoints, prepared by transformers.

The reference is `model.generate` with the checkpoint's config and `generate_options`.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import (
    EosTokenCriteria,
    MaxLengthCriteria,
    PreTrainedTokenizerFast,
    StoppingCriteriaList,
    StopStringCriteria,
)

from ngramkit.basics.errors import UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.decode.base import Choice, Stop
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.sampling import ProcessedChoice, Sampling, SeededDraw, likeliest_tokens
from ngramkit.drafters.base import TokenArray

# Settings that change the output, with the values that have no effect.
APPLIED: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "sequence_bias": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "guidance_scale": (None, 1),
    "remove_invalid_values": (None, False),
    "renormalize_logits": (None, False),
    "watermarking_config": (None,),
    "max_time": (None,),
    "stop_strings": (None,),
}
# The same for sampling, besides temperature, top_k and top_p.
APPLIED_TO_SAMPLES: Mapping[str, tuple[Any, ...]] = {
    "min_p": (None,),
    "top_h": (None,),
    "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
}
# Settings for decoding methods other than token by token.
SETTINGS_OF_OTHER_METHODS: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (None, 1),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0, 0.0),
    "dola_layers": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
}
REFUSED_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    **SETTINGS_OF_OTHER_METHODS,
    "token_healing": (None, False),
}
EXACT_CACHES = (None, "dynamic", "static", "hybrid", "sliding_window", "offloaded")


def applied_settings(model: LanguageModel, sampling: Sampling) -> dict[str, Any]:
    """Return the generation config's settings that change the output."""
    names = APPLIED if sampling.greedy else {**APPLIED, **APPLIED_TO_SAMPLES}
    return settings_not_default(model.model.generation_config, names)


def settings_not_default(config: Any, names: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    values = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in values.items() if value not in names[name]}


def refuse_unsupported_settings(model: LanguageModel) -> None:
    """Raise UsageError if the generation config asks for another way of decoding."""
    config = model.model.generation_config
    refused = settings_not_default(config, REFUSED_SETTINGS)
    if config.cache_implementation not in EXACT_CACHES:
        refused["cache_implementation"] = config.cache_implementation
    for name, value in refused.items():
        raise UsageError(
            f"cannot decode {model.name}: its generation config sets {_show_setting(name, value)}",
            f"Take {name} out of generation_config.json.",
        )


def report_applied(model: LanguageModel, sampling: Sampling, reporter: Reporter) -> None:
    settings = applied_settings(model, sampling)
    if settings:
        named = ", ".join(_show_setting(name, value) for name, value in settings.items())
        reporter.note(f"applying {named} from the model's generation config")


def applied_facts(model: LanguageModel, sampling: Sampling) -> dict[str, Any]:
    settings = {name: repr(value) for name, value in applied_settings(model, sampling).items()}
    return {"generation": settings} if settings else {}


def _show_setting(name: str, value: Any) -> str:
    return f"{name} {reprlib.repr(value)}"


def generate_options(
    model: LanguageModel, sampling: Sampling, *, max_length: int
) -> dict[str, Any]:
    """Return the keywords with which `model.model.generate` is the reference.

    `max_length`: tokens with prompt and padding.
    """
    options: dict[str, Any] = {
        "max_length": max_length,
        "max_new_tokens": None,
        "do_sample": not sampling.greedy,
        "eos_token_id": sorted(model.eos) or None,
        "pad_token_id": min(model.eos, default=0),
        "num_return_sequences": 1,
        "return_dict_in_generate": False,
    }
    if not sampling.greedy:
        options |= {"temperature": float(sampling.temperature)}  # transformers refuses whole ones
        options |= {"top_k": sampling.top_k, "top_p": sampling.top_p}
    config = model.model.generation_config
    if config.stop_strings:
        options |= with_stop_strings({"tokenizer": tokenizer_of(model)}, config)
    return options


def tokenizer_of(model: LanguageModel) -> Any:
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=model.tokenizer.backend)


def with_stop_strings(options: dict[str, Any], config: Any = None) -> dict[str, Any]:
    """Make stop_strings a criterion: transformers passes no tokenizer to a function.

    `config` has the stop strings if `options` do not set any; None there switches them off.
    """
    given, tokenizer = options.get("generation_config"), options.get("tokenizer")
    strings = getattr(given, "stop_strings", None) or getattr(config, "stop_strings", None)
    strings = options.get("stop_strings", strings)
    if not strings or tokenizer is None:
        return options
    criteria = [*(options.get("stopping_criteria") or ()), StopStringCriteria(tokenizer, strings)]
    rest = {name: value for name, value in options.items() if name != "tokenizer"}
    return {**rest, "stop_strings": None, "stopping_criteria": StoppingCriteriaList(criteria)}


class Prepared(NamedTuple):
    ids: torch.Tensor  # int64[1, n], the prompt
    processors: Any
    criteria: Any
    config: Any


def prepare_call(model: LanguageModel, prompt: TokenArray, options: dict[str, Any]) -> Prepared:
    """Have transformers prepare a call after the prompt, int32[n]."""
    ids = torch.from_numpy(np.asarray(prompt, np.int64)).to(model.model.device)[None]
    with warnings.catch_warnings(action="ignore"):  # about an unreachable minimum length
        prepared: Prepared = model.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            custom_generate=_hand_over,
            **{**options, "use_cache": False, "cache_implementation": None},
        )
    return prepared


def _hand_over(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    **_: Any,
) -> Prepared:
    return Prepared(input_ids, logits_processor, stopping_criteria, generation_config)


def choice_and_stop_of(
    model: LanguageModel, prompt: TokenArray, sampling: Sampling, *, max_length: int
) -> tuple[Choice, Stop | None]:
    """Return the choice of tokens after the prompt, int32[n], by transformers, and criteria."""
    options = generate_options(model, sampling, max_length=max_length)
    ids, processors, criteria, config = prepare_call(model, prompt, options)
    others = ends_of(criteria, config).others
    draw = likeliest_tokens if sampling.greedy else SeededDraw(sampling.seed).draw
    return ProcessedChoice(processors, ids, draw), stop_of(others, ids) if others else None


class Ends(NamedTuple):
    """The ends of a row; `length` is in tokens, with prompt and padding.

    With `has_eos`, a batch pads ended rows.
    """

    length: int
    eos: frozenset[int]
    others: list[Any]
    has_eos: bool


def ends_of(criteria: Sequence[Any], config: Any) -> Ends:
    lengths: list[int] = []
    eos: set[int] = set()
    others: list[Any] = []
    for criterion in criteria:
        if type(criterion) is MaxLengthCriteria:
            lengths.append(criterion.max_length)
        elif type(criterion) is EosTokenCriteria:
            eos.update(criterion.eos_token_id.tolist())
        else:
            others.append(criterion)
    has_eos = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
    return Ends(min(lengths, default=config.max_length), frozenset(eos), others, has_eos)


def stop_of(criteria: Sequence[Any], ids: torch.Tensor) -> Stop:
    """Return a stop that calls every criterion after the prompt, int64[1, n], and each token."""
    asked, seen = StoppingCriteriaList(criteria), ids

    def stop(token: int) -> bool:
        nonlocal seen
        seen = torch.cat([seen, seen.new_tensor([[token]])], -1)
        return bool(asked(seen, None).any())

    return stop


def either_ends(one: Stop, other: Stop) -> Stop:
    return lambda token: one(token) | other(token)
