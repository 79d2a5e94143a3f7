"""Rollouts of reinforcement learning: verl, NeMo-RL, prime-rl, slime.

Those with token ids have a mask, which says what of them the model wrote.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, first_line
from ngramkit.logs.request import (
    NO_TEXT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    is_ids,
    messages_of,
    requests_of,
    seconds,
    take,
    text_of,
    written_by_model,
)

STEP = re.compile(r"(?:step|rollout)_?(\d{1,12})")


def step_of(path: Path) -> str:
    """Return the step of training that a path names; "" where it names none.

    >>> step_of(Path("out/rollouts/step_12/train/all/traces.jsonl"))
    '12'
    """
    return next(iter(STEP.findall(str(path))[-1:]), "")


def masked_requests(
    where: FilePlace, ids: list[int], mask: list[int], name: str, kind: str, run: str, text: str
) -> Iterator[LoggedRequest]:
    """Yield a request for each stretch of ids whose mask is not 0, after all ids before it.

    `text`: of the only stretch. Raises InputError where the mask has another length.
    """
    if len(mask) != len(ids):
        raise InputError(f"{where}: the mask is not as long as the token ids")
    written, end = [], 0
    for is_written, same in groupby(map(bool, mask)):
        begin, end = end, end + len(list(same))
        if is_written:
            written.append((ids[:begin], ids[begin:end]))
    text = text if len(written) == 1 else ""
    for turn, (prompt, output) in enumerate(written):
        yield LoggedRequest(prompt, output, name, kind, run=run, turn=turn, text=text)


def read_verl(lines: Iterator[Line]) -> Iterator[Found]:
    """Read verl's rollouts: `trainer.rollout_data_dir` (and validation_data_dir), a file STEP.jsonl
    a step.

        {"input": "...", "output": "...", "gts": ..., "score": 1.0, "step": 7, ...}

    Both texts are decoded without special tokens. What tools returned stands in the output: verl's
    writer does not mark it.

    Read from: volcengine/verl verl/trainer/ppo/ray_trainer.py (_dump_generations) at 0040110. Tried
    with a file of 0.9.1.
    """
    for where, body in lines:
        prompt, output = take(where, body, "input", str), take(where, body, "output", str)
        if not output:
            yield NO_TEXT
            continue
        kind = body.get("data_source")
        kind, run = kind if isinstance(kind, str) else "verl", str(body.get("step", ""))
        yield LoggedRequest(prompt, output, where.label, kind, run=run)


def is_nemo_rl(body: Mapping[str, Any]) -> bool:
    """Return whether it is a sample as NeMo-RL's logger writes it."""
    return {"idx", "rewards"} <= body.keys() and ("content" in body or "token_ids" in body)


def read_nemo_rl(lines: Iterator[Line]) -> Iterator[Found]:
    """Read NeMo-RL's rollouts: `train_data_step{N}.jsonl` in the logger's folder, a line a sample.

        {"content": [["PROMPT", "OUTPUT", ...]], "rewards": [1.0], "input_lengths": [812],
         "token_ids": [[...]], "token_loss_mask": [[0, 0, 1, 1, ...]], ..., "idx": 0}

    Every value is a list of one: the writer cuts a batch into batches of one. Where there are ids,
    the mask says which the model wrote, and the padding behind `input_lengths` is left out. Without
    ids (older versions) the last text is the output. val_data_step{N}.jsonl holds messages.

    Read from: NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py (Logging, validate) at ddbdb1e, and
    nemo_rl/utils/logger.py (log_batched_dict_as_jsonl).
    """
    for where, body in lines:
        run, name = step_of(where.path), str(body.get("idx", ""))
        ids, mask, content, length = (
            value[0] if isinstance(value, list) and len(value) == 1 else value
            for value in map(body.get, ("token_ids", "token_loss_mask", "content", "input_lengths"))
        )
        if is_ids(ids) and is_ids(mask):
            length = length if type(length) is int and 0 <= length <= len(ids) else len(ids)
            texts = [t for t in content if isinstance(t, str)] if isinstance(content, list) else []
            text = texts[-1] if len(texts) == 2 else ""
            yield from masked_requests(
                where, ids[:length], mask[:length], name, "nemo-rl", run, text
            )
        elif isinstance(content, list) and all(isinstance(text, str) for text in content):
            if len(content) < 2 or not content[-1]:
                yield NO_TEXT
                continue
            prompt = "".join(content[:-1])
            yield LoggedRequest(prompt, content[-1], name, "nemo-rl", run=run)
        elif isinstance(content, list):
            yield from requests_of(where, content, name=name, kind="nemo-rl", run=run)
        else:
            raise InputError(f"{where}: `content` is no list of texts", "NeMo-RL's step files")


# prime-rl.


def is_prime_rl(body: Mapping[str, Any]) -> bool:
    """Return whether it is a trace, an episode of traces, or a RolloutOutput."""
    traces = body.get("traces")
    return (
        _is_trace(body)
        or (isinstance(traces, list) and any(map(_is_trace, traces)))
        or _calls(body) != []
    )


def _is_trace(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("nodes"), list) and "task" in body


def _calls(body: Mapping[str, Any]) -> list[Any]:
    """Return the calls of a RolloutOutput."""
    steps = body.get("trajectory")
    if isinstance(steps, list) and all(isinstance(s, dict) and "completion" in s for s in steps):
        return steps
    return []


def read_prime_rl(lines: Iterator[Line]) -> Iterator[Found]:
    """Read prime-rl's `rollouts/step_{N}/train/*/traces.jsonl`, a verifiers Trace a line.

        {"id": "...", "task": {...}, "nodes": [{"parent": null, "sampled": false,
         "message": {...}, "token_ids": [...], "mask": [...]}, ...], ...}

    A node adds to the ids of its parents; `sampled` says that the model wrote it, `mask` which of
    its ids. A line may be an episode, {"traces": [...]}. The streams `all` and `effective` share
    traces: each counts once. Before traces it wrote verifiers' RolloutOutput, a list of calls:

        {"trajectory": [{"prompt": [messages], "completion": [messages], "tokens":
         {"prompt_ids": [...], "completion_ids": [...]}}, ...], "example_id": ..., ...}

    Read from: PrimeIntellect-ai/prime-rl src/prime_rl/utils/trace_index.py at 0e4f7ef, pathing.py
    at 06c96a8, and save_rollouts of orchestrator/utils.py; PrimeIntellect-ai/verifiers
    verifiers/v1/trace.py at 00eee6c and graph.py at 0184474. Tried with files of verifiers 0.4.0.
    """
    seen: set[str] = set()
    for where, body in lines:
        for turn, call in enumerate(_calls(body)):
            yield from _requests_of_call(where, body, call, turn)
        traces = body["traces"] if isinstance(body.get("traces"), list) else [body]
        for trace in filter(_is_trace, traces):
            name = str(trace.get("id", ""))
            if name and name in seen:
                yield "a trace of another stream"
                continue
            seen.add(name)
            yield from _requests_of_trace(where, trace, name)


def _requests_of_trace(where: FilePlace, trace: Mapping[str, Any], name: str) -> Iterator[Found]:
    task, timing, nodes = trace["task"], trace.get("timing"), trace["nodes"]
    kind = str(task.get("type", "prime-rl")) if isinstance(task, dict) else "prime-rl"
    start = timing.get("start") if isinstance(timing, dict) else None
    turn = 0
    for number, node in enumerate(nodes):
        if not isinstance(node, dict):
            raise InputError(f"{where}: a node is not an object")
        if not node.get("sampled"):
            continue
        path, at = [node], number  # from a root to this node
        while (parent := nodes[at].get("parent")) is not None:
            if type(parent) is not int or not 0 <= parent < at:
                raise InputError(f"{where}: a node's parent is none before it")
            at = parent
            path.insert(0, nodes[at])
        prompt, output = _node_texts(where, path, path[0].get("tools") or trace.get("tools"))
        if not output:
            yield NO_TEXT
            continue
        message = node.get("message")
        text = text_of(where, message.get("content")) if isinstance(message, dict) else ""
        time = seconds(node.get("timestamp", start))
        run = step_of(where.path)
        yield LoggedRequest(prompt, output, name, kind, time=time, run=run, turn=turn, text=text)
        turn += 1


def _node_texts(where: FilePlace, path: list[Any], tools: Any) -> tuple[Prompt, Any]:
    """Return what the model read and wrote at the last node of a path, as ids if all nodes have
    them."""
    ids: list[Any] = [node.get("token_ids") for node in path]
    mask = path[-1].get("mask")
    if all(is_ids(each) and each for each in ids) and isinstance(mask, list):
        own = ids[-1]
        if len(mask) != len(own):
            raise InputError(f"{where}: a node's mask is not as long as its token ids")
        begin = next((i for i, sampled in enumerate(mask) if sampled), len(own))
        before = [n for each in ids[:-1] for n in each]
        return [*before, *own[:begin]], own[begin:]
    messages = [take(where, node, "message", dict) for node in path]
    output = written_by_model(where, messages[-1])
    return messages_of(where, messages[:-1], tools), output


def _requests_of_call(
    where: FilePlace, body: Mapping[str, Any], call: Mapping[str, Any], turn: int
) -> Iterator[Found]:
    name, run = str(body.get("example_id", "")), step_of(where.path)
    kind = str(body.get("task") or body.get("env_id") or "prime-rl")
    tokens = call.get("tokens")
    if isinstance(tokens, dict):
        prompt: Any = tokens.get("prompt_ids")
        output = tokens.get("completion_ids")
        if is_ids(prompt) and is_ids(output) and output:
            yield LoggedRequest(prompt, output, name, kind, run=run, turn=turn)
            return
    before, after = call.get("prompt"), call.get("completion")
    if isinstance(before, list) and isinstance(after, list):
        yield from list(requests_of(where, [*before, *after], name=name, kind=kind, run=run))[-1:]
    else:
        yield "a call without prompt and completion"


# slime.

MOST_UNPACKED = 1 << 34  # bytes of a file
HINT = (
    "where slime is installed, write its samples as JSON lines: prompt, response, tokens, "
    "response_length, loss_mask"
)


def torch_samples(path: Path) -> Iterator[Line]:
    """Yield the samples of a file of torch.save, read with weights_only: plain values and tensors,
    no code. Raises InputError where it holds anything else."""
    import torch

    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
        most = min(2 * path.stat().st_size, MOST_UNPACKED)
        if sum(member.file_size for member in members) > most:
            raise InputError(f"{path} would unpack to more bytes than it has", HINT)
        with warnings.catch_warnings(action="ignore"):  # of what is no rollout anyway
            body = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # pickle's and torch's own are many
        why = first_line(error)[:200]
        raise InputError(f"{path} is no file of slime's samples: {why}", HINT) from error
    samples = body.get("samples") if isinstance(body, dict) else None
    if not isinstance(samples, list):
        raise InputError(f"{path} holds no samples of slime", HINT)
    for number, sample in enumerate(samples, 1):
        yield FilePlace(path, "item", number), sample


def read_slime(lines: Iterator[Line]) -> Iterator[Found]:
    """Read slime's rollouts: `--save-debug-rollout-data DIR/{rollout_id}.pt`, by torch.save.

        {"rollout_id": 3, "samples": [{"prompt": "...", "response": "...", "tokens": [...],
         "response_length": 90, "loss_mask": [1, 1, 0, ...], "index": 0, ...}, ...]}

    `tokens` are prompt and response; where there is a mask of the response, 0 is what tools
    returned. The same samples as JSON lines are read too. With --use-rollout-routing-replay slime
    puts objects of its own there; such a file is refused, and has to be written as JSON lines where
    slime is installed.

    Read from: THUDM/slime slime/observability/rollout_data_utils.py (save_debug_rollout_data) at
    4c4adbb, slime/utils/types.py (Sample.to_dict) at 0d234f3.
    """
    for where, body in lines:
        if not isinstance(body, dict):
            raise InputError(f"{where}: a sample is not an object", HINT)
        name, run = str(body.get("index", "")), step_of(where.path)
        prompt, response = body.get("prompt"), body.get("response")
        ids: Any = body.get("tokens")
        mask: Any = body.get("loss_mask")
        length = body.get("response_length")
        if is_ids(ids) and ids and type(length) is int and 0 < length <= len(ids):
            own = mask if is_ids(mask) and len(mask) == length else [1] * length
            text = response if isinstance(response, str) and all(own) else ""
            mask = [0] * (len(ids) - length) + own
            yield from masked_requests(where, ids, mask, name, "slime", run, text)
            continue
        if isinstance(prompt, list):
            prompt = messages_of(where, prompt)
        if not isinstance(prompt, str | list) or not isinstance(response, str):
            raise InputError(f"{where}: no `prompt` and `response`", HINT)
        yield LoggedRequest(prompt, response, name, "slime", run=run) if response else NO_TEXT
