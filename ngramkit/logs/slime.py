"""slime's rollouts: `--save-debug-rollout-data DIR/{rollout_id}.pt`, by torch.save.

    {"rollout_id": 3, "samples": [{"prompt": "...", "response": "...", "tokens": [...],
     "response_length": 90, "loss_mask": [1, 1, 0, ...], "index": 0, ...}, ...]}

`tokens` are prompt and response; where there is a mask of the response, 0 is what tools returned.
The same samples as JSON lines are read too.

torch.load reads it with weights_only: plain values and tensors, no code. slime puts objects of its
own there with --use-rollout-routing-replay; such a file is refused, and has to be written as JSON
lines where slime is installed.

Read from: THUDM/slime slime/observability/rollout_data_utils.py (save_debug_rollout_data) at
4c4adbb, slime/utils/types.py (Sample.to_dict) at 0d234f3.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngramkit.errors import InputError, first_line
from ngramkit.logs.request import Found, Line, LoggedRequest, is_ids, messages_of
from ngramkit.logs.rollouts import masked_requests, step_of

MOST = 1 << 34  # bytes of a file
HINT = (
    "where slime is installed, write its samples as JSON lines: prompt, response, tokens, "
    "response_length, loss_mask"
)


def matches(body: Mapping[str, Any]) -> bool:
    return {"response", "response_length"} <= body.keys()


def samples(path: Path) -> Iterator[Line]:
    """Yield the samples of a file of torch.save. Raises InputError where it holds anything else
    than plain values."""
    import torch

    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
        if sum(member.file_size for member in members) > min(2 * path.stat().st_size, MOST):
            raise InputError(f"{path} would unpack to more bytes than it has", HINT)
        body = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # pickle's and torch's own are many
        why = first_line(error)[:200]
        raise InputError(f"{path} is no file of slime's samples: {why}", HINT) from error
    listed = body.get("samples") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        raise InputError(f"{path} holds no samples of slime", HINT)
    for number, sample in enumerate(listed, 1):
        yield f"{path}, item {number}", sample


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        if not isinstance(body, dict):
            raise InputError(f"{where}: a sample is not an object", HINT)
        name, run = str(body.get("index", "")), step_of(where)
        prompt, response = body.get("prompt"), body.get("response")
        ids: Any = body.get("tokens")
        mask: Any = body.get("loss_mask")
        length = body.get("response_length")
        if is_ids(ids) and ids and type(length) is int and 0 < length <= len(ids):
            own = mask if is_ids(mask) and len(mask) == length else [1] * length
            text = response if isinstance(response, str) and all(own) else ""
            whole = [0] * (len(ids) - length) + own
            yield from masked_requests(
                where, ids, whole, name=name, kind="slime", run=run, text=text
            )
            continue
        if isinstance(prompt, list):
            prompt = messages_of(where, prompt)
        if not isinstance(prompt, str | list) or not isinstance(response, str):
            raise InputError(f"{where}: no `prompt` and `response`", HINT)
        yield (
            LoggedRequest(prompt, response, name, "slime", run=run)
            if response
            else "the answer has no text"
        )
