"""Answers to replay: files, Records or recorded evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.errors import UsageError, require_between, require_list, require_texts
from ngramkit.basics.models import chosen_model
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import Template, require_template
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.evaluate.recorded_evidence import RecordedEvidence
from ngramkit.evaluate.records import Record, Turn, read_records, require_files, require_questions
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of
from ngramkit.logs.files import log_files
from ngramkit.logs.hub import is_dataset
from ngramkit.logs.read import NewestRequests


def distinct_budgets(budgets: Iterable[int], most: int) -> list[int]:
    require_list("budgets", budgets)
    given: list[Any] = list(budgets)
    if not given or not all(isinstance(each, Integral) for each in given):
        raise UsageError("budgets must be whole numbers of at least 1 each", option="budget")
    for each in given:
        require_between("budget", each, 1, most)
    return list(dict.fromkeys(int(each) for each in given))


class ToReplay(NamedTuple):
    """Recorded answers, and whose token ids they are."""

    read_by: TokenizerRecord | TextTokenizer
    records: list[Record]
    template: Template | None = None  # of their prompts
    evidence: RecordedEvidence | None = None


def answers_or_evidence(
    answers: Any,
    questions: str | Path | None,
    evidence: str | Path | None,
    model: Any,
    template: str,
    reading: Mapping[str, Any],
    reporter: Reporter,
) -> ToReplay:
    """Read answers as `read_answers` does, or those of a folder of `record`."""
    if evidence is not None:
        refuse_options("evidence", **reading, template=None if template == "auto" else template)
        if (answers or questions) is not None:
            raise UsageError(
                "cannot use answers with evidence: it has its own",
                "Leave out answers and questions.",
                option="evidence",
            )
        if isinstance(model, TextTokenizer | TokenizerRecord):
            raise UsageError(
                f"model must be the recorded model with evidence, got a {type(model).__name__}",
                "Name the model, or leave it out: missing contexts are then not verified.",
                option="model",
            )
        recorded = RecordedEvidence.open(evidence)
        return ToReplay(recorded.folder.tokenizer, recorded.answers(), evidence=recorded)
    if answers is None:
        raise UsageError(
            "answers must be given, or a folder of `record`",
            "Give answers or evidence.",
            option=("answers", "evidence"),
        )
    return read_answers(answers, questions, model, template, reading, reporter)


def read_answers(
    answers: Any,
    questions: str | Path | None,
    model: Any,
    template: str,
    reading: Mapping[str, Any],
    reporter: Reporter,
    newest: NewestRequests | None = None,
    name: str = "answers",
) -> ToReplay:
    """Read answers: a file or several, or Records.

    Errors call them `name`. `reading`: options of `read_log`, for files only.
    """
    require_template(template)
    one = isinstance(answers, str) or not isinstance(answers, Iterable)
    listed = [answers] if one else list(answers)
    odd = [each for each in listed if not isinstance(each, str | Path | Record)]
    if hasattr(answers, "columns"):  # a DataFrame's items are its columns
        odd = [answers]
    if odd:
        raise UsageError(
            f"{name} must be files or Records, got {type(odd[0]).__name__}",
            'Write a file with a line of {"prompt": ..., "output": ...} each, and name that.',
            option=name,
        )
    given = [record for record in listed if isinstance(record, Record)]
    if given or questions is not None:
        refuse_options("Records" if given else "questions", **reading)
    if not given:
        require_files(*listed)
        if questions is not None:
            require_questions(questions)
    tokenizer = getattr(model, "tokenizer", model)  # a LanguageModel's
    if isinstance(tokenizer, TokenizerRecord) and not given:
        raise UsageError(
            f"model must have a tokenizer to read {name}, got a TokenizerRecord",
            "Name the model, or give ngramkit.load_tokenizer(MODEL).",
            option="model",
        )
    if not isinstance(tokenizer, TextTokenizer | TokenizerRecord):
        tokenizer = load_tokenizer(chosen_model(tokenizer, reporter).name)
    if given:
        return ToReplay(tokenizer, _with_turns(given, record_of(tokenizer).vocabulary))
    records, form = read_records(
        listed, questions, tokenizer, template, newest=newest, reporter=reporter, **reading
    )
    return ToReplay(tokenizer, records, form)


def _with_turns(records: list[Record], vocabulary: int) -> list[Record]:
    """Return the records. Raises UsageError for no prompt or unknown ids; kernels trust them."""
    for record in records:
        for name in ("name", "category", "run"):  # they are written to files
            require_texts(name, [getattr(record, name)])
        turns = record.turns if isinstance(record.turns, list | tuple) else ()
        if not turns or not all(isinstance(each, Turn) and len(each.prompt) for each in turns):
            raise UsageError(
                f"turns of the Record {record.name!r:.60} must be Turns, each with a prompt",
                "Give turns=[ngramkit.Turn(prompt, answer)], of token ids.",
                option="answers",
            )
        most = max(int(ids.max(initial=0)) for each in turns for ids in (each.prompt, each.answer))
        if most >= vocabulary:
            raise UsageError(
                f"ids of the Record {record.name!r:.60} must be below {vocabulary:,}, got {most}",
                "Give the TokenizerRecord of its ids as model.",
                option="model",
            )
    return records


def refuse_options(source: str, **options: Any) -> None:
    """Raise UsageError for options that have no effect on answers of `source`."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"cannot use {name} with {source}", "Leave one out.", option=name)


def named_files(answers: Any, questions: Any, evidence: Any) -> list[Path]:
    """Return the files that are read, without Records."""
    several = answers if isinstance(answers, Iterable) else ()
    given = [answers] if isinstance(answers, str | Path) else several
    named = [Path(each) for each in given if isinstance(each, str | Path)]
    exist = all(each.exists() or is_dataset(each) for each in named)
    found = log_files(named).paths if named and exist else []
    return [*found, *(Path(each) for each in (questions, evidence) if each is not None)]


def has_sessions(answers: Any, records: Sequence[Record]) -> bool:
    """Return whether records are of agents' sessions on this machine."""
    given = [answers] if isinstance(answers, str | Path) else answers or ()
    published = bool(given) and all(isinstance(g, str | Path) and is_dataset(g) for g in given)
    return not published and any(record.agent for record in records)


def count_references(records: Sequence[Record]) -> int:
    """Return the number of requests with references."""
    return sum(len(turn.references) > 0 for record in records for turn in record.turns)
