"""Sessions of Codex: ~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl.

    {"timestamp": "...", "type": "session_meta", "payload": {"id": ..., "base_instructions":
     {"text": "..."}, ...}}
    {"timestamp": "...", "type": "turn_context", "payload": {"model": "...", ...}}
    {"timestamp": "...", "type": "response_item", "payload": {"type": "message", "role": "user",
     "content": [{"type": "input_text", "text": "..."}]}}
    {"timestamp": "...", "type": "compacted", "payload": {"message": "...",
     "replacement_history": [items]}}
    {"timestamp": "...", "type": "event_msg", "payload": {"type": "token_count", ...}}

Items of the model that follow each other are one answer. `event_msg` repeats what items hold;
`token_count` ends an answer, `turn_aborted` cuts it off, `thread_rolled_back` takes turns back.
A forked session begins with the items of its parent, without any ids of the server.

Older files begin with {"id": ..., "timestamp": ..., "instructions": ...}, then hold bare items and
{"record_type": "state"}; the oldest are one document, {"session": {...}, "items": [items]}.

Not recorded: descriptions of tools, thoughts (only a summary, and an encrypted copy), in older
files the system prompt. A compaction without `replacement_history` kept the user's messages.

Source: openai/codex codex-rs/history/src/lib.rs, codex-rs/protocol/src/protocol.rs, models.rs,
codex-rs/rollout/src/recorder.rs, policy.rs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngramkit.corpus.agent_sessions.blocks import (
    NOT_TEXT,
    OpenAnswer,
    result_text,
    said_text,
    text_field,
)
from ngramkit.corpus.agent_sessions.transcript import NO_SYSTEM, SUMMARY, UNKNOWN, Answer, Thread
from ngramkit.corpus.chat import Message
from ngramkit.corpus.turns import ASSISTANT, USER, BadTurnError, Unread, tool_result_text

RECORDS = {"session_meta", "turn_context", "response_item", "compacted", "event_msg"}
OTHERS = {
    "world_state", "security_risk_score", "inter_agent_communication",
    "inter_agent_communication_metadata", "realtime_item", "token_usage",
}  # fmt: skip
# Items of the model, by how its words are found; the rest answers it.
CALLS = {
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
}  # fmt: skip
OUTPUTS = {
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    "mcp_tool_call_output",
}
BARE = {*CALLS, *OUTPUTS, "message", "reasoning"}
IGNORED = {"ghost_snapshot", "compaction_trigger", "other", "additional_tools"}
HIDDEN_SUMMARY = "a compaction whose summary is encrypted"
MISSING = "an item of a compacted prompt that the file does not hold"
ENDS = {"token_count", "task_complete", "turn_complete"}
# How texts begin that the client, not the person, writes in the user's role.
CONTEXT = ("<", "# AGENTS.md instructions")


def is_codex(record: Mapping[str, Any]) -> bool:
    kind = text_field(record)
    if kind in RECORDS:
        return isinstance(record.get("payload"), dict)
    if not kind:
        header = {"id", "timestamp"} <= record.keys() and "instructions" in record
        return header or record.get("record_type") == "state" or _is_document(record)
    return False


def _is_document(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("session"), dict) and isinstance(record.get("items"), list)


class Codex:
    """A reader of one file."""

    def __init__(self, unread: Unread) -> None:
        self.ended: list[Answer] = []
        self._unread = unread
        self._thread = Thread(unread, self.ended)
        self._model = ""
        self._answers = False  # the newest record belongs to the open answer
        self._turns: list[int] = []  # places before the messages of a person
        self._items: dict[str, Message] = {}  # of this prompt, by id
        self._time: Any = None  # the newest
        self._begun = False

    def read(self, record: Mapping[str, Any]) -> None:
        """Append the answers that the record ends to `ended`. Raises BadTurnError."""
        kind, payload = text_field(record), record.get("payload")
        self._time = record.get("timestamp", self._time)
        if kind in RECORDS and isinstance(payload, dict):
            if kind == "response_item":
                self._item(payload)
            elif kind == "session_meta":
                self._begin(payload)
            elif kind == "turn_context":
                self._model = text_field(payload, "model") or self._model
            elif kind == "compacted":
                self._compacted(payload)
            else:
                self._event(payload)
        elif kind in BARE:
            self._item(record)
        elif _is_document(record):
            self._begin(record["session"])
            for item in record["items"]:
                self._item_or_count(item)
        elif not kind and "id" in record:
            self._begin(record)
        elif kind not in OTHERS and "record_type" not in record:
            self._unread[UNKNOWN] += 1

    def end(self) -> None:
        self._thread.close()

    def _begin(self, meta: Mapping[str, Any]) -> None:
        if self._begun:
            return  # the parent's, in a fork
        self._begun = True
        self._time = meta.get("timestamp", self._time)
        base = meta.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else base
        if isinstance(text, str) and text:
            self._thread.instruct(text)
        else:
            self._unread[NO_SYSTEM] += 1

    def _item_or_count(self, item: Any) -> None:
        """Add an item, or count it: those after a bad one are read."""
        if not isinstance(item, dict):
            self._unread[UNKNOWN] += 1
            return
        try:
            self._item(item)
        except BadTurnError:
            self._unread[NOT_TEXT] += 1

    def _item(self, item: Mapping[str, Any]) -> None:
        kind = text_field(item)
        if kind == "message" and item.get("role") == "assistant":
            content = item.get("content")
            self._opened().add(content)
            self._remember(item, Message(ASSISTANT, said_text(content, self._unread)))
        elif kind == "reasoning":
            opened = self._opened()
            opened.think(said_text(item.get("content") or None, self._unread))
        elif kind in CALLS:
            self._opened().call(_named_call(item), item.get("call_id"))
        elif kind in ("compaction", "compaction_summary", "context_compaction"):
            self._unread[HIDDEN_SUMMARY] += 1
        elif kind not in IGNORED:
            self._say(item)

    def _opened(self) -> OpenAnswer:
        opened = self._thread.open
        if opened is None or not self._answers:
            opened = self._thread.answer("", self._model, self._time)
            self._answers = True
        return opened

    def _say(self, item: Mapping[str, Any]) -> None:
        """Add what answers the model: a message, or the output of a tool."""
        kind, role = text_field(item), text_field(item, "role")
        if kind in OUTPUTS:
            output = item.get("output", item.get("tools"))
            text = tool_result_text(result_text(output, self._unread))
        elif kind in ("message", "agent_message"):
            text = said_text(item.get("content"), self._unread)
        else:
            self._unread[UNKNOWN] += 1
            return
        self._answers = False
        if kind == "message" and role in ("system", "developer"):
            self._thread.close()
            self._thread.instruct(text)
            return
        if kind == "message" and not text.startswith(CONTEXT):
            self._turns.append(self._thread.place - self._thread.waits)
        self._thread.say(text)
        self._remember(item, Message(USER, text))

    def _remember(self, item: Mapping[str, Any], message: Message) -> None:
        if isinstance(item.get("id"), str):
            self._items[item["id"]] = message

    def _event(self, event: Mapping[str, Any]) -> None:
        kind = text_field(event)
        opened = self._thread.open
        if kind in ENDS:
            self._answers = False
        elif kind == "turn_aborted" and opened is not None and self._answers:
            opened.finished = opened.calls
            self._answers = False
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))

    def _roll_back(self, turns: Any) -> None:
        if type(turns) is not int or turns < 1 or not self._turns:
            return
        self._thread.close()
        place = self._turns[-min(turns, len(self._turns))]
        del self._turns[-turns:]
        self._thread = self._thread.branch(place)
        self._answers = False

    def _compacted(self, item: Mapping[str, Any]) -> None:
        self._unread[SUMMARY] += 1
        self._thread.close()
        old, self._thread = self._thread, Thread(self._unread, self.ended)
        items, self._items = self._items, {}
        self._turns, self._answers = [], False
        history = item.get("replacement_history")
        entries = item.get("replacement_history_entries")
        for each in entries if isinstance(entries, list) else ():
            self._replay(each, items)
        for each in history if isinstance(history, list) else ():
            self._replay({"item": each}, items)
        if not isinstance(entries, list) and not isinstance(history, list):
            said = (each for each in old.messages() if each.role != ASSISTANT)
            self._thread.extend([each for each in said if "<tool_response>" not in each.content])
            self._thread.say(said_text(item.get("message"), self._unread))

    def _replay(self, entry: Any, items: Mapping[str, Message]) -> None:
        """Add an item of a compacted prompt, which the model does not write again."""
        item = entry.get("item") if isinstance(entry, dict) else None
        found = items.get(str(entry.get("item_id"))) if isinstance(entry, dict) else None
        if isinstance(item, dict):
            before = len(self.ended)
            self._item_or_count(item)
            if self._thread.open is not None:
                self._thread.close()
                self._answers = False
            del self.ended[before:]
        elif found is not None:
            self._thread.extend([found])
        else:
            self._unread[MISSING] += 1


def _named_call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its name and arguments."""
    kind = text_field(item)
    if kind in ("function_call", "custom_tool_call"):
        return dict(item)
    hidden = {"type", "id", "call_id", "status", "result"}
    fields = {key: value for key, value in item.items() if key not in hidden}
    arguments = fields.get("action", fields.get("arguments", fields))
    return {"name": kind.removesuffix("_call"), "arguments": arguments}
