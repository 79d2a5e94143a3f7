"""Requests of any log's files, in the order in which they stand, and the formats by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, meant
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import many, visible
from ngramkit.logs import agents, columns, openai, rollouts, servers
from ngramkit.logs.files import LogFile, log_files
from ngramkit.logs.losses import Losses
from ngramkit.logs.request import LeftOut, Line, LoggedRequest, Reader

Files = str | Path | Iterable[str | Path]


@dataclass(frozen=True)
class LogFormat:
    """A format: its reader, and how a file of it is told, by its first object of JSON (`matches`)
    or a line of text (`marks`)."""

    name: str
    title: str
    read: Reader
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    marks: Callable[[str], bool] | None = None


def _has(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda body: body.keys() >= set(keys)


# The order in which they are tried: what has keys of its own comes first.
FORMATS = {
    each.name: each
    for each in (
        LogFormat("vllm", "vLLM's log", servers.read_vllm, marks=servers.is_vllm),
        LogFormat("sglang", "SGLang's request log", servers.read_sglang, marks=servers.is_sglang),
        LogFormat(
            "mini-swe-agent",
            "mini-swe-agent's trajectories",
            agents.read_mini_swe_agent,
            lambda body: str(body.get("trajectory_format", "")).startswith("mini-swe-agent"),
        ),
        LogFormat(
            "swe-agent",
            "SWE-agent's trajectories",
            agents.read_swe_agent,
            _has("trajectory", "history", "info"),
        ),
        LogFormat(
            "openhands", "OpenHands' trajectories", agents.read_openhands, agents.is_openhands
        ),
        LogFormat(
            "tau-bench", "tau-bench's results", agents.read_tau_bench, _has("task_id", "traj")
        ),
        LogFormat(
            "verl", "verl's rollouts", rollouts.read_verl, _has("input", "output", "score", "step")
        ),
        LogFormat("nemo-rl", "NeMo-RL's rollouts", rollouts.read_nemo_rl, rollouts.is_nemo_rl),
        LogFormat("prime-rl", "prime-rl's rollouts", rollouts.read_prime_rl, rollouts.is_prime_rl),
        LogFormat(
            "slime", "slime's rollouts", rollouts.read_slime, _has("response", "response_length")
        ),
        LogFormat("openai", "requests of OpenAI's API", openai.read_openai, openai.is_openai),
        LogFormat("columns", "prompts and outputs", columns.read_columns, columns.is_columns),
    )
}
KNOWN = [name for name in FORMATS if name != "columns"]  # those that are chosen by name


WHERE = ("model", "kind", "run", "name")  # fields that requests are chosen by


def read_log(
    files: Files,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[LoggedRequest]:
    """Yield every request of the files, and of the files in folders.

    `format` is one of FORMATS; None: it is recognised, file by file, and printed. `columns` names
    the columns of a JSON log by field (prompt, output, ...). `where` chooses requests by WHERE,
    {"model": NAME}. Records that cannot be used are left out; at the end one line counts them by
    reason, and one warns if several models wrote the answers.

    Raises UsageError for an unknown format or field, InputError for a file that is missing, damaged
    or in none of the formats, and if no request is left.
    """
    named = _named(format, columns)
    wanted = _wanted(where)
    losses = Losses()
    listed = log_files(files)
    formats: list[tuple[LogFile, LogFormat]] = []
    for path in listed.paths:
        try:
            file = LogFile(path, losses.parts)
            formats.append((file, named or _recognised(file)))
        except InputError as error:
            if path not in listed.inside:
                raise
            losses.add_file(error)
    if not formats:
        raise losses.unreadable(KNOWN)
    losses.files.update(listed.left_out)
    models: Counter[str] = Counter()
    for form, group in groupby(formats, key=lambda pair: pair[1]):
        of_form = [file for file, _ in group]
        what = many(len(of_form), "file") if len(of_form) > 1 else str(of_form[0].path)
        reporter.note(f"log: {what}, {form.title}" + ("" if named else " (by its content)"))
        lines = chain.from_iterable(_lines(file, form, losses) for file in of_form)
        for found in form.read(lines):
            if isinstance(found, LeftOut):
                losses.add(found)
                continue
            if not all(getattr(found, field) == value for field, value in wanted):
                losses.others += 1
                continue
            models[found.model] += 1
            yield found
    losses.report(reporter, models.total())
    named_models = [name for name in models if name]
    if len(named_models) > 1:
        counted = ", ".join(f"{visible(m, 60)} ({models[m]:,})" for m in named_models[:SHOWN])
        reporter.note(
            f"answers of {many(len(named_models), 'model')} are mixed: {counted}; "
            f"choose one by where, model={visible(named_models[0], 60)}"
        )
    if not models and (losses.first or losses.others):
        raise losses.error(wanted)


SHOWN = 5  # models


def _wanted(where: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Return the fields and values that requests must have. Raises UsageError for another field."""
    wanted = dict(where or {})
    for name, value in wanted.items():
        if name not in WHERE:
            raise UsageError(f"unknown field {name!r} of where", meant(name, WHERE), option="where")
        if not isinstance(value, str):
            raise UsageError(
                f"where must be texts by field, got {value!r:.60}",
                'Give {"model": "NAME"}.',
                option="where",
            )
    return list(wanted.items())


def _named(name: str | None, names: Mapping[str, str] | None) -> LogFormat | None:
    """Return the format that was asked for; None if none was."""
    if names:
        of_texts = isinstance(names, Mapping) and all(map(_is_text, [*names, *names.values()]))
        if not of_texts:
            hint = 'give {"prompt": "question", "output": "answer"}'
            raise UsageError(f"columns are no names by field: {names!r:.60}", hint)
        if name not in (None, "columns"):
            raise UsageError(
                f"columns are for JSON lines, not for the format {name}",
                "leave out one of them",
                option=("columns", "format"),
            )
        return replace(FORMATS["columns"], read=columns.reader_of(names))
    if name is not None and name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", meant(name, FORMATS), option="format")
    return FORMATS[name] if name else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _recognised(file: LogFile) -> LogFormat:
    """Return the format that the file has. Raises InputError if it has none of FORMATS."""
    if file.is_torch:
        return FORMATS["slime"]
    first: Any = None
    for body in file.samples:
        first = body if first is None else first
        for form in FORMATS.values():
            if form.matches and form.matches(body):
                return form
    beginning = file.beginning
    for line in beginning:
        for form in FORMATS.values():
            if form.marks and form.marks(line):
                return form
    if not beginning:
        raise InputError(f"{file.path} holds no requests", "check the path")
    where = f"{file.path}, line 1" if file.is_json else str(file.path)
    if isinstance(first, dict) and "question_id" in first:
        if "choices" not in first:
            raise InputError(
                f"{where}: a question without an answer", "`ngramkit bench` has a model answer it"
            )
        raise InputError(
            f"{where}: an answer as FastChat writes it, without its question",
            "replay it with questions=FILE",
            option="questions",
        )
    raise InputError(
        f"{where}: no requests in a known format",
        f"name one ({', '.join(KNOWN)}), or the columns of prompt and output",
        option=("format", "columns"),
    )


def _lines(file: LogFile, form: LogFormat, losses: Losses) -> Iterator[Line]:
    if file.is_torch:
        if form is not FORMATS["slime"]:
            raise InputError(f"{file.path} is a file of torch.save", "its format is slime")
        return rollouts.torch_samples(file.path)
    if form.marks:
        return file.lines()
    return file.objects(lambda where, error: losses.add(LeftOut.of(where, error)))


def in_time(requests: Iterable[LoggedRequest]) -> list[LoggedRequest]:
    """Return the requests by their time where all have one, else as they stand."""
    listed = list(requests)
    if any(request.time is None for request in listed):
        return listed
    return sorted(listed, key=lambda request: request.time or 0.0)
