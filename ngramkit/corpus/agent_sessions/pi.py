"""Sessions of Pi: ~/.pi/agent/sessions/--PROJECT--/TIME_ID.jsonl.

    {"type": "session", "version": 3, "id": "...", "timestamp": "...", "cwd": "..."}
    {"type": "message", "id": "a1", "parentId": null, "timestamp": "...", "message": {"role":
     "assistant", "content": [{"type": "toolCall", "id": ..., "name": ..., "arguments": {...}}],
     "model": "...", "stopReason": "toolUse", ...}}
    {"type": "compaction", "id": "c1", "parentId": "a1", "summary": "...",
     "firstKeptEntryId": "a1", ...}

Roles are user, assistant, toolResult, bashExecution, custom (hookMessage), branchSummary and
compactionSummary. Entries are a tree by `parentId`; version 1 is a list, whose compactions count
entries (`firstKeptEntryIndex`). After a compaction the prompt is its summary and the entries from
`firstKeptEntryId` on.

Files in the Hub's Session Trace Simple Format look like version 1. They name their `harness`, and
messages of the model may have `reasoningContent` and `toolCalls`, as in OpenAI's API.

Not recorded: the system prompt and descriptions of tools.

Source: badlogic/pi-mono packages/coding-agent/docs/session.md, src/core/session-manager.ts,
src/core/messages.ts, packages/ai/src/types.ts; https://huggingface.co/docs/hub/session-traces-format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngramkit.corpus.agent_sessions.blocks import NOT_TEXT, said_text, text_field
from ngramkit.corpus.agent_sessions.transcript import NO_SYSTEM, UNKNOWN, Place, Tree
from ngramkit.corpus.chat import Message
from ngramkit.corpus.turns import USER, Unread, tool_result_text

OTHERS = {
    "model_change", "thinking_level_change", "custom", "label", "session_info", "ephemeral",
    "context_transform", "leaf",
}  # fmt: skip
COMPACTED = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{}\n</summary>"
)
BRANCHED = (
    "The following is a summary of a branch that this conversation came back from:\n\n"
    "<summary>\n{}</summary>"
)
FAILED = {"error", "aborted"}


def is_pi(record: Mapping[str, Any]) -> bool:
    kind = text_field(record)
    if kind == "session":
        return isinstance(record.get("id"), str)
    message = record.get("message")
    return kind == "message" and isinstance(message, dict) and "role" in message


class Pi:
    """A reader of one file."""

    def __init__(self, unread: Unread) -> None:
        self._unread, self._tree = unread, Tree(unread)
        self.ended = self._tree.ended
        self._newest: Place | None = None
        self._count = 0  # entries so far, with the header

    def read(self, record: Mapping[str, Any]) -> None:
        """Append the answers that the entry ends to `ended`. Raises BadTurnError."""
        kind, message = text_field(record), record.get("message")
        self._count += 1
        if kind == "session":
            self._unread[NO_SYSTEM] += 1
            return
        parent = self._newest
        if "parentId" in record:
            parent = self._tree.place(record["parentId"])
        if kind == "message" and isinstance(message, dict):
            place = self._message(record, message, parent)
        elif kind == "custom_message":
            place = self._say(parent, said_text(record.get("content"), self._unread))
        elif kind == "branch_summary":
            place = self._say(parent, self._filled(BRANCHED, record))
        elif kind == "compaction":
            place = self._compacted(record, parent)
        else:
            if kind not in OTHERS:
                self._unread[UNKNOWN] += 1
            place = parent
        if place is None:
            place = self._tree.continued(None), 0
        self._newest = place
        self._tree.keep(record.get("id", _name_by_number(self._count - 1)), place)

    def end(self) -> None:
        self._tree.end()

    # The entries.

    def _message(
        self, record: Mapping[str, Any], message: Mapping[str, Any], parent: Place | None
    ) -> Place | None:
        role, content = text_field(message, "role"), message.get("content")
        if role == "assistant":
            return self._answer(record, message, parent)
        if role in ("toolResult", "tool"):
            return self._say(parent, tool_result_text(said_text(content, self._unread)))
        if role == "bashExecution":
            if message.get("excludeFromContext") is True:
                return parent
            return self._say(parent, _shell_text(message))
        if role == "branchSummary":
            return self._say(parent, self._filled(BRANCHED, message))
        if role == "compactionSummary":
            return self._say(parent, self._filled(COMPACTED, message))
        if role in ("system", "developer"):
            thread = self._tree.continued(parent)
            thread.close()
            thread.instruct(said_text(content, self._unread))
            return thread, thread.place
        if role not in ("user", "custom", "hookMessage"):
            self._unread[UNKNOWN] += 1
            return parent
        return self._say(parent, said_text(content, self._unread))

    def _say(self, parent: Place | None, text: str) -> Place:
        thread = self._tree.continued(parent)
        thread.say(text)
        return thread, thread.place

    def _answer(
        self, record: Mapping[str, Any], message: Mapping[str, Any], parent: Place | None
    ) -> Place:
        thread = self._tree.continued(parent)
        time = message.get("timestamp", record.get("timestamp"))
        opened = thread.answer(
            text_field(message, "responseId"), text_field(message, "model"), time
        )
        if thought := text_field(message, "reasoningContent"):
            opened.think(thought)
        content = message.get("content")
        opened.add([] if content is None else content)
        calls = message.get("toolCalls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                opened.call(call, call.get("id"))
            else:
                self._unread[NOT_TEXT] += 1
        opened.finished = text_field(message, "stopReason") not in {*FAILED, "length"}
        return thread, thread.place

    def _compacted(self, record: Mapping[str, Any], parent: Place | None) -> Place:
        new = self._tree.compacted()
        kept: Sequence[Message] = ()
        first = record.get("firstKeptEntryId", _name_by_number(record.get("firstKeptEntryIndex")))
        begin = self._tree.place(first)
        if parent is not None and begin is not None:
            kept = parent[0].since(begin[1] - 1)[: parent[1] - begin[1] + 1]
        new.extend([Message(USER, self._filled(COMPACTED, record)), *kept])
        return new, new.place

    def _filled(self, text: str, record: Mapping[str, Any]) -> str:
        summary = record.get("summary")
        if isinstance(summary, str):
            return text.format(summary)
        self._unread[NOT_TEXT] += 1
        return ""


def _name_by_number(count: Any) -> str:
    """Return the name of an entry without an id."""
    return f"#{count}"


def _shell_text(message: Mapping[str, Any]) -> str:
    """Return a command that the person ran, as Pi shows it to the model."""
    output, code = message.get("output"), message.get("exitCode")
    text = f"Ran `{message.get('command')}`\n"
    text += f"```\n{output}\n```" if output else "(no output)"
    if message.get("cancelled") is True:
        text += "\n\n(command cancelled)"
    elif code not in (None, 0):
        text += f"\n\nCommand exited with code {code}"
    return text
