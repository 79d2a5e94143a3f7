"""Rollouts of reinforcement learning: verl, NeMo-RL, prime-rl, slime.

Masks of token ids are nonzero where the model wrote them.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError, first_line
from ngramkit.corpus.turns import Unread, content_text
from ngramkit.drafters.base import NO_TOKENS, LiveContext, TokenArray
from ngramkit.logs.request import (
    NO_TEXT,
    ConversationReader,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    SkippedRecord,
    assistant_text,
    conversation_requests,
    parse_time,
    read_messages,
    record_reader,
    require_field,
    skip_bad,
    text_of,
    token_ids,
)


def training_step(path: Path) -> str:
    """Return the last training step in a path (`step_12`, `rollout_12`), "" without one."""
    steps = re.findall(r"(?:step|rollout)_?(\d{1,12})", str(path))
    return steps[-1] if steps else ""


def masked_requests(
    ids: TokenArray, mask: TokenArray, *, name: str, kind: str, run: str, text: str
) -> Iterator[LoggedRequest]:
    """Yield a request for each run of nonzero mask; its prompt is all ids before it.

    ids, mask: int32[n]. `text` is used if there is only one run. Raises BadRecordError if the
    lengths differ.
    """
    if len(mask) != len(ids):
        raise BadRecordError(
            f"the mask must have {len(ids)} items as the token ids, got {len(mask)}"
        )
    changes = np.diff(mask != 0, prepend=False, append=False)
    runs = np.flatnonzero(changes).reshape(-1, 2)
    text = text if len(runs) == 1 else ""
    for turn, (begin, end) in enumerate(runs.tolist()):
        yield LoggedRequest(
            ids[:begin], ids[begin:end], name, kind, run=run, turn=turn, text=text
        )  # fmt: skip


@record_reader
def read_verl(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read verl's rollouts: `trainer.rollout_data_dir` with one STEP.jsonl per step.

        {"input": "...", "output": "...", "gts": ..., "score": 1.0, "step": 7, ...}

    Special tokens are missing. The output includes unmarked tool results.

    Source: volcengine/verl@0040110 verl/trainer/ppo/ray_trainer.py.
    """
    prompt = require_field(where, body, "input", str)
    output = require_field(where, body, "output", str)
    kind = body.get("data_source")
    kind, run = kind if isinstance(kind, str) else "verl", text_of(body, "step")
    yield LoggedRequest(prompt, output, kind=kind, run=run)


def is_nemo_rl(body: Mapping[str, Any]) -> bool:
    return {"idx", "rewards"} <= body.keys() and ("content" in body or "token_ids" in body)


@record_reader
def read_nemo_rl(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read NeMo-RL's rollouts: `train_data_step{N}.jsonl` of the logger, a sample per line.

        {"content": [["PROMPT", "OUTPUT", ...]], "rewards": [1.0], "input_lengths": [812],
         "token_ids": [[...]], "token_loss_mask": [[0, 0, 1, 1, ...]], "idx": 0, ...}

    Ids after `input_lengths` are padding. Older versions have no ids; val_data_step{N}.jsonl holds
    messages.

    Source: NVIDIA-NeMo/RL@ddbdb1e nemo_rl/algorithms/grpo.py.
    """
    run, name = training_step(where.path), text_of(body, "idx")
    ids, mask, content, length = (
        value[0] if isinstance(value, list) and len(value) == 1 else value
        for value in map(body.get, ("token_ids", "token_loss_mask", "content", "input_lengths"))
    )
    ids, mask = token_ids(ids), token_ids(mask)
    if ids is not None and mask is not None:
        length = length if type(length) is int and 0 <= length <= len(ids) else len(ids)
        texts = [t for t in content if isinstance(t, str)] if isinstance(content, list) else []
        text = texts[-1] if len(texts) == 2 else ""
        yield from masked_requests(
            ids[:length], mask[:length], name=name, kind="nemo-rl", run=run, text=text
        )
    elif isinstance(content, list) and all(isinstance(text, str) for text in content):
        if len(content) < 2:
            yield NO_TEXT
            return
        prompt = "".join(content[:-1])
        yield LoggedRequest(prompt, content[-1], name, "nemo-rl", run=run)
    elif isinstance(content, list):
        yield from conversation_requests(where, content, name=name, kind="nemo-rl", run=run)
    else:
        raise BadRecordError("`content` must be a list of texts", "Read NeMo-RL's step files.")


# prime-rl.


def is_prime_rl(body: Mapping[str, Any]) -> bool:
    traces = body.get("traces")
    return (
        _is_trace(body)
        or (isinstance(traces, list) and any(map(_is_trace, traces)))
        or _tool_calls(body) != []
    )


def _is_trace(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("nodes"), list) and "task" in body


def _tool_calls(body: Mapping[str, Any]) -> list[Any]:
    steps = body.get("trajectory")
    if isinstance(steps, list) and all(isinstance(s, dict) and "completion" in s for s in steps):
        return steps
    return []


def read_prime_rl(lines: Iterator[Line]) -> Iterator[Found]:
    """Read prime-rl's `rollouts/step_{N}/train/*/traces.jsonl`, one verifiers Trace per line.

        {"id": "...", "task": {...}, "nodes": [{"parent": null, "sampled": false,
         "message": {...}, "token_ids": [...], "mask": [...]}, ...], ...}

    A node's ids follow those of its ancestors. The model wrote nodes with `sampled`, and of their
    ids those with a nonzero `mask`. A line may also be {"traces": [...]}. Older versions wrote a
    RolloutOutput:

        {"trajectory": [{"prompt": [messages], "completion": [messages],
         "tokens": {"prompt_ids": [...], "completion_ids": [...]}}, ...], "example_id": ..., ...}

    Source: PrimeIntellect-ai/prime-rl@0e4f7ef src/prime_rl/utils/trace_index.py;
    PrimeIntellect-ai/verifiers@00eee6c verifiers/v1/trace.py.
    """
    seen: set[str] = set()
    for where, body in lines:
        for turn, call in enumerate(_tool_calls(body)):
            yield from skip_bad(where, _requests_of_call(where, body, call, turn))
        traces = body["traces"] if isinstance(body.get("traces"), list) else [body]
        for trace in filter(_is_trace, traces):
            name = text_of(trace, "id")
            if name and name in seen:
                yield SkippedRecord(where, "a trace that another stream holds too")
                continue
            seen.add(name)
            yield from skip_bad(where, _requests_of_trace(where, trace, name))


MAX_COPIED_IDS = 1 << 26  # token ids that a trace's branches copy
NODE_COST_IDS = 16  # overhead of copying a node, in token ids


class Branch:
    """A path of nodes from the root: as token ids if all have some, else as messages."""

    def __init__(self, where: FilePlace, tools: Any) -> None:
        self._where = where
        self._unread: list[Any] = []  # nodes that are not in the conversation
        self._ids: LiveContext | None = LiveContext(NO_TOKENS)  # None if some node has no ids
        self._conversation = ConversationReader(where, tools)

    def add(self, node: Any) -> None:
        ids = token_ids(node.get("token_ids"))
        self._unread.append(node)
        if self._ids is not None and ids is not None and len(ids):
            self._ids.append(ids)
        else:
            self._ids = None

    def request(self, node: Any) -> tuple[Prompt, str | TokenArray]:
        """Append a node that the model wrote; return its prompt and output."""
        before = 0 if self._ids is None else self._ids.length
        self.add(node)
        mask = node.get("mask")
        if self._ids is not None and isinstance(mask, list):
            own = self._ids.tokens[before:]
            if len(mask) != len(own):
                raise BadRecordError("a node's mask must be as long as its token ids")
            begin = next((i for i, sampled in enumerate(mask) if sampled), len(own))
            return self._ids.tokens[: before + begin], own[begin:]
        for each in self._unread[:-1]:
            self._conversation.add(require_field(self._where, each, "message", dict))
        self._unread = [node]
        written = assistant_text(self._where, require_field(self._where, node, "message", dict))
        return self._conversation.messages(), written or ""


def _requests_of_trace(
    where: FilePlace, trace: Mapping[str, Any], name: str
) -> Iterator[LoggedRequest | str]:
    task, timing, nodes = trace["task"], trace.get("timing"), trace["nodes"]
    kind = (text_of(task, "type") if isinstance(task, dict) else "") or "prime-rl"
    start = timing.get("start") if isinstance(timing, dict) else None
    turn = copied = 0
    branches: dict[int | None, Branch] = {}  # number of the last node -> branch
    for number, node in enumerate(nodes):
        if not isinstance(node, dict):
            raise BadRecordError("a node must be an object")
        parent = node.get("parent")
        if parent is not None and (type(parent) is not int or not 0 <= parent < number):
            raise BadRecordError("a node's parent must be an earlier node")
        branch = branches.pop(parent, None)
        if branch is None:
            path = _path_from_root(nodes, parent)
            listed = [ids for each in path if isinstance(ids := each.get("token_ids"), list)]
            copied += sum(map(len, listed)) + NODE_COST_IDS * len(path)
            if copied > MAX_COPIED_IDS:
                raise BadRecordError("a trace with too many branches")
            root = path[0] if path else node
            branch = Branch(where, root.get("tools") or trace.get("tools"))
            for each in path:
                branch.add(each)
        branches[number] = branch
        if not node.get("sampled"):
            branch.add(node)
            continue
        prompt, output = branch.request(node)
        if not len(output):
            yield NO_TEXT
            continue
        message = node.get("message")
        text = content_text(message.get("content")) if isinstance(message, dict) else ""
        time = parse_time(node.get("timestamp", start))
        run = training_step(where.path)
        yield LoggedRequest(prompt, output, name, kind, time=time, run=run, turn=turn, text=text)
        turn += 1


def _path_from_root(nodes: list[Any], number: int | None) -> list[Any]:
    """Return the nodes from the root to this one; their parents are already checked."""
    path = []
    while number is not None:
        path.append(nodes[number])
        number = nodes[number].get("parent")
    return path[::-1]


def _requests_of_call(
    where: FilePlace, body: Mapping[str, Any], call: Mapping[str, Any], turn: int
) -> Iterator[LoggedRequest | str]:
    name, run = text_of(body, "example_id"), training_step(where.path)
    kind = text_of(body, "task") or text_of(body, "env_id") or "prime-rl"
    tokens = call.get("tokens")
    if isinstance(tokens, dict):
        prompt = token_ids(tokens.get("prompt_ids"))
        output = token_ids(tokens.get("completion_ids"))
        if prompt is not None and output is not None and len(output):
            yield LoggedRequest(prompt, output, name, kind, run=run, turn=turn)
            return
    before, after = call.get("prompt"), call.get("completion")
    if isinstance(before, list) and isinstance(after, list):
        yield from list(
            conversation_requests(where, [*before, *after], name=name, kind=kind, run=run)
        )[-1:]
    else:
        yield "a call without prompt and completion"


# slime.

MAX_UNPACKED_BYTES = 1 << 34
HOW_TO_CONVERT = (
    "Write the samples as JSON lines where slime is installed: prompt, response, tokens, "
    "response_length, loss_mask."
)


def torch_samples(path: Path, unread: Unread | None = None) -> Iterator[Line]:
    """Yield the samples of a torch.save file, loaded with weights_only, which runs no code.

    Raises InputError for anything but plain values and tensors.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
        limit = min(2 * path.stat().st_size, MAX_UNPACKED_BYTES)
        if sum(member.file_size for member in members) > limit:
            raise InputError(f"{path} must not unpack to more than {limit:,} bytes", HOW_TO_CONVERT)
        with warnings.catch_warnings(action="ignore"):  # about other kinds of files
            body = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # pickle and torch raise many types
        why = first_line(error)[:200]
        raise InputError(f"cannot read {path} as slime's samples: {why}", HOW_TO_CONVERT) from error
    samples = body.get("samples") if isinstance(body, dict) else None
    if not isinstance(samples, list):
        raise InputError(f"cannot read {path}: it holds no samples of slime", HOW_TO_CONVERT)
    for number, sample in enumerate(samples, 1):
        yield FilePlace(path, "item", number, unread), sample


@record_reader
def read_slime(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read slime's rollouts: `--save-debug-rollout-data DIR/{rollout_id}.pt`, or samples as JSONL.

        {"rollout_id": 3, "samples": [{"prompt": "...", "response": "...", "tokens": [...],
         "response_length": 90, "loss_mask": [1, 1, 0, ...], "index": 0, ...}, ...]}

    `tokens` includes the prompt. A `loss_mask` of 0 marks tool results. Files of
    --use-rollout-routing-replay hold slime's own classes and are refused.

    Source: THUDM/slime@4c4adbb slime/observability/rollout_data_utils.py.
    """
    if not isinstance(body, dict):
        raise BadRecordError("a sample must be an object", HOW_TO_CONVERT)
    name, run = text_of(body, "index"), training_step(where.path)
    prompt, response = body.get("prompt"), body.get("response")
    ids, own = token_ids(body.get("tokens")), token_ids(body.get("loss_mask"))
    length = body.get("response_length")
    if ids is not None and type(length) is int and 0 < length <= len(ids):
        mask = np.zeros(len(ids), np.int32)
        mask[-length:] = own if own is not None and len(own) == length else 1
        text = response if isinstance(response, str) and mask[-length:].all() else ""
        yield from masked_requests(ids, mask, name=name, kind="slime", run=run, text=text)
        return
    if isinstance(prompt, list):
        prompt = read_messages(where, prompt)
    if not isinstance(prompt, str | list) or not isinstance(response, str):
        raise BadRecordError("a sample must have `prompt` and `response`", HOW_TO_CONVERT)
    yield LoggedRequest(prompt, response, name, "slime", run=run)
