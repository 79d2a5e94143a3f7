"""The options of `vllm serve` that decide how ngramkit drafts, read without vLLM."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown
from ngramkit.basics.machine import version_of
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import parse_json
from ngramkit.engines.config import CONFIG_VARIABLE, ENGINES, DraftConfig
from ngramkit.engines.options_file import FILE_OPTION, GivenOptions
from ngramkit.engines.vllm_modes import UNUSED_KEYS, V1_CLASS, choose_mode, why_not_v2

REASON_FOR_MODE = {
    "fixed": "asynchronous scheduling",
    "trimmed": "--no-async-scheduling",
    "adaptive": "enable_adaptive_verification is true",
}
SHORTCUTS = {  # options of vLLM -> keys of --speculative-config
    "spec_method": "method",
    "spec_model": "model",
    "spec_tokens": "num_speculative_tokens",
}
LOOKUP_KEYS = ("prompt_lookup_max", "prompt_lookup_min")  # of vLLM's own n-gram drafter
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")  # of vLLM and SGLang
NGRAM_SETTING = """'{"method": "ngram", "num_speculative_tokens": 5}'"""


class OptionParser(argparse.ArgumentParser):
    """A parser of a server's options that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"cannot read options: {visible(message)}", option="options")


def effects_of_vllm_options(read: GivenOptions, config: DraftConfig | None) -> Iterator[str]:
    """Yield what follows from the options of `vllm serve`: the runner and the mode first.

    `config`: that of NGRAMKIT_DRAFT. Raises UsageError for values that cannot be read.
    """
    given = _parse_options(_as_vllm_reads(read.words))
    speculative, version = _speculative_config(given), version_of(ENGINES["vllm"].distribution)
    adaptive = speculative.get("enable_adaptive_verification") is True
    used = config or _additional_config_of(given)
    mode, runner = _mode_and_runner(given, version, configured=used is not None)
    yield from runner
    yield from _refused_speculation(given)
    false = {name.replace("_", "-") for name in read.false}
    if "async-scheduling" in false and given.async_scheduling is not False:
        yield (
            f"async-scheduling: false in {read.file} has no effect: vLLM leaves out what is false; "
            "write no-async-scheduling: true"
        )
    yield from effects_of_unread_file(read.words)
    if mode is None:
        return
    if used is not None and (unused := used.unused(UNUSED_KEYS.get(mode, ()))):
        yield f"in this mode these keys have no effect: {', '.join(unused)}"
    if used is config and "ngramkit" in given.additional_config:
        cause = f"{CONFIG_VARIABLE} is set" if config else "Model Runner V1 does not read it"
        yield f"ngramkit in --additional-config has no effect: {cause}"
    if lookups := [key for key in LOOKUP_KEYS if key in speculative]:
        yield f"only vLLM's own n-gram drafter uses {' and '.join(lookups)}"
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


def _mode_and_runner(
    given: argparse.Namespace, version: str | None, *, configured: bool
) -> tuple[str | None, list[str]]:
    """Return the mode and lines about the runner.

    The mode is None if ngramkit does not draft, "" if V2 cannot.
    """
    if _runs_v1(given):
        return "trimmed", ["Model Runner V1, trimmed mode: method is custom_class"]
    speculative = _speculative_config(given)
    method = speculative["method"]
    if method != "ngram":
        got = "nothing" if method is None else visible(str(method), 40)
        return None, [
            f"ngramkit does not draft: method must be ngram, got {got}",
            f"write --speculative-config {NGRAM_SETTING}",
        ]
    if not configured:
        own = "ngramkit does not draft, but vLLM's own n-gram drafter"
        return None, [f"{own}: set {CONFIG_VARIABLE}, or ngramkit in --additional-config"]
    if (why := why_not_v2(version)) is not None:
        return "", [f"cannot draft in vLLM's Model Runner V2: {why}"]
    mode = choose_mode(
        adaptive=speculative.get("enable_adaptive_verification") is True,
        asynchronous=given.async_scheduling is not False,
    )
    return mode, [f"Model Runner V2, {mode} mode: {REASON_FOR_MODE[mode]}"]


def _refused_speculation(given: argparse.Namespace) -> Iterator[str]:
    """Yield what vLLM 0.33 refuses in the configuration of both drafters that ngramkit replaces."""
    for flag, key in SHORTCUTS.items():
        if getattr(given, flag) is not None and key in given.speculative_config:
            yield f"vLLM refuses --{flag.replace('_', '-')} if --speculative-config has {key} too"
    speculative = _speculative_config(given)
    if speculative["method"] not in ("ngram", "custom_class"):
        return
    tokens = speculative["num_speculative_tokens"]
    if (_as_whole(tokens) or 0) < 1:
        got = "nothing" if tokens is None else visible(repr(tokens), 40)
        yield f"vLLM refuses the start: num_speculative_tokens must be at least 1, got {got}"
    given_lookups = [key for key in LOOKUP_KEYS if speculative.get(key) is not None]
    lookups = [_as_whole(speculative[key]) or 0 for key in given_lookups]
    for key, value in zip(given_lookups, lookups, strict=True):
        if value < 1:
            got = visible(repr(speculative[key]), 40)
            yield f"vLLM refuses the start: {key} must be at least 1, got {got}"
    if speculative["method"] == "ngram" and lookups and lookups[-1] > lookups[0] > 0:
        yield "vLLM refuses the start: prompt_lookup_min must not exceed prompt_lookup_max"


def _as_whole(value: Any) -> int | None:
    """Return the whole number that pydantic reads, also from "5" and 5.0; None if there is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if isinstance(value, int | float) else None


def effects_of_unread_file(words: Sequence[str]) -> Iterator[str]:
    if any(word.startswith(f"{FILE_OPTION}=") for word in words):
        yield f"{FILE_OPTION}=FILE is not read: write {FILE_OPTION} FILE"


def additional_draft_config(additional: Mapping[str, Any]) -> DraftConfig | None:
    """Return the configuration that --additional-config holds. Raises as `DraftConfig.parse`."""
    if "ngramkit" not in additional:
        return None
    given, where = additional["ngramkit"], "ngramkit in --additional-config"
    if not isinstance(given, dict):
        raise UsageError(f"{where} must be an object", 'write {"ngramkit": {"drafter": "blend"}}')
    return DraftConfig.parse(given, where)


def config_in_options(read: GivenOptions) -> DraftConfig | None:
    """Return the configuration in vLLM's options. Raises as `effects_of_vllm_options`."""
    return _additional_config_of(_parse_options(_as_vllm_reads(read.words)))


def _additional_config_of(given: argparse.Namespace) -> DraftConfig | None:
    return None if _runs_v1(given) else additional_draft_config(given.additional_config)


def _runs_v1(given: argparse.Namespace) -> bool:
    """Return whether ngramkit drafts in V1, which does not read --additional-config."""
    speculative = _speculative_config(given)
    return (speculative["method"], speculative["model"]) == ("custom_class", V1_CLASS)


def _speculative_config(given: argparse.Namespace) -> dict[str, Any]:
    shortcuts = {key: getattr(given, flag) for flag, key in SHORTCUTS.items()}
    values = given.speculative_config.items()
    return {**shortcuts, **{key.replace("-", "_"): value for key, value in values}}


def weight_options(read: GivenOptions) -> tuple[str | None, str]:
    """Return --quantization of vLLM or SGLang, and float32 or float16 for the type of weights.

    Both serve checkpoints of 32 bits in 16 unless --dtype asks for 32. Raises UsageError for an
    unknown type.
    """
    parser = OptionParser(prog="options", add_help=False, allow_abbrev=False)
    parser.add_argument("--quantization", "-q")
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_known_args(_as_vllm_reads(read.words))[0]
    if given.dtype not in DTYPES:
        raise UsageError(
            f"unknown dtype {visible(given.dtype, 40)!r}",
            hint_for_unknown(given.dtype, DTYPES),
            option="options",
        )
    return given.quantization, "float32" if given.dtype in ("float", "float32") else "float16"


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
    parser.add_argument("--spec-tokens", type=int)
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
