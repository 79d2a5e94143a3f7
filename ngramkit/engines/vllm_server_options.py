"""The options of `vllm serve` that decide how ngramkit drafts, read without vLLM."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import parse_json
from ngramkit.engines.vllm_modes import V1_CLASS, choose_mode

REASON_FOR_MODE = {
    "fixed": "asynchronous scheduling",
    "trimmed": "--no-async-scheduling",
    "adaptive": "enable_adaptive_verification is true",
}
NGRAM_SETTING = """'{"method": "ngram", "num_speculative_tokens": 5}'"""


class OptionParser(argparse.ArgumentParser):
    """A parser of a server's options that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"cannot read options: {visible(message)}", option="options")


def effects_of_options(words: Sequence[str]) -> Iterator[str]:
    """Yield what follows from the options of `vllm serve`: the runner and the mode first.

    Raises UsageError for values that cannot be read.
    """
    given = _parse_options(words)
    speculative = given.speculative_config or {}
    method = speculative.get("method")
    adaptive = speculative.get("enable_adaptive_verification") is True
    if method == "custom_class" and speculative.get("model") == V1_CLASS:
        yield "Model Runner V1, trimmed mode: method is custom_class"
    elif method != "ngram":
        got = "nothing" if method is None else visible(str(method), 40)
        yield f"ngramkit does not draft: method must be ngram, got {got}"
        yield f"write --speculative-config {NGRAM_SETTING}"
    else:
        mode = choose_mode(adaptive=adaptive, asynchronous=given.async_scheduling is not False)
        yield f"Model Runner V2, {mode} mode: {REASON_FOR_MODE[mode]}"
    if adaptive and given.pipeline_parallel_size > 1:
        yield "vLLM refuses adaptive verification with pipeline parallelism"
    if given.tensor_parallel_size * given.pipeline_parallel_size > 1:
        yield "pass costs follow from the model's config: ranks read no clock, so clock is refused"
    if given.data_parallel_size > 1:
        yield "each data-parallel engine drafts alone; the first one writes the history"
    if given.enable_lora:
        yield "LoRA: on a CPU, the start is refused without --lora-target-modules that omit lm_head"


def _parse_options(words: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(prog="vllm serve", add_help=False, allow_abbrev=False)
    parser.add_argument("--speculative-config", "-sc", type=_parse_object)
    parser.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    parser.add_argument("--enable-lora", action="store_true")
    return parser.parse_known_args(list(words))[0]


def _parse_object(text: str) -> dict[str, Any]:
    try:
        body = parse_json(text, "speculative-config")
    except InputError as error:
        raise UsageError(str(error), option="options") from error
    if not isinstance(body, dict):
        raise UsageError("speculative-config must be an object", option="options")
    return body
