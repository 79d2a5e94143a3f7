"""The options of `vllm serve` that decide how ngramkit drafts, read without vLLM."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown
from ngramkit.basics.machine import version_of
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import parse_json
from ngramkit.engines.config import CONFIG_VARIABLE, ENGINES, DraftConfig
from ngramkit.engines.options_file import FILE_OPTION, GivenOptions
from ngramkit.engines.vllm_modes import (
    MODES,
    RUNNER_VARIABLE,
    V1_CLASS,
    choose_mode,
    is_cpu_build,
    why_not_v2_before_start,
)
from ngramkit.engines.vllm_wanted import NGRAM_METHODS

SHORTCUTS = {  # options of vLLM -> keys of --speculative-config
    "spec_method": "method",
    "spec_model": "model",
    "spec_tokens": "num_speculative_tokens",
}
OBJECTS = (["--speculative-config", "-sc"], ["--additional-config"])  # options of vLLM
LOOKUP_KEYS = ("prompt_lookup_max", "prompt_lookup_min")  # of vLLM's own n-gram drafter
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")  # of vLLM and SGLang
EXTERNAL_LAUNCHER = "external_launcher"
CANNOT_DRAFT = "cannot draft in vLLM's Model Runner V2"
NGRAM_SETTING = """'{"method": "ngram", "num_speculative_tokens": 5}'"""


class OptionParser(argparse.ArgumentParser):
    """A parser of a server's options that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"cannot read options: {visible(message)}", option="options")


def effects_of_vllm_options(read: GivenOptions, config: DraftConfig | None) -> Iterator[str]:
    """Yield what follows from the options of `vllm serve`: the runner and the mode first.

    `config`: that of NGRAMKIT_DRAFT. Raises UsageError for values that cannot be read.
    """
    given = _parse_options(read)
    speculative, version = _speculative_config(given), version_of(ENGINES["vllm"].distribution)
    adaptive = _is_adaptive(speculative)
    used = config or additional_draft_config(given.additional_config)
    mode, runner = _mode_and_runner(given, version, configured=used is not None)
    yield from runner
    false = {name.replace("_", "-") for name in read.false}
    if "async-scheduling" in false and given.async_scheduling is not False:
        yield (
            f"async-scheduling: false in {read.file} has no effect: vLLM leaves out what is false; "
            "write no-async-scheduling: true"
        )
    yield from effects_of_unread_file(read.words)
    if mode is None:
        return
    if used is not None and mode and (unused := used.unused(MODES[mode].unused)):
        yield f"in this mode these keys have no effect: {', '.join(unused)}"
    if config is not None and "ngramkit" in given.additional_config:
        yield "ngramkit in --additional-config has no effect: the other configuration overrides it"
    if used is not config and (given.api_server_count or 1) > 1:
        yield f"prediction is ignored with several API servers: set {CONFIG_VARIABLE}"
    if lookups := [key for key in LOOKUP_KEYS if key in speculative]:
        yield f"only vLLM's own n-gram drafter uses {' and '.join(lookups)}"
    if given.prefill_context_parallel_size > 1:
        yield "vLLM refuses prefill context parallelism with drafts of this method"
    if adaptive and not _runs_v1(speculative):
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


def _mode_and_runner(
    given: argparse.Namespace, version: str | None, *, configured: bool
) -> tuple[str | None, list[str]]:
    """Return the mode and lines about the runner.

    The mode is None if ngramkit does not draft, "" if V2 cannot.
    """
    speculative = _speculative_config(given)
    if _runs_v1(speculative):
        lines = ["Model Runner V1, trimmed mode: method is custom_class"]
        return "trimmed", [*lines, *_refused_by_v1(given)]
    method, model = speculative["method"], speculative["model"]
    if method == "custom_class":
        got = "nothing" if model is None else visible(str(model), 60)
        return None, [f"ngramkit does not draft: model must be {V1_CLASS}, got {got}"]
    if method in NGRAM_METHODS and method != "ngram" and configured:
        return "", [f"{CANNOT_DRAFT}: method must be ngram, got {method}"]
    if method != "ngram":
        got = "nothing" if method is None else visible(str(method), 40)
        return None, [
            f"ngramkit does not draft: method must be ngram, got {got}",
            f"write --speculative-config {NGRAM_SETTING}",
        ]
    if not configured:
        own = "ngramkit does not draft, but vLLM's own n-gram drafter"
        return None, [f"{own}: set {CONFIG_VARIABLE}, or ngramkit in --additional-config"]
    why = why_not_v2_before_start(version) or _lacking_in_v2(given)
    if why is not None:
        return "", [f"{CANNOT_DRAFT}: {why}"]
    mode = choose_mode(
        adaptive=_is_adaptive(speculative),
        asynchronous=given.async_scheduling is not False,
    )
    return mode, [f"Model Runner V2, {mode} mode: {MODES[mode].cause}"]


def _lacking_in_v2(given: argparse.Namespace) -> str | None:
    """Return what vLLM 0.33 runs in Model Runner V1 only."""
    if _speculative_config(given).get("parallel_drafting") is True:
        return "it lacks parallel drafting"
    executor = given.distributed_executor_backend
    if executor == EXTERNAL_LAUNCHER and given.pipeline_parallel_size > 1:
        return f"it lacks pipeline parallelism with {executor}"
    return None


def _refused_by_v1(given: argparse.Namespace) -> Iterator[str]:
    if os.environ.get(RUNNER_VARIABLE, "0").strip() not in ("", "0"):
        yield f"vLLM refuses custom_class: {RUNNER_VARIABLE} asks for Model Runner V2"
    if given.async_scheduling:
        yield "vLLM refuses asynchronous scheduling with custom_class"
    if _is_adaptive(_speculative_config(given)):
        yield "vLLM refuses adaptive verification in Model Runner V1"


def effects_of_unread_file(words: Sequence[str]) -> Iterator[str]:
    if any(word.startswith(f"{FILE_OPTION}=") for word in words):
        yield f"{FILE_OPTION}=FILE is not read: write {FILE_OPTION} FILE"


def additional_draft_config(additional: Mapping[str, Any]) -> DraftConfig | None:
    """Return the configuration that --additional-config holds. Raises as `DraftConfig.parse`."""
    if "ngramkit" not in additional:
        return None
    given, where = additional["ngramkit"], "ngramkit in --additional-config"
    if not isinstance(given, dict):
        raise UsageError(f"{where} must be an object", 'Write {"ngramkit": {"drafter": "blend"}}.')
    return DraftConfig.parse(given, where)


def config_in_options(read: GivenOptions) -> DraftConfig | None:
    """Return the configuration in vLLM's options. Raises as `effects_of_vllm_options`."""
    return additional_draft_config(_parse_options(read).additional_config)


def _runs_v1(speculative: Mapping[str, Any]) -> bool:
    return (speculative["method"], speculative["model"]) == ("custom_class", V1_CLASS)


def _is_adaptive(speculative: Mapping[str, Any]) -> bool:
    return speculative.get("enable_adaptive_verification") is True


def _speculative_config(given: argparse.Namespace) -> dict[str, Any]:
    """Return --speculative-config and its shortcuts, with the method that vLLM infers."""
    shortcuts = {key: getattr(given, flag) for flag, key in SHORTCUTS.items()}
    values = given.speculative_config.items()
    found = {**shortcuts, **{key.replace("-", "_"): value for key, value in values}}
    if found["method"] is None and isinstance(model := found["model"], str):
        parts = model.split(".")
        dotted = len(parts) > 1 and all(map(str.isidentifier, parts))
        inferred = "ngram" if model in ("ngram", "[ngram]") else "draft_model"
        found["method"] = "custom_class" if dotted else inferred
    return found


def weight_options(read: GivenOptions) -> tuple[str | None, str]:
    """Return --quantization of vLLM or SGLang, and float32 or float16 for the type of weights.

    Both serve checkpoints of 32 bits in 16 unless --dtype asks for 32. Raises UsageError for an
    unknown type.
    """
    parser = OptionParser(prog="options", add_help=False)
    parser.add_argument("--quantization", "-q")
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_known_args(_with_dashes(read.words))[0]
    if given.dtype not in DTYPES:
        raise UsageError(
            f"unknown dtype {visible(given.dtype, 40)!r}",
            hint_for_unknown(given.dtype, DTYPES),
            option="options",
        )
    return given.quantization, "float32" if given.dtype in ("float", "float32") else "float16"


def drafts_of_vllm_options(read: GivenOptions) -> tuple[int | None, bool]:
    """Return K, if it is given, and whether vLLM verifies all K tokens, as in the fixed mode."""
    given = _parse_options(read)
    speculative = _speculative_config(given)
    mode = choose_mode(
        adaptive=_is_adaptive(speculative), asynchronous=given.async_scheduling is not False
    )
    version = version_of(ENGINES["vllm"].distribution)
    v2 = not _runs_v1(speculative) and why_not_v2_before_start(version) is None
    tokens = speculative["num_speculative_tokens"]
    known = isinstance(tokens, int) and tokens > 0
    return tokens if known else None, v2 and mode == "fixed"


def _with_dashes(words: Sequence[str]) -> list[str]:
    """Return options with dashes in their names, as vLLM reads them."""
    named = [word.partition("=") for word in words]
    return [
        (name.replace("_", "-") if name.startswith("--") else name) + equals + value
        for name, equals, value in named
    ]


def _parse_options(read: GivenOptions) -> argparse.Namespace:
    parser = OptionParser(prog="vllm serve", add_help=False)
    for names in OBJECTS:
        parser.add_argument(*names, type=partial(_parse_object, names[0].strip("-")), default={})
    parser.add_argument("--spec-method")
    parser.add_argument("--spec-model")
    parser.add_argument("--spec-tokens", type=int)
    for name in ("async-scheduling", "enable-lora", "enforce-eager"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    parser.add_argument("--prefill-context-parallel-size", "-pcp", type=int, default=1)
    parser.add_argument("--api-server-count", "-asc", type=int)
    parser.add_argument("--distributed-executor-backend")
    given, others = parser.parse_known_args(_with_dashes(read.words))
    for names in OBJECTS:
        if dotted := [word for word in others if word.startswith(tuple(f"{n}." for n in names))]:
            raise UsageError(
                f"cannot read {visible(dotted[0], 60)}: it is one key of an object",
                f"Give {names[0].strip('-')} as JSON, with all its keys.",
                option="options",
            )
    return given


def _parse_object(name: str, text: str) -> dict[str, Any]:
    if name == "speculative-config" and text in ("", "None", "null"):  # nothing, as without it
        return {}
    try:
        body = parse_json(text, name)
    except InputError as error:
        raise UsageError(str(error), option="options") from error
    if not isinstance(body, dict):
        raise UsageError(f"{name} must be an object, got {visible(text, 40)}", option="options")
    return body
