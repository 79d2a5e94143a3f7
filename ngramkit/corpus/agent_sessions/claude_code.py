"""Sessions of Claude Code: ~/.claude/projects/PROJECT/SESSION.jsonl.

    {"type": "user", "uuid": "u1", "parentUuid": null, "sessionId": "s", "isSidechain": false,
     "timestamp": "...", "message": {"role": "user", "content": "..."}}
    {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": {"id": "msg_1", "model": ...,
     "content": [{"type": "thinking", ...}], "stop_reason": null, ...}, "requestId": "req_1", ...}

Records are a tree by `parentUuid`: a rewound or retried message is a branch. Records with one
`message.id` are one answer. The result of a tool has the record of its call as its parent.
Subagents have files of their own (agent-ID.jsonl), in older versions the same file with
`isSidechain`. After `compact_boundary` the prompt is a summary and the messages of
`preservedMessages` or `preservedSegment`. A resumed or forked session may begin with the records of
an earlier one.
The output of `claude -p --output-format stream-json` has no `parentUuid`, so its order counts.

Not recorded: the system prompt, descriptions of tools, the text of attachments, and the request of
a compaction.

Source: dagster-io/erk docs/agent/claude-code-session-layout.md, michaelschleiss/claude-convos (its
specification for 2.1.81), microsoft/amplifier ai_working/claude_code_logging, ryoppippi/ccusage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngramkit.corpus.agent_sessions.blocks import said_text, text_field
from ngramkit.corpus.agent_sessions.transcript import NO_SYSTEM, UNKNOWN, Place, Thread, Tree
from ngramkit.corpus.turns import Unread

# Records outside a conversation.
OTHERS = {
    "summary", "file-history-snapshot", "queue-operation", "last-prompt", "custom-title",
    "ai-title", "tag", "agent-name", "agent-color", "agent-setting", "mode", "worktree-state",
    "pr-link", "attribution-snapshot", "speculation-accept", "content-replacement", "result",
    "rate_limit_event", "stream_event", "permission-mode", "bridge-session", "started",
}  # fmt: skip
LINKS = {"system", "progress", "attachment"}  # in the tree, not in the prompt
CUT_OFF = {"max_tokens", "model_context_window_exceeded", "refusal"}
INTERRUPTED = "[Request interrupted by user]"
SYNTHETIC = "a message that the client wrote in the model's place"
ATTACHMENT = "an attachment whose text is not recorded"
CLEARED = "a prompt from which results of tools were cleared"


def is_claude_code(record: Mapping[str, Any]) -> bool:
    kind = text_field(record)
    if kind in ("user", "assistant"):
        return isinstance(record.get("message"), dict) and not {
            "uuid", "sessionId", "session_id"
        }.isdisjoint(record)  # fmt: skip
    if kind == "system":
        return "subtype" in record and not {"uuid", "session_id"}.isdisjoint(record)
    if kind in ("progress", "attachment"):
        return "parentUuid" in record
    return kind in OTHERS and not {"sessionId", "leafUuid", "messageId"}.isdisjoint(record)


class ClaudeCode:
    """A reader of one file."""

    def __init__(self, unread: Unread) -> None:
        self._unread, self._tree = unread, Tree(unread)
        self.ended = self._tree.ended
        self._last: dict[str, str] = {}  # newest uuid, for records without parentUuid
        self._newest: dict[Any, Place] = {}  # message, by subagent
        self._kept: dict[int, Sequence[Any]] = {}  # id of a thread -> uuids, see `_kept_names`
        self._begun = False

    def read(self, record: Mapping[str, Any]) -> None:
        """Append the answers that the record ends to `ended`. Raises BadTurnError."""
        kind, message = text_field(record), record.get("message")
        if kind in ("user", "assistant") and isinstance(message, dict):
            if not self._begun:
                self._begun = True
                self._unread[NO_SYSTEM] += 1
            if kind == "user":
                self._user(record, message)
            else:
                self._assistant(record, message)
        elif kind == "system" and record.get("subtype") == "compact_boundary":
            self._compacted(record)
        elif kind in LINKS:
            if record.get("subtype") == "microcompact_boundary":
                self._unread[CLEARED] += 1
            elif kind == "attachment":
                self._unread[ATTACHMENT] += 1
            self._keep(record, self._parent(record))
        elif kind not in OTHERS:
            self._unread[UNKNOWN] += 1

    def end(self) -> None:
        self._tree.end()

    def _parent(self, record: Mapping[str, Any]) -> Place | None:
        if "parentUuid" in record:
            return self._tree.place(record["parentUuid"])
        return self._tree.place(self._last.get(_conversation_of(record)))

    def _keep(self, record: Mapping[str, Any], place: Place | None) -> None:
        """Remember the place of a record."""
        name = record.get("uuid")
        if place is not None:
            self._newest[_conversation_of(record)] = place
        if place is not None and isinstance(name, str):
            self._tree.keep(name, place)
            if "parentUuid" not in record:
                self._last[_conversation_of(record)] = name

    # The records.

    def _user(self, record: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        text = said_text(message.get("content"), self._unread)
        thread = self._tree.continued(self._parent(record))
        opened = thread.open
        if opened is not None and text.startswith(INTERRUPTED) and not opened.calls:
            opened.finished = False
        thread.say(text)
        kept = self._kept.pop(id(thread), None)
        if kept is not None:
            self._preserve(thread, kept)
        self._keep(record, (thread, thread.place))

    def _assistant(self, record: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        model = text_field(message, "model")
        if model == "<synthetic>" or record.get("isApiErrorMessage") is True:
            self._unread[SYNTHETIC] += 1
            self._keep(record, self._parent(record))
            return
        name, found = _server_id(record, message), self._parent(record)
        if found is None:  # an answer has a prompt, whatever its record names
            found = self._newest.get(_conversation_of(record))
        opened = None if found is None else found[0].open
        if found is not None and opened is not None and name and opened.id == name:
            thread = found[0]  # another record of the same answer
        else:
            thread = self._tree.continued(found)
            opened = thread.answer(name, model, record.get("timestamp"))
        opened.add(message.get("content"))
        cut_off = (
            text_field(message, "stop_reason") in CUT_OFF or record.get("apiError") is not None
        )
        opened.finished = opened.finished and not cut_off
        self._keep(record, (thread, thread.place - thread.waits))

    def _compacted(self, record: Mapping[str, Any]) -> None:
        thread = self._tree.compacted()
        metadata = record.get("compactMetadata")
        if isinstance(metadata, dict):
            self._kept[id(thread)] = _kept_names(metadata)
        self._keep(record, (thread, 0))

    def _preserve(self, thread: Thread, names: Sequence[Any]) -> None:
        """Append the messages from the first to the last of these records to the summary."""
        found = [(name, place) for name in names if (place := self._tree.find(name)) is not None]
        if found:
            (_, first), (name, last) = found[0], found[-1]
            begin, end = first[1] - 1, last[1]
            thread.extend(last[0].since(begin)[: end - begin])
            self._tree.keep(name, (thread, thread.place))


def _kept_names(metadata: Mapping[str, Any]) -> Sequence[Any]:
    """Return the records whose messages follow the summary of a compaction, by uuid."""
    messages, segment = metadata.get("preservedMessages"), metadata.get("preservedSegment")
    if isinstance(messages, dict) and isinstance(messages.get("uuids"), list):
        names: list[Any] = messages["uuids"]
        return names
    return [segment.get("headUuid"), segment.get("tailUuid")] if isinstance(segment, dict) else []


def _conversation_of(record: Mapping[str, Any]) -> str:
    """Return which conversation of a file a record belongs to, apart from its parent."""
    call = record.get("parent_tool_use_id")  # in stream-json
    return f"{call or ''} {record.get('agentId') or ''} {record.get('isSidechain') is True}"


def _server_id(record: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    name, request = message.get("id"), record.get("requestId")
    if not isinstance(name, str):
        return ""
    return f"{name}:{request}" if isinstance(request, str) else name
