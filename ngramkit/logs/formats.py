"""The formats of logs by name, and which one a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ngramkit.errors import InputError, UsageError, meant
from ngramkit.logs import (
    columns,
    mini_swe_agent,
    nemo_rl,
    openai,
    openhands,
    prime_rl,
    sglang,
    slime,
    swe_agent,
    tau_bench,
    verl,
    vllm,
)
from ngramkit.logs.files import LogFile
from ngramkit.logs.request import Found, Line

Reader = Callable[[Iterator[Line]], Iterator[Found]]


@dataclass(frozen=True)
class LogFormat:
    """A format: its reader, and how it is told by the first object, or by a line of text."""

    name: str
    title: str
    read: Reader
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    marks: Callable[[str], bool] | None = None


# The order in which they are tried: what has keys of its own comes first.
FORMATS = {
    each.name: each
    for each in (
        LogFormat("vllm", "vLLM's log", vllm.read, marks=vllm.marks),
        LogFormat("sglang", "SGLang's request log", sglang.read, marks=sglang.marks),
        LogFormat(
            "mini-swe-agent",
            "mini-swe-agent's trajectories",
            mini_swe_agent.read,
            mini_swe_agent.matches,
        ),
        LogFormat("swe-agent", "SWE-agent's trajectories", swe_agent.read, swe_agent.matches),
        LogFormat("openhands", "OpenHands' trajectories", openhands.read, openhands.matches),
        LogFormat("tau-bench", "tau-bench's results", tau_bench.read, tau_bench.matches),
        LogFormat("verl", "verl's rollouts", verl.read, verl.matches),
        LogFormat("nemo-rl", "NeMo-RL's rollouts", nemo_rl.read, nemo_rl.matches),
        LogFormat("prime-rl", "prime-rl's rollouts", prime_rl.read, prime_rl.matches),
        LogFormat("slime", "slime's rollouts", slime.read, slime.matches),
        LogFormat("openai", "requests of OpenAI's API", openai.read, openai.matches),
        LogFormat("columns", "prompts and outputs", columns.read, columns.matches),
    )
}


def format_named(name: str) -> LogFormat:
    """Return the format of that name. Raises UsageError where there is none."""
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", meant(name, FORMATS), option="format")
    return FORMATS[name]


def recognised(file: LogFile) -> LogFormat | None:
    """Return the format that the file has; None where it has none of these."""
    if file.is_torch:
        return FORMATS["slime"]
    first = file.first
    if first is None:
        told = [each for each in FORMATS.values() if each.marks]
        for line in file.beginning:
            for each in told:
                if each.marks and each.marks(line):
                    return each
        return None
    if isinstance(first.get("event"), str) and first["event"].startswith("request."):
        return FORMATS["sglang"]
    return next((each for each in FORMATS.values() if each.matches and each.matches(first)), None)


def unknown(file: LogFile) -> InputError:
    """Return the error of a file that has no format known here."""
    if file.first is None and not file.beginning:
        return InputError(f"{file.path} holds no requests", "check the path")
    where = f"{file.path}, line 1" if file.is_json else str(file.path)
    return InputError(
        f"{where}: no requests in a known format",
        f"name one ({', '.join(FORMATS)}), or the columns of prompt and output",
        option=("format", "columns"),
    )
