"""Recorded answers: what a model really wrote, read from the files that evaluations leave behind.

Three shapes of jsonl, told apart by their keys:

    question file  {"question_id": 81, "category": "writing", "turns": ["...", "..."]}
     + answer file {"question_id": 81, "choices": [{"turns": ["...", "..."]}]}   FastChat
    {"prompt": "...", "output": "..."}                                          taken as it stands
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}

A record is tokenised as the model saw it: the answer is what follows the prompt, EOS included.
Drafters do not appear here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray, common_beginning
from ngramkit.drafters.references import Given as References
from ngramkit.errors import InputError
from ngramkit.evaluate.jsonl import Line, read_lines
from ngramkit.templates import OWN, Message, Template, find_template


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
    """All records, in the answer file's order, and the template that their prompts were built by,
    see `find_template`; None where all are taken as they stand.

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
    return [_tokenised(c, tokenizer, form) for c in conversations], form


def _with_questions(answers: Sequence[Line], questions: Path) -> list[Conversation]:
    asked: dict[str, tuple[str, list[str]]] = {}
    for where, body in read_lines(questions):
        turns = _get(where, body, "turns", _texts, "a list of strings")
        asked[_identity(where, body)] = (str(body.get("category", "all")), turns)
    found = []
    for where, body in answers:
        name = _identity(where, body)
        if name not in asked:
            raise InputError(
                f"{where}: question {name} is not in {questions}", "check that the files belong"
            )
        category, turns = asked[name]
        found.append(_paired(where, name, category, turns, _answer_turns(where, body)))
    return found


def _paired(
    where: str, name: str, category: str, asked: list[str], answered: list[str]
) -> Conversation:
    if len(answered) > len(asked):
        raise InputError(
            f"{where}: {len(answered)} answers to {len(asked)} turns", "check that the files belong"
        )
    messages = []
    for question, answer in zip(asked, answered, strict=False):
        messages += [Message("user", question), Message("assistant", answer)]
    return Conversation(name, category, messages)


def _answer_turns(where: str, body: dict[str, Any]) -> list[str]:
    choices = _get(where, body, "choices", lambda v: isinstance(v, list) and v, "a list")
    if not isinstance(choices[0], dict):
        raise InputError(f"{where}: choices[0] is not an object", "FastChat's answer format")
    turns: list[str] = _get(where, choices[0], "turns", _texts, "a list of strings")
    return turns


def _self_contained(where: str, body: dict[str, Any]) -> Conversation:
    name = str(body.get("question_id", body.get("id", where.rsplit(" ", 1)[-1])))
    category = str(body.get("category", "all"))
    if "messages" in body:
        return Conversation(name, category, _messages(where, body["messages"]))
    if "prompt" in body and "output" in body:
        prompt = _get(where, body, "prompt", _is_text, "a string")
        output = _get(where, body, "output", _is_text, "a string")
        spoken = [Message("user", prompt), Message("assistant", output)]
        return Conversation(name, category, spoken, plain=True)
    hint = "give questions, the question file" if "choices" in body else ""
    said = f"{where}: neither `messages` nor `prompt` and `output`"
    raise InputError(said, hint, option="questions")


def _messages(where: str, value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: `messages` is not a list", "objects with role and content")
    found = []
    for item in value:
        ok = isinstance(item, dict) and item.get("role") in ("system", "user", "assistant")
        if not ok or not isinstance(item.get("content"), str):
            raise InputError(
                f"{where}: a message without a role (system, user, assistant) and a text content",
                "objects with role and content",
            )
        found.append(Message(item["role"], item["content"]))
    if not any(message.role == "assistant" for message in found):
        raise InputError(f"{where}: no message of the assistant", "there is nothing to replay")
    return found


def _identity(where: str, body: dict[str, Any]) -> str:
    if "question_id" not in body:
        raise InputError(f"{where}: no `question_id`", "FastChat's question and answer format")
    return str(body["question_id"])


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


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _tokenised(talk: Conversation, tokenizer: TextTokenizer, template: Template | None) -> Record:
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
    """Tokenised together: the border of prompt and answer must fall as the model had it. `whole`:
    the prompt's text has its own BOS, if any."""
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
