"""Drafts inside transformers: `model.generate(..., custom_generate=ngramkit.custom_generate)`."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from transformers.generation.utils import GenerateDecoderOnlyOutput

from ngramkit.basics.errors import UsageError
from ngramkit.basics.models import require_causal
from ngramkit.decode.base import Sink
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.generate_rows import decode_rows
from ngramkit.decode.generation import (
    EXACT_CACHES,
    SETTINGS_OF_OTHER_METHODS,
    ends_of,
    settings_not_default,
    stop_of,
    with_stop_strings,
)
from ngramkit.decode.length_limits import rope_limits
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.request import Request
from ngramkit.decode.result import Decoded
from ngramkit.decode.sampling import ProcessedChoice, draw_as_generate, likeliest_tokens
from ngramkit.decode.specache.options import SpeCache
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.references import Given as References, reference_texts

OneDrafter = Drafter | Callable[[], Drafter] | str
Drafters = OneDrafter | Sequence[OneDrafter]


def generate(
    model: Any,
    input_ids: Any,
    *,
    drafter: Drafters | None = None,
    budget: int | Literal["auto"] | None = None,
    cache: SpeCache | None = None,
    references: References = (),
    streamer: Any = None,
    **options: Any,
) -> Any:
    """Return what `model.generate(input_ids, **options)` returns, in fewer passes.

    `model`: a transformers causal LM or LanguageModel. `input_ids`: int64[n] or int64[rows, n],
    padded on the left by `attention_mask`. `drafter`: a drafter, a function that makes one, the
    name of one without artifacts, or a list with one per row. Several rows with logits processors,
    stopping criteria, sampling or a streamer need a drafter each. `budget`, `cache`: as in
    `DecodeOptions`. `references`, int ids [n] each: texts that the rows probably repeat.

    Raises UsageError for options that drafts cannot honour. The first call probes the model in
    about eight short passes.
    """
    if isinstance(model, LanguageModel):
        model = model.model
    if not hasattr(model, "generate"):
        raise UsageError(
            f"model must be a transformers model, got {model!r:.60}",
            "Load one with load_model(NAME).",
            option="model",
        )
    ids = _token_ids(input_ids, model).to(model.device)
    ids = ids[None] if ids.dim() == 1 else ids
    mask = options.get("attention_mask")
    is_tensor = isinstance(mask, torch.Tensor)
    if mask is not None and not (is_tensor and mask.shape == ids.shape):
        got = list(mask.shape) if is_tensor else type(mask).__name__
        raise UsageError(
            f"attention_mask must be a tensor like input_ids, {list(ids.shape)}, got {got}",
            "Give the attention_mask of the tokenizer's output.",
            option="attention_mask",
        )
    for name in ("assistant_model", "synced_gpus"):
        if options.get(name):
            raise _refusal(name)
    return model.generate(
        ids,
        # transformers gives the prompt to a streamer, but passes no streamer to a function.
        streamer=streamer,
        custom_generate=functools.partial(custom_generate, streamer=streamer),
        drafter=drafter,
        budget=budget,
        cache=cache,
        references=references,
        **with_stop_strings(options, model.generation_config),
    )


def _token_ids(given: Any, model: Any) -> torch.Tensor:
    """Return int64[n] or int64[rows, n]; raise UsageError for anything else."""
    try:
        ids = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        ids = torch.empty(0)
    if not ids.numel() or ids.dim() > 2 or ids.is_floating_point() or ids.is_complex():
        raise UsageError(
            f"input_ids must be token ids, int64[n] or int64[rows, n], got {reprlib.repr(given)}",
            "Give the input_ids of the tokenizer's output.",
            option="input_ids",
        )
    known = model.config.get_text_config().vocab_size
    outside = ids[(ids < 0) | (ids >= known)]
    if len(outside):
        raise UsageError(
            f"input_ids must be 0 to {known - 1}, got {int(outside[0])}",
            "Use the model's own tokenizer.",
            option="input_ids",
        )
    return ids.to(torch.int64)


def custom_generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    drafter: Drafters | None = None,
    budget: int | Literal["auto"] | None = None,
    cache: SpeCache | None = None,
    references: References = (),
    streamer: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Decode for `model.generate(..., custom_generate=custom_generate, drafter=...)`.

    See `generate`. transformers passes no streamer to a function: use `ngramkit.generate`, or give
    it twice, `streamer=s, custom_generate=functools.partial(ngramkit.custom_generate, streamer=s)`.
    """
    refuse_unsupported(model, generation_config, model_kwargs)
    padding = left_padding(input_ids, model_kwargs)
    refuse_changing_rope(model, generation_config, padded=any(padding))
    options = DecodeOptions(
        drafter=drafter,  # type: ignore[arg-type]
        references=references,  # type: ignore[arg-type]
        budget=budget,
        cache=cache,
    )
    if options.specache is not None:
        drafter = drafter or "none"
    drafters, texts = one_per_row(drafter, len(input_ids)), reference_texts(options.references)
    ends = ends_of(stopping_criteria, generation_config)
    # These requests have ids and ends already, so no tokenizer is needed.
    unnamed = LanguageModel(model.config.model_type, model, tokenizer=None)  # type: ignore[arg-type]
    decoder = Decoder.settle(unnamed, options)
    requests = [
        Request(
            prompt=ids[pad:].cpu().numpy().astype(np.int32),
            max_new_tokens=ends.length - len(ids),
            budget=decoder.budget,
            eos=ends.eos,
            references=texts,
        )
        for ids, pad in zip(input_ids, padding, strict=True)
    ]
    draw = draw_as_generate if generation_config.do_sample else likeliest_tokens
    is_plain = not (logits_processor or ends.others or generation_config.do_sample)

    def put(tokens: torch.Tensor) -> None:
        if streamer is not None:
            streamer.put(tokens.cpu())

    if len(requests) > 1 and not (is_plain and streamer is None):
        _require_own(drafters, options)
        pad = _pad_token(generation_config) if ends.has_eos else None
        how = (logits_processor, stopping_criteria, draw, pad, put)
        whole = decode_rows(decoder, requests, drafters, input_ids, *how)
    else:
        if not is_plain:  # one row, whose processors and criteria see its padding too
            stop = stop_of(ends.others, input_ids) if ends.others else None
            choice = ProcessedChoice(logits_processor, input_ids, draw)
            requests = [replace(requests[0], choice=choice, stop=stop)]
        sink: Sink = lambda token, drafted: put(torch.tensor([token]))  # noqa: E731
        runs = [
            decoder.decode(request, row_drafter, None if streamer is None else sink)
            for request, row_drafter in zip(requests, drafters, strict=True)
        ]
        whole = _pad_outputs(input_ids, runs, generation_config)
    if streamer is not None:
        streamer.end()
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(sequences=whole)  # type: ignore[arg-type]
    return whole


def _require_own(drafters: list[Drafter], options: DecodeOptions) -> None:
    together = "several rows with logits processors, stopping criteria, sampling or a streamer"
    if len(set(map(id, drafters))) < len(drafters):
        raise UsageError(
            f"drafter must be one per row for {together}",
            "Give a list of drafters, or a function.",
            option="drafter",
        )
    if options.specache is not None:
        raise _refusal(together, "a SpeCache decodes one row after another")


def one_per_row(drafter: Drafters | None, rows: int) -> list[Drafter]:
    if drafter is None:
        raise UsageError(
            "drafter must be given",
            'Add drafter="cacheback", or a drafter of yours.',
            option="drafter",
        )
    if isinstance(drafter, list | tuple):
        if len(drafter) != rows:
            raise UsageError(
                f"drafter must be one per row, got {len(drafter)} for {rows} rows", option="drafter"
            )
        return [_drafter_of(each) for each in drafter]
    if isinstance(drafter, str) or callable(drafter):
        return [_drafter_of(drafter) for _ in range(rows)]
    return [drafter] * rows  # type: ignore[list-item]  # its `start` begins each row


def _drafter_of(given: OneDrafter) -> Drafter:
    if isinstance(given, str):
        return load_drafter(given)
    given = require_drafter(given, or_maker=True)
    made: Drafter = require_drafter(given() if callable(given) else given)
    return made


def _pad_outputs(ids: torch.Tensor, runs: list[Decoded], config: Any) -> torch.Tensor:
    """Return prompts and output, int64[rows, longest], padded on the right."""
    if any(run.ended_by == "interrupt" for run in runs):
        raise KeyboardInterrupt
    rows = [
        torch.cat([row, torch.from_numpy(run.token_ids).to(row)])
        for row, run in zip(ids, runs, strict=True)
    ]
    uneven = len({len(row) for row in rows}) > 1
    value = int(_pad_token(config)) if uneven else 0
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def _pad_token(config: Any) -> torch.Tensor:
    pad: torch.Tensor | None = config._pad_token_tensor
    if pad is None:
        raise UsageError(
            "pad_token_id must be given for rows of different lengths", "Give pad_token_id."
        )
    return pad


# Options of a generation config, and the values that have no effect.
REFUSED_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    **SETTINGS_OF_OTHER_METHODS,
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
    "use_mtp": (None, False),
    "output_scores": (None, False),
    "output_logits": (None, False),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
}
CACHE_ARGUMENTS = ("past_key_values", "cache_params")  # the second is Mamba's
# Made by transformers for every call, or without effect on the text.
KNOWN_INPUTS = {
    "attention_mask", "position_ids", *CACHE_ARGUMENTS, "use_cache", "logits_to_keep",
    "cache_position",
}  # fmt: skip
# Inputs that transformers passes for images, also for a prompt without any.
VISION_ARGUMENTS = {"mm_encoder_outputs": "images or videos (mm_encoder_outputs)"}
TOKEN_TYPE_ARGUMENTS = ("mm_token_type_ids", "token_type_ids")  # 0 is text, in vision models


def refuse_unsupported(model: Any, config: Any, inputs: Mapping[str, Any]) -> None:
    require_causal(model.config.to_dict(), type(model).__name__)
    for name, value in settings_not_default(config, REFUSED_OPTIONS).items():
        raise _refusal(f"{name}={value}")
    if config.cache_implementation not in EXACT_CACHES:
        raise _refusal(f"cache_implementation={config.cache_implementation}", "that cache is lossy")
    for name, value in inputs.items():
        if name not in KNOWN_INPUTS and not _asks_for_nothing(model, name, value):
            raise _refusal(VISION_ARGUMENTS.get(name, name))
    for name in CACHE_ARGUMENTS:
        cache = inputs.get(name)
        if cache is not None and any(map(_holds_tokens, cache.layers)):
            raise _refusal(name, "the prompt is read again")


def refuse_changing_rope(model: Any, config: Any, *, padded: bool) -> None:
    limits = rope_limits(model.config.get_text_config()).lengths
    if limits and config.max_length > limits[0]:
        why = f"its rope changes with length, after {limits[0]} tokens"
        if padded:
            raise _refusal(f"padding of {model.config.model_type}", why)
        if config.prefill_chunk_size is not None:
            raise _refusal(f"prefill_chunk_size of {model.config.model_type}", why)


def _asks_for_nothing(model: Any, name: str, value: Any) -> bool:
    sees = name in TOKEN_TYPE_ARGUMENTS and hasattr(model.config, "vision_config")
    if sees and value is not None:
        return not bool(value.any())
    return value is None or value is False or (isinstance(value, dict) and not value)


def _holds_tokens(layer: Any) -> bool:
    states = any(getattr(layer, "has_previous_state", {}).values())
    return states or (hasattr(layer, "get_seq_length") and layer.get_seq_length() > 0)


def left_padding(ids: torch.Tensor, inputs: Mapping[str, Any]) -> list[int]:
    """Return the padding tokens of each row; raise UsageError for padding anywhere else."""
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    whole = torch.ones_like(ids) if mask is None else mask.to(ids)
    if whole.shape != ids.shape:
        raise _refusal("an attention_mask of another shape than input_ids")
    if not bool((whole[:, -1] == 1).all()):
        raise _refusal("padding on the right", "pad on the left: padding_side='left'")
    if not bool((whole.diff(dim=-1) >= 0).all()):
        raise _refusal(
            "an attention_mask with holes",
            hint="Give one of ones, if no token is padding.",
        )
    expected = (whole.cumsum(-1) - 1)[whole == 1]
    # Vision models have positions for each axis, identical for text.
    if positions is not None and bool((positions.to(ids)[..., whole == 1] != expected).any()):
        raise _refusal("position_ids other than 0, 1, 2, ...")
    padding: list[int] = (whole == 0).sum(-1).tolist()
    return padding


def _refusal(what: str, why: str = "", hint: str = "Leave it out.") -> UsageError:
    reason = f": {why}" if why else ""
    return UsageError(f"cannot honour {what} with drafts{reason}", hint)
