"""The options of `vllm serve` that decide how ngramkit drafts, read without vLLM."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.machine import version_of
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import parse_json
from ngramkit.engines.config import CONFIG_VARIABLE, ENGINES
from ngramkit.engines.vllm_modes import V1_CLASS, choose_mode, why_not_v2

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


def effects_of_vllm_options(words: Sequence[str], configured: bool) -> Iterator[str]:
    """Yield what follows from the options of `vllm serve`: the runner and the mode first.

    `configured`: by NGRAMKIT_DRAFT. Raises UsageError for values that cannot be read.
    """
    given = _parse_options(_as_vllm_reads(words))
    speculative = {key.replace("-", "_"): value for key, value in given.speculative_config.items()}
    method = speculative.get("method", given.spec_method)
    adaptive = speculative.get("enable_adaptive_verification") is True
    version = version_of(ENGINES["vllm"].distribution)
    if method == "custom_class" and speculative.get("model", given.spec_model) == V1_CLASS:
        yield "Model Runner V1, trimmed mode: method is custom_class"
    elif method != "ngram":
        got = "nothing" if method is None else visible(str(method), 40)
        yield f"ngramkit does not draft: method must be ngram, got {got}"
        yield f"write --speculative-config {NGRAM_SETTING}"
        return
    elif not configured and "ngramkit" not in given.additional_config:
        yield (
            f"ngramkit does not draft, but vLLM's own n-gram drafter: set {CONFIG_VARIABLE}, or "
            "ngramkit in --additional-config"
        )
        return
    elif (why := why_not_v2(version)) is not None:
        yield f"cannot draft in vLLM's Model Runner V2: {why}"
    else:
        mode = choose_mode(adaptive=adaptive, asynchronous=given.async_scheduling is not False)
        yield f"Model Runner V2, {mode} mode: {REASON_FOR_MODE[mode]}"
    if adaptive:
        eager = given.enforce_eager or is_cpu_build(version)
        refused = {
            "pipeline parallelism": given.pipeline_parallel_size > 1,
            "LoRA": given.enable_lora,
            "enforce_eager or on a CPU: it needs full CUDA graphs": eager,
        }
        yield from (f"vLLM refuses adaptive verification with {n}" for n in refused if refused[n])
    if given.tensor_parallel_size * given.pipeline_parallel_size > 1:
        yield "pass costs follow from the model's config: ranks read no clock, so clock is refused"
    if given.data_parallel_size > 1:
        yield "each data-parallel engine drafts alone; the first one writes the history"
    if given.enable_lora and not adaptive:
        yield "LoRA: on a CPU, the start is refused without --lora-target-modules that omit lm_head"


def quantization_option(words: Sequence[str]) -> str | None:
    """Return --quantization of vLLM or SGLang."""
    parser = OptionParser(prog="options", add_help=False, allow_abbrev=False)
    parser.add_argument("--quantization", "-q")
    found: str | None = parser.parse_known_args(_as_vllm_reads(words))[0].quantization
    return found


def is_cpu_build(version: str | None) -> bool:
    return "cpu" in (version or "").partition("+")[2]


def _as_vllm_reads(words: Sequence[str]) -> list[str]:
    """Write names with dashes, and keys of an object, as `--name.key value`, as one JSON object.

    vLLM's FlexibleArgumentParser (0.33) reads options so; dotted keys count after objects.
    """
    kept: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    remaining = iter(words)
    for word in remaining:
        key, equals, value = word.partition("=")
        name, dot, path = key.partition(".")
        if not name.startswith("-"):
            kept.append(word)
            continue
        dashed = name.replace("_", "-")
        if not dot:
            kept.append(dashed + equals + value)
            continue
        value = value if equals else next(remaining, "")
        inner = objects.setdefault(dashed, {})
        *outer, last = path.split(".")
        for part in outer:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        try:
            inner[last] = parse_json(value, dashed)
        except InputError:
            inner[last] = value
    for name, content in objects.items():
        kept += [name, json.dumps(content)]
    return kept


def _parse_options(words: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(prog="vllm serve", add_help=False, allow_abbrev=False)
    for names in (["--speculative-config", "-sc"], ["--additional-config"]):
        parser.add_argument(*names, type=partial(_parse_object, names[0].strip("-")), default={})
    parser.add_argument("--spec-method")
    parser.add_argument("--spec-model")
    for name in ("async-scheduling", "enable-lora", "enforce-eager"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    return parser.parse_known_args(list(words))[0]


def _parse_object(name: str, text: str) -> dict[str, Any]:
    try:
        body = parse_json(text, name)
    except InputError as error:
        raise UsageError(str(error), option="options") from error
    if not isinstance(body, dict):
        raise UsageError(f"{name} must be an object, got {visible(text, 40)}", option="options")
    return body
