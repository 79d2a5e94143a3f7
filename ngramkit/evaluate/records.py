"""Questions and recorded answers, read from the files that evaluations use and leave behind.

Question files of the usual benchmarks, told apart by their keys:

    {"question_id": 81, "category": "writing", "turns": ["...", "..."]}      MT-Bench, Spec-Bench
    {"task_id": "HumanEval/0", "prompt": "...", "canonical_solution": ...}   HumanEval
    {"question": "...", "answer": "..."}                                     GSM8K
    {"prompt": "..."}                                 plain; id and category optional
    a .txt file                                       plain, one per line

Recorded answers, in jsonl of three shapes:

    {"question_id": 81, "choices": [{"turns": ["...", "..."]}]}    FastChat, beside a question file
    {"prompt": "...", "output": "..."}                             taken as it stands
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}

Any of them may be gzipped. A record is tokenised as the model saw it: the answer is what follows
the prompt, EOS included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ngramkit.corpus import unpacking
from ngramkit.corpus.chat import OWN, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray, common_beginning
from ngramkit.drafters.references import Given as References
from ngramkit.errors import InputError, UsageError
from ngramkit.models import DEFAULT
from ngramkit.untrusted import parse_json

EMBEDDED = 20  # questions of the embedded model
Line = tuple[str, dict[str, Any]]  # where ("FILE, line N"), what


@dataclass(frozen=True)
class Question:
    id: int | str
    category: str
    turns: list[str]  # what the user says, one after another


class Questions(tuple[Question, ...]):
    """Questions with their name: that of the file up to its first dot."""

    name: str

    def __new__(cls, questions: Iterable[Question], name: str) -> Self:
        self = super().__new__(cls, tuple(questions))
        self.name = name
        return self


def require_files(*paths: str | Path | Any) -> None:
    """Raise InputError for a file of answers or questions that is not there."""
    for path in paths:
        if isinstance(path, str | Path) and not Path(path).exists():
            raise InputError(f"there is no file {path}", "check the path")


def questions_for(
    given: str | Path | Sequence[Question] | None, model: str, limit: int | None = None
) -> Questions:
    """Return the questions of a file, those that are given, or the embedded model's own.

    Only the first `limit` of them. Raises UsageError where there are none for `model`.
    """
    if isinstance(given, str | Path):
        given = read_questions(Path(given))
    elif given is None:
        if model != DEFAULT:
            raise UsageError("there are no questions", "give questions: a file", option="questions")
        given = embedded_questions()
    return Questions(given[:limit], getattr(given, "name", "questions"))


def read_questions(path: Path) -> Questions:
    """Return all questions in the file's order.

    Raises InputError, with file and line, where a line has none of the known shapes, or an id comes
    twice.
    """
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    questions = list(_plain(path) if suffix == ".txt" else _objects(path))
    if not questions:
        raise InputError(f"{path} holds no questions", "check the path")
    return Questions(questions, path.name.split(".")[0])


def embedded_questions(count: int = EMBEDDED) -> Questions:
    """Return the embedded model's own: beginnings of functions and classes that it never saw."""
    from ngramkit.demo import demo_prompts

    prompts = demo_prompts(count)
    return Questions((Question(w, "python", [text]) for w, text in prompts), "python-stdlib")


def _plain(path: Path) -> Iterator[Question]:
    for number, (_, text) in enumerate(text_lines(path), 1):
        yield Question(number, "all", [text])


def _objects(path: Path) -> Iterator[Question]:
    seen: set[int | str] = set()
    for number, (where, body) in enumerate(read_lines(path), 1):
        question = _question(where, number, body)
        if question.id in seen:
            raise InputError(f"{where}: a second question {question.id}", "ids must be unique")
        seen.add(question.id)
        yield question


def _question(where: str, number: int, body: dict[str, Any]) -> Question:
    category = str(body.get("category", "all"))
    name = body.get("question_id", body.get("id", number))
    if not isinstance(name, int | str):
        raise InputError(f"{where}: the id {name!r} is neither a number nor a text")
    if "turns" in body:
        return Question(name, category, _texts(where, body["turns"]))
    if "prompt" in body:
        if "task_id" in body and "canonical_solution" in body:
            category, name = "humaneval", str(body["task_id"])
        return Question(name, category, _texts(where, [body["prompt"]], "prompt"))
    if "question" in body:
        category = str(body.get("category", "gsm8k"))
        return Question(name, category, _texts(where, [body["question"]], "question"))
    raise InputError(
        f"{where}: neither `turns` nor `prompt` nor `question`",
        "MT-Bench, Spec-Bench, HumanEval, GSM8K, or lines with a prompt",
    )


def _texts(where: str, value: Any, key: str = "turns") -> list[str]:
    if not _is_texts(value) or not value or not all(value):
        wanted = "a list of texts" if key == "turns" else "a text"
        raise InputError(f"{where}: `{key}` is not {wanted}")
    return list(value)


@dataclass(frozen=True)
class Turn:
    """One request: the whole prompt the model saw, and all that it wrote."""

    prompt: TokenArray  # int32[n], earlier turns of the question included
    answer: TokenArray  # int32[m], the last is EOS where the tokenizer has one
    references: References = ()  # what the answer was likely to repeat
    longest: int | None = None  # tokens that it could have, at most; None: not known


@dataclass(frozen=True)
class Record:
    """One question with all its turns."""

    name: str
    category: str
    turns: list[Turn]


@dataclass(frozen=True)
class Conversation:
    name: str
    category: str
    messages: list[Message]
    plain: bool = False  # the first message is a finished prompt: no template


def read_records(
    answers: str | Path, questions: str | Path | None, tokenizer: TextTokenizer, template: str
) -> tuple[list[Record], Template | None]:
    """Return all records, in the answer file's order, and the template of their prompts.

    The template is that of `find_template`; None where all prompts are taken as they stand.

    Raises InputError, with file and line, where a line is not what the format says.
    """
    answers = Path(answers)
    lines = list(read_lines(answers))
    if not lines:
        raise InputError(f"{answers} holds no answers", "check the path")
    if questions is not None:
        conversations = _with_questions(lines, Path(questions))
    else:
        conversations = [_self_contained(where, body) for where, body in lines]
    plain = all(talk.plain for talk in conversations)
    form = None if plain else find_template(template, tokenizer)
    return [_tokenise(c, tokenizer, form) for c in conversations], form


def _with_questions(answers: Sequence[Line], questions: Path) -> list[Conversation]:
    by_id = {str(question.id): question for question in read_questions(questions)}
    conversations = []
    for where, body in answers:
        if "question_id" not in body:
            raise InputError(f"{where}: no `question_id`", "FastChat's question and answer format")
        question = by_id.get(str(body["question_id"]))
        if question is None:
            raise InputError(
                f"{where}: question {body['question_id']} is not in {questions}",
                "check that the files belong together",
            )
        conversations.append(_alternate(where, question, _answer_turns(where, body)))
    return conversations


def _alternate(where: str, question: Question, answers: list[str]) -> Conversation:
    if len(answers) > len(question.turns):
        raise InputError(
            f"{where}: {len(answers)} answers to {len(question.turns)} turns",
            "check that the files belong together",
        )
    messages = []
    for turn, answer in zip(question.turns, answers, strict=False):
        messages += [Message("user", turn), Message("assistant", answer)]
    return Conversation(str(question.id), question.category, messages)


def _answer_turns(where: str, body: dict[str, Any]) -> list[str]:
    choices = _get(where, body, "choices", lambda v: isinstance(v, list) and v, "a list")
    if not isinstance(choices[0], dict):
        raise InputError(f"{where}: choices[0] is not an object", "FastChat's answer format")
    turns: list[str] = _get(where, choices[0], "turns", _is_texts, "a list of strings")
    return turns


def _self_contained(where: str, body: dict[str, Any]) -> Conversation:
    name = str(body.get("question_id", body.get("id", where.rsplit(" ", 1)[-1])))
    category = str(body.get("category", "all"))
    if "messages" in body:
        return Conversation(name, category, _messages(where, body["messages"]))
    if "prompt" in body and "output" in body:
        prompt = _get(where, body, "prompt", _is_text, "a string")
        output = _get(where, body, "output", _is_text, "a string")
        messages = [Message("user", prompt), Message("assistant", output)]
        return Conversation(name, category, messages, plain=True)
    hint = "give questions, the question file" if "choices" in body else ""
    message = f"{where}: neither `messages` nor `prompt` and `output`"
    raise InputError(message, hint, option="questions")


def _messages(where: str, value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: `messages` is not a list", "objects with role and content")
    messages = []
    for item in value:
        ok = isinstance(item, dict) and item.get("role") in ("system", "user", "assistant")
        if not ok or not isinstance(item.get("content"), str):
            raise InputError(
                f"{where}: a message without a role (system, user, assistant) and a text content",
                "objects with role and content",
            )
        messages.append(Message(item["role"], item["content"]))
    if not any(message.role == "assistant" for message in messages):
        raise InputError(f"{where}: no message of the assistant", "there is nothing to replay")
    return messages


def _get(
    where: str, body: dict[str, Any], key: str, holds: Callable[[Any], Any], wanted: str
) -> Any:
    if key not in body:
        raise InputError(f"{where}: no `{key}`", f"it should be {wanted}")
    if not holds(body[key]):
        raise InputError(f"{where}: `{key}` is not {wanted}")
    return body[key]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _tokenise(talk: Conversation, tokenizer: TextTokenizer, template: Template | None) -> Record:
    eos = tokenizer.eos_token or ""
    # Some recorders leave the EOS in the text; templates add their own.
    messages = [Message(m.role, m.content.removesuffix(eos)) for m in talk.messages]
    turns = []
    for i, message in enumerate(messages):
        if message.role != "assistant":
            continue
        before = messages[:i]
        if talk.plain or template is None:
            turns.append(_turn(tokenizer, before[0].content, message.content))
        else:
            text, answer = template.prompt(before), template.joint + message.content
            turns.append(_turn(tokenizer, text, answer, whole=template.name == OWN))
    return Record(talk.name, talk.category, turns)


def _turn(tokenizer: TextTokenizer, prompt: str, answer: str, *, whole: bool = False) -> Turn:
    """Tokenise prompt and answer together, so that their border falls as the model had it.

    `whole`: the prompt's text has its own BOS, if any.
    """
    begin = [tokenizer.bos] if tokenizer.adds_bos and not whole else []
    end = [] if tokenizer.record.eos is None else [tokenizer.record.eos]
    alone, both = tokenizer.encode(prompt), tokenizer.encode(prompt + answer)
    cut = common_beginning(alone, both)
    if len(begin) and len(both) and both[0] == begin[0]:
        begin = []
    return Turn(
        prompt=np.array([*begin, *both[:cut]], np.int32),
        answer=np.array([*both[cut:], *end], np.int32),
    )


def answer_text(tokenizer: TextTokenizer, template: Template, token_ids: Sequence[int]) -> str:
    """Return the text of an answer, as a conversation goes on with it."""
    text: str = tokenizer.backend.decode(token_ids, skip_special_tokens=True)
    return text if template.name == "none" else text.strip()


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every object of a .jsonl or .jsonl.gz file, with where it stands; skip blank lines.

    Raises InputError, with file and line, where a line is not a JSON object.
    """
    for where, text in text_lines(path):
        body = parse_json(text, where, hint="one object per line")
        if not isinstance(body, dict):
            raise InputError(f"{where}: not a JSON object", "one object per line")
        yield where, body


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, text) of every line that is not blank; bytes that are no UTF-8: U+FFFD."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "check the path")
    suffix = ".gz" if path.suffix == ".gz" else ""
    try:
        for number, line in unpacking.open_lines(path, suffix):
            text = line.decode("utf-8", "replace").rstrip("\r")
            if text.strip():
                yield f"{path}, line {number}", text
    except unpacking.ERRORS as error:
        raise InputError(f"{path} is damaged: {error}", "download it again") from error
