"""Questions and recorded answers, read from the usual files.

Question files, recognised by their keys:

    {"question_id": 81, "category": "writing", "turns": ["...", "..."]}      MT-Bench, Spec-Bench
    {"question_id": "...", "category": "...", "messages": [...]}             SPEED-Bench, prepared
    {"task_id": "HumanEval/0", "prompt": "...", "canonical_solution": ...}   HumanEval
    {"question": "...", "answer": "..."}                                     GSM8K
    {"prompt": "..."}                                 plain; id and category optional
    a .txt file                                       plain, one per line

Spec-Bench and SPEED-Bench can also be named, see ngramkit.evaluate.question_sets.

Recorded answers have any format of ngramkit.logs; with a question file they are FastChat's:

    {"question_id": 81, "choices": [{"turns": ["...", "..."]}]}

Records are tokenised as the model saw them: the answer follows the prompt and includes EOS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ngramkit.basics.arguments import check_fields, check_types
from ngramkit.basics.errors import (
    InputError,
    UsageError,
    require_between,
    require_list,
    require_texts,
)
from ngramkit.basics.models import DEFAULT_MODEL
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted, visible
from ngramkit.corpus.chat import Message, Template
from ngramkit.corpus.files import reader_suffix
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.prompts import chat_ids
from ngramkit.drafters.base import TokenArray, token_ids_of
from ngramkit.drafters.references import Given as References
from ngramkit.evaluate.question_sets import PREPARE, find_set, has_placeholder
from ngramkit.evaluate.statistics import Units
from ngramkit.logs.conversations import find_predecessors
from ngramkit.logs.files import LogFile
from ngramkit.logs.hub import is_dataset
from ngramkit.logs.read import NewestRequests, read_log
from ngramkit.logs.request import FilePlace, LoggedRequest, require_field, text_of
from ngramkit.logs.request_tokenizer import RequestTokenizer

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.pending import PendingModel

EMBEDDED_QUESTIONS = 20  # questions of the embedded model
MAX_NAME_CHARACTERS = 80  # characters of a request's name and kind


@dataclass(frozen=True)
class Question:
    id: int | str
    category: str
    turns: list[str]  # the user's texts, in order

    def __post_init__(self) -> None:
        check_fields(self)
        require_list("turns", self.turns)
        object.__setattr__(self, "turns", list(self.turns))
        require_texts("turns", self.turns)
        require_texts("category", [self.category])
        require_texts("id", [str(self.id)])
        if not self.turns:
            raise UsageError("turns must not be empty", "Give at least one.", option="turns")


class Questions(tuple[Question, ...]):
    """Questions with the name of their file, up to its first dot."""

    name: str

    def __new__(cls, questions: Iterable[Question], name: str) -> Self:
        self = super().__new__(cls, tuple(questions))
        self.name = name
        return self


def require_files(*paths: str | Path | Any) -> None:
    for path in paths:
        if isinstance(path, str | Path) and not is_dataset(path) and not Path(path).exists():
            raise InputError(f"no such file: {path}", "Check the path.")


def require_questions(given: Any) -> None:
    """Raise InputError for a missing file, UsageError for an unknown configuration of a set."""
    if find_set(given) is None:
        require_files(given)


def questions_for(
    given: str | Path | Sequence[Question] | None,
    model: str,
    limit: int | None = None,
    reporter: Reporter = SILENT,
) -> Questions:
    """Return the first `limit` questions. Raises UsageError if there are none."""
    if isinstance(given, str | Path):
        given = read_questions(Path(given), reporter)
    elif given is None:
        if model != DEFAULT_MODEL:
            raise UsageError(
                f"questions must be given for {model}", "Give a file.", option="questions"
            )
        given = embedded_questions()
    if not isinstance(given, Questions):
        require_list("questions", given, "Give a file, or Questions.")
        given = tuple(given)
    if not given:
        raise UsageError("questions must not be empty", "Give at least one.", option="questions")
    if not all(isinstance(question, Question) for question in given):
        raise UsageError(
            "questions must be a file or Questions",
            'Give a file, or as ngramkit.Question(1, "mine", ["a text"]).',
            option="questions",
        )
    most, count = Counter(str(question.id) for question in given).most_common(1)[0]
    if count > 1:  # results are by id, and 1 is "1" there
        raise UsageError(
            f"ids of questions must be unique, got {most} {count} times", option="questions"
        )
    return Questions(given[: checked_limit(limit)], getattr(given, "name", "questions"))


def checked_limit(limit: int | None) -> int | None:
    (limit,) = check_types(int, limit=limit)
    if limit is not None:
        require_between("limit", limit, 1)
    return limit


def read_questions(path: Path, reporter: Reporter = SILENT) -> Questions:
    """Read a file or a named set. Raises InputError for unknown shapes and repeated ids."""
    named = find_set(path)
    if named is not None:
        records = named.records(reporter)
        places = ((f"{path}, question {n}", record) for n, record in enumerate(records, 1))
        return Questions(_require_distinct(places, reporter), named.label)
    require_files(path)
    file = LogFile(path)
    if reader_suffix(path) == ".txt":
        questions = [Question(n, "all", [text]) for n, (_, text) in enumerate(file.lines(), 1)]
    else:
        questions = list(_require_distinct(file.objects(), reporter))
    if not questions:
        raise InputError(f"cannot read {path}: it has no questions", "Check the path.")
    return Questions(questions, path.name.split(".")[0])


def embedded_questions(count: int = EMBEDDED_QUESTIONS) -> Questions:
    """Return beginnings of code that the embedded model never saw."""
    from ngramkit.demo import demo_prompts

    prompts = demo_prompts(count)
    return Questions((Question(w, "python", [text]) for w, text in prompts), "python-stdlib")


def _require_distinct(
    records: Iterable[tuple[FilePlace | str, Any]], reporter: Reporter
) -> Iterator[Question]:
    seen: set[str] = set()
    others = 0
    for number, (where, body) in enumerate(records, 1):
        question = _parse_question(where, number, body)
        if str(question.id) in seen:
            raise InputError(f"{where}: ids must be unique, got {question.id} twice")
        seen.add(str(question.id))
        if "messages" in body:
            others += len(_messages(body)) - len(question.turns)
        yield question
    if others:
        reporter.note(f"left out {counted(others, 'message')} of other roles than user")


def _messages(body: Mapping[str, Any]) -> list[Any]:
    messages = body["messages"]
    return messages if isinstance(messages, list) else [messages]


def _parse_question(where: FilePlace | str, number: int, body: dict[str, Any]) -> Question:
    category = text_of(body, "category") or "all"
    name = body.get("question_id", body.get("id", number))
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise InputError(f"{where}: the id must be a number or a text, got {name!r}")
    if has_placeholder(body):
        raise InputError(f"{where}: a question must have a text, got a placeholder", PREPARE)
    key = "turns"
    turns: Any
    if "messages" in body:
        turns = [
            each.get("content")
            for each in _messages(body)
            if isinstance(each, dict) and each.get("role") == "user"
        ]
    elif "turns" in body:
        turns = body["turns"]
    elif "prompt" in body:
        key, turns = "prompt", [body["prompt"]]
        if "task_id" in body and "canonical_solution" in body:
            category, name = "humaneval", str(body["task_id"])
    elif "question" in body:
        key, turns = "question", [body["question"]]
        category = text_of(body, "category") or "gsm8k"
    else:
        raise InputError(
            f"{where}: a question must have `turns`, `prompt` or `question`",
            "Use the format of MT-Bench, Spec-Bench, HumanEval or GSM8K, or lines with a prompt.",
        )
    if not _is_texts(turns) or not turns or not all(turns):
        wanted = "a list of texts" if key == "turns" else "a text"
        raise InputError(f"{where}: `{key}` must be {wanted}")
    try:
        return Question(name, category, turns)
    except UsageError as error:  # half a surrogate pair
        raise InputError(f"cannot read {where}: {error}") from error


@dataclass(frozen=True)
class Turn:
    """One request: the whole prompt and the whole answer."""

    prompt: TokenArray  # int32[n], earlier turns of the question included
    answer: TokenArray  # int32[m], ends with EOS if the tokenizer has one
    references: References = ()  # what the answer probably repeats
    longest: int | None = None  # maximum tokens of the answer; None: unknown
    place: int = 0  # in the log, from 0
    after: int | None = None  # the place of the request that it continues
    kind: str = ""  # of the request; "": the record's category

    def __post_init__(self) -> None:
        for name in ("prompt", "answer"):
            object.__setattr__(self, name, token_ids_of(name, getattr(self, name)))


@dataclass(frozen=True)
class Record:
    """One question or conversation with all its turns."""

    name: str
    category: str
    turns: list[Turn]
    run: str = ""  # trial or training step of the same tasks
    agent: str = ""  # that recorded it in a session
    model: str = ""  # that wrote its first answer, if known


def read_records(
    answers: str | Path | Sequence[str | Path],
    questions: str | Path | None,
    tokenizer: TextTokenizer,
    template: str,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    newest: NewestRequests | None = None,
    reporter: Reporter = SILENT,
) -> tuple[list[Record], Template | None]:
    """Return all conversations, and their prompts' template (None: used as they are).

    Requests are sorted by time, records by their first request. `format`, `columns`, `where`,
    `newest`: see ngramkit.logs.read. Raises InputError without answers.
    """
    files = [answers] if isinstance(answers, str | Path) else list(answers)
    if questions is not None:
        requests = _with_questions(files, Path(questions), reporter)
    else:
        log = read_log(
            files, format=format, columns=columns, where=where, newest=newest, reporter=reporter
        )
        requests = sorted(log, key=attrgetter("time"))
    if not requests:
        names = ", ".join(map(str, files[:3]))
        raise InputError(f"cannot read {names}: no answers", "Check the path.")
    tokens = RequestTokenizer(tokenizer, template, reporter)
    records: list[Record] = []
    ending_at: dict[int, Record] = {}  # by the place of their last turn so far
    encoded = list(tokens.encoded(requests))
    before = find_predecessors(
        [each for each, _ in encoded], tokenizer.decode, tokenizer.eos_token or ""
    )
    for place, ((request, ids), after) in enumerate(zip(encoded, before, strict=True)):
        record = None if after is None else ending_at.pop(after, None)
        name, kind, run, model = (
            visible(text, MAX_NAME_CHARACTERS)
            for text in (request.name, request.kind, request.run, request.model)
        )
        if record is None:
            record = Record(name or str(place + 1), kind, [], run, request.agent, model)
            records.append(record)
        record.turns.append(Turn(*ids, place=place, after=after, kind=kind))
        ending_at[place] = record
    return records, tokens.template


def first_prompt_hash(record: Record) -> int | None:
    """Return the hash of the first prompt; None for one without a text, which is at most a BOS."""
    prompt = record.turns[0].prompt
    return hash(prompt.tobytes()) if len(prompt) > 1 else None


def units_of(records: Sequence[Record], *, dependent: bool = False) -> Units:
    """Return the independent units: tasks, or conversations if no task has two.

    Records of a task share category and name, or the first prompt, or one continues the other.
    """
    tasks = list(range(len(records)))  # union-find: an earlier record of the task, or itself

    def task_of(number: int) -> int:
        while tasks[number] != number:
            number = tasks[number] = tasks[tasks[number]]
        return number

    branches = {record.turns[0].after for record in records} - {None}
    known: dict[Any, int] = {}
    for number, record in enumerate(records):
        first, prompt = record.turns[0], first_prompt_hash(record)
        alike: list[Any] = [(record.category, record.name)]
        alike += [] if prompt is None else [("prompt", prompt)]
        alike += [turn.place for turn in record.turns if turn.place in branches]
        alike += [] if first.after is None else [first.after]
        for key in alike:
            tasks[task_of(number)] = task_of(known.setdefault(key, number))
    of = [task_of(number) for number in range(len(records))]
    several = len(set(of)) < len(of)
    return Units("tasks" if several else "conversations", of if several else None, dependent)


def _with_questions(
    files: Sequence[str | Path], questions: Path, reporter: Reporter
) -> list[LoggedRequest]:
    require_files(*files)
    by_id = {str(question.id): question for question in read_questions(questions, reporter)}
    unanswered = set(by_id)
    requests: list[LoggedRequest] = []
    for where, body in (line for file in files for line in LogFile(Path(file)).objects()):
        if "question_id" not in body:
            raise InputError(
                f"{where}: an answer must have `question_id`",
                "Use FastChat's formats of questions and answers.",
            )
        question = by_id.get(str(body["question_id"]))
        if question is None:
            raise InputError(
                f"{where}: questions must be in {questions}, got {body['question_id']}",
                "Check that the files belong together.",
            )
        unanswered.discard(str(question.id))
        choices = _parse_choices(where, body)
        for number, answers in enumerate(choices):
            run = str(number) if len(choices) > 1 else ""
            requests += _alternate_turns(where, question, answers, run)
    if unanswered and requests:
        reporter.note(f"{len(unanswered):,} of {counted(len(by_id), 'question')} have no answer")
    return requests


def _alternate_turns(
    where: FilePlace, question: Question, answers: list[str], run: str
) -> Iterator[LoggedRequest]:
    if len(answers) > len(question.turns):
        raise InputError(
            f"{where}: answers must match {len(question.turns)} turns, got {len(answers)}",
            "Check that the files belong together.",
        )
    before: list[Message] = []
    for number, (turn, answer) in enumerate(zip(question.turns, answers, strict=False)):
        before.append(Message("user", turn))
        name = str(question.id)
        yield LoggedRequest(
            tuple(before), answer, name, question.category, run=run, turn=number, where=where
        )
        before.append(Message("assistant", answer))


def _parse_choices(where: FilePlace, body: dict[str, Any]) -> list[list[str]]:
    choices = [
        require_field(where, each, "turns", list)
        for each in require_field(where, body, "choices", list)
    ]
    if not choices or not all(map(_is_texts, choices)):
        raise InputError(f"{where}: `choices` must have `turns`, each a list of texts")
    return choices


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def prompts_of_conversation(
    model: LanguageModel | PendingModel,
    template: Template,
    question: Question,
    turns: Sequence[Any],
    room: int = 1,
) -> Iterator[TokenArray]:
    """Yield prompts until one leaves no `room`; the caller appends to `turns`."""
    messages: list[Message] = []
    for number, text in enumerate(question.turns):
        if number:
            messages.append(Message("assistant", turns[number - 1].text))
        messages.append(Message("user", text))
        prompt = chat_ids(model.tokenizer, template, messages)
        full = model.context is not None and len(prompt) + room > model.context
        if full or not len(prompt):
            return
        yield prompt


def answer_text(tokenizer: TextTokenizer, template: Template, token_ids: Sequence[int]) -> str:
    text = tokenizer.decode_answer(token_ids, special=False)
    return text if template.name == "none" else text.strip()
