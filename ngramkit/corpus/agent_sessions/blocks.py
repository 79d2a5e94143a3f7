"""Blocks of a message: thoughts, texts, tool calls and their results, and how a model wrote them.

A call has the notation of the model that wrote it, if that is known, else that of Hermes and Qwen
(see ngramkit.corpus.turns):

    Qwen's coders                         gpt-oss
    <tool_call>                           <|start|>assistant<|channel|>commentary
    <function=NAME>                       to=functions.NAME <|constrain|>json<|message|>
    <parameter=KEY>                       {...}<|call|>
    VALUE
    </parameter>
    </function>
    </tool_call>

Source: the chat templates of Qwen/Qwen3-Coder-30B-A3B-Instruct and openai/gpt-oss-20b.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ngramkit.corpus.turns import (
    BadTurnError,
    Unread,
    to_json,
    tool_call_text,
    tool_result_text,
    with_thoughts,
)

EDIT, CALL, PROSE = "edits", "tool calls", "prose"
KINDS = (EDIT, CALL, PROSE)
# Tools that write files, of Claude Code, Codex, Pi and other agents.
EDITS = re.compile(
    r"(?:multi_?|notebook_?|str_?replace_?|search_?replace_?)?(?:edit|write)(?:_?file)?"
    r"|apply_?(?:patch|diff)|str_?replace(?:_based)?(?:_edit)?(?:_tool|_editor)?|create_?file",
    re.IGNORECASE,
)
HIDDEN = "an answer whose thoughts are hidden"
NOT_TEXT = "a part of a message that is not text"
CALLS = {"tool_use", "toolCall", "server_tool_use", "mcp_tool_use"}
RESULTS = {
    "tool_result", "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
}  # fmt: skip
TEXTS = {"text", "input_text", "output_text", "reasoning_text", ""}


def text_field(record: Mapping[str, Any], key: str = "type") -> str:
    """Return a text of a record, "" for anything else."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


@dataclass(slots=True)
class OpenAnswer:
    """An answer whose records are still being read; its blocks as the model wrote them."""

    unread: Unread
    id: str = ""
    model: str = ""
    time: Any = None
    finished: bool = True
    thoughts: dict[str, None] = field(default_factory=dict)  # in order
    _shown: list[str | Call] = field(default_factory=list)
    _calls: dict[str, Call] = field(default_factory=dict)  # by id, the newest
    _hidden: bool = False  # thoughts are missing

    def add(self, content: Any) -> None:
        """Add the content of an assistant's record. Raises BadTurnError.

        Records of one answer may repeat blocks.
        """
        for block in _parts_of(content):
            self._add_block(block)

    def _add_block(self, block: Any) -> None:
        kind = text_field(block) if isinstance(block, dict) else ""
        if isinstance(block, str):
            self.say(block)
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            self.think(block["thinking"])
        elif kind in ("thinking", "redacted_thinking"):
            self.think("")
        elif kind in CALLS:
            self.call(block, block.get("id"))
        elif isinstance(block, dict) and kind in TEXTS and isinstance(block.get("text"), str):
            self.say(block["text"])
        elif kind not in RESULTS:  # a server's own tools answer within the message
            self.unread[NOT_TEXT] += 1

    def think(self, text: str) -> None:
        """Add a thought; "" for one that is hidden."""
        if text:
            self.thoughts[text] = None
        elif not self._hidden:
            self._hidden = True
            self.unread[HIDDEN] += 1

    def say(self, text: str) -> None:
        if text and text not in self._shown[-1:]:
            self._shown.append(text)

    def call(self, call: Any, id: Any = None) -> None:
        made = Call.of(call)
        if isinstance(id, str):
            if self._calls.get(id) == made:
                return
            self._calls[id] = made
        self._shown.append(made)

    @property
    def calls(self) -> bool:
        return any(isinstance(part, Call) for part in self._shown)

    @property
    def kind(self) -> str:
        calls = [part for part in self._shown if isinstance(part, Call)]
        if any(EDITS.fullmatch(call.name) for call in calls):
            return EDIT
        return CALL if calls else PROSE

    def shown(self) -> str:
        """Return the answer as later prompts hold it, without thoughts."""
        notation = notation_of(self.model)
        parts = (notation(part) if isinstance(part, Call) else part for part in self._shown)
        return "\n".join(parts)

    def written(self) -> str:
        """Return all that the model wrote; "" for nothing."""
        return with_thoughts("\n".join(self.thoughts), self.shown())


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `arguments` as parsed, or as the text that the model wrote."""

    name: str
    arguments: Any

    @classmethod
    def of(cls, block: dict[str, Any]) -> Call:
        inside = block.get("function")
        inside = inside if isinstance(inside, dict) else block
        arguments: Any = next(
            (inside[k] for k in ("input", "arguments", "args") if k in inside), {}
        )
        return cls(str(inside.get("name") or ""), arguments)

    @property
    def fields(self) -> dict[str, Any] | None:
        """The arguments by name; None for another text."""
        if isinstance(self.arguments, str):
            try:
                parsed = json.loads(self.arguments)
            except (ValueError, RecursionError):
                return None
            return parsed if isinstance(parsed, dict) else None
        return self.arguments if isinstance(self.arguments, dict) else None


Notation = Callable[[Call], str]


def _hermes_call(call: Call) -> str:
    return tool_call_text({"name": call.name, "arguments": call.arguments})


def _qwen_coder(call: Call) -> str:
    fields = call.fields
    if fields is None:
        return _hermes_call(call)
    lines = ["<tool_call>", f"<function={call.name}>"]
    for key, value in fields.items():
        text = value if isinstance(value, str) else to_json(value)
        lines += [f"<parameter={key}>", text, "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def _harmony_call(call: Call) -> str:
    text = call.arguments if isinstance(call.arguments, str) else to_json(call.arguments)
    return (
        f"<|start|>assistant<|channel|>commentary to=functions.{call.name} "
        f"<|constrain|>json<|message|>{text}<|call|>"
    )


NOTATIONS: tuple[tuple[str, Notation], ...] = (
    (r"gpt-?oss", _harmony_call),
    (r"qwen-?3-?coder", _qwen_coder),
)


def notation_of(model: str) -> Notation:
    """Return how a model writes tool calls, by its name."""
    name = model.lower()
    return next((how for pattern, how in NOTATIONS if re.search(pattern, name)), _hermes_call)


def said_text(content: Any, unread: Unread) -> str:
    """Return the text of a user's message: texts and results of tools. Raises BadTurnError."""
    parts = [] if content is None else _parts_of(content)
    return "\n".join(filter(None, (_part_text(part, unread) for part in parts)))


def _parts_of(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise BadTurnError(
            f"a message's content must be a text or a list, got {type(content).__name__}"
        )
    return content


def _part_text(part: Any, unread: Unread) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        kind = text_field(part)
        if kind in RESULTS:
            return tool_result_text(result_text(part.get("content"), unread))
        if kind in TEXTS and isinstance(part.get("text"), str):
            return str(part["text"])
        if kind == "tool_reference" and isinstance(part.get("tool_name"), str):
            return str(part["tool_name"])
    unread[NOT_TEXT] += 1
    return ""


def result_text(content: Any, unread: Unread) -> str:
    """Return the text of a tool's result: a text, parts, or an object."""
    if isinstance(content, dict):
        content = content.get("content", content.get("content_items", content))
    return to_json(content) if isinstance(content, dict) else said_text(content, unread)
