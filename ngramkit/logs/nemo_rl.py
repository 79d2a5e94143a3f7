"""NeMo-RL's rollouts: `train_data_step{N}.jsonl` in the logger's folder, a line a sample.

    {"content": [["PROMPT", "OUTPUT", ...]], "rewards": [1.0], "input_lengths": [812],
     "token_ids": [[...]], "token_loss_mask": [[0, 0, 1, 1, ...]], ..., "idx": 0}

Every value is a list of one: the writer cuts a batch into batches of one. Where there are ids, the
mask says which the model wrote, and the padding behind `input_lengths` is left out. Without ids
(older versions) the last text is the output. val_data_step{N}.jsonl holds messages.

Read from: NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py (Logging, validate) at ddbdb1e, and
nemo_rl/utils/logger.py (log_batched_dict_as_jsonl).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.errors import InputError
from ngramkit.logs.request import Found, Line, LoggedRequest, is_ids, requests_of
from ngramkit.logs.rollouts import masked_requests, step_of


def matches(body: Mapping[str, Any]) -> bool:
    return "idx" in body and "rewards" in body and ("content" in body or "token_ids" in body)


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        run, name = step_of(where), str(body.get("idx", ""))
        ids, mask, content = (_one(body.get(key)) for key in KEYS)
        if is_ids(ids) and is_ids(mask):
            length = _one(body.get("input_lengths"))
            length = length if type(length) is int and 0 <= length <= len(ids) else len(ids)
            texts = [t for t in content if isinstance(t, str)] if isinstance(content, list) else []
            yield from masked_requests(
                where, ids[:length], mask[:length], name=name, kind="nemo-rl", run=run,
                text=texts[-1] if len(texts) == 2 else "",
            )  # fmt: skip
        elif isinstance(content, list) and all(isinstance(text, str) for text in content):
            if len(content) < 2 or not content[-1]:
                yield "the answer has no text"
                continue
            prompt = "".join(content[:-1])
            yield LoggedRequest(prompt, content[-1], name, "nemo-rl", run=run)
        elif isinstance(content, list):
            yield from requests_of(where, content, name=name, kind="nemo-rl", run=run)
        else:
            raise InputError(f"{where}: `content` is no list of texts", "NeMo-RL's step files")


KEYS = ("token_ids", "token_loss_mask", "content")


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
