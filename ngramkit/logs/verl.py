"""verl's rollouts: `trainer.rollout_data_dir` (and validation_data_dir), a file STEP.jsonl a step.

    {"input": "...", "output": "...", "gts": ..., "score": 1.0, "step": 7, ...}

Both texts are decoded without special tokens. What tools returned stands in the output: verl's
writer does not mark it.

Read from: volcengine/verl verl/trainer/ppo/ray_trainer.py (_dump_generations) at 0040110. Tried
with a file of 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.logs.request import Found, Line, LoggedRequest, take


def matches(body: Mapping[str, Any]) -> bool:
    return {"input", "output", "score", "step"} <= body.keys()


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        prompt = take(where, body, "input", str, "a text")
        output = take(where, body, "output", str, "a text")
        if not output:
            yield "the answer has no text"
            continue
        kind = body.get("data_source")
        yield LoggedRequest(
            prompt,
            output,
            where.rsplit(" ", 1)[-1],
            kind if isinstance(kind, str) else "verl",
            run=str(body.get("step", "")),
        )
