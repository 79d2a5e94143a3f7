"""The contestants of a benchmark: drafters, and transformers' own ways.

A drafter may have a budget of its own. transformers' own ways are what people have without
ngramkit: `generate`, model.generate with a token a pass, and `generate-lookup`, the same with its
prompt lookup (`prompt_lookup_num_tokens`). Greedy, and each with its defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import MOST_NODES
from ngramkit.decode.result import Decoded
from ngramkit.decode.session import Session
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft
from ngramkit.errors import UsageError

BASELINE = "none"
Budget = int | Literal["auto"]  # 0: none of its own
BUDGET = "budget"
LOOKUP_TOKENS = 10  # as transformers' documentation has it
TRANSFORMERS_WAYS: dict[str, dict[str, Any]] = {
    "generate": {},
    "generate-lookup": {"prompt_lookup_num_tokens": LOOKUP_TOKENS},
}


@dataclass(frozen=True)
class Contestant:
    """One of a benchmark. `make(remember)` gives a new drafter; with False it forgets its requests.

    `learns`: from finished requests, so that its answers depend on their order. `session`: its own,
    for another budget than the task's. `answer` writes in another way than ours. `wants_evidence`:
    little is left of it without.
    """

    name: str
    make: Callable[[bool], Drafter]
    learns: bool = False
    session: Session | None = None
    answer: Callable[[Session, TokenArray], Decoded] | None = None
    wants_evidence: bool = False

    def task(self, task: Session) -> Session:
        """Return the task with this contestant's budget."""
        if self.name == BASELINE:
            return task.undrafted()
        return task if self.session is None else replace(self.session, options=task.options)


NOBODY = Contestant(BASELINE, lambda remember: NoDraft())


def split_budget(text: str) -> tuple[str, Budget]:
    """Split a drafter's name and options from its `budget`: nodes, "auto", or 0 for none.

    >>> split_budget("blend:budget=auto"), split_budget("rest:max_match=8,budget=16")
    (('blend', 'auto'), ('rest:max_match=8', 16))

    Raises UsageError for a budget that is none.
    """
    name, _, rest = text.partition(":")
    parts = rest.split(",") if rest else []
    own = [part for part in parts if part.partition("=")[0].strip() == BUDGET]
    if not own:
        return text, 0
    value = own[-1].partition("=")[2].strip()
    sound = value == "auto" or (value.isdecimal() and 0 < int(value[:9]) <= MOST_NODES)
    if len(own) > 1 or not sound:
        raise UsageError(
            f"budget of {text!r} must be one number from 1 to {MOST_NODES:,}, or auto",
            f"write {name}:budget=16",
            option="drafter",
        )
    others = [part for part in parts if part not in own]
    plain = f"{name}:{','.join(others)}" if others else name
    return plain, "auto" if value == "auto" else int(value)


def transformers_way(name: str, model: LanguageModel) -> Contestant:
    """Return the contestant that is called `name`, one of TRANSFORMERS_WAYS, with its own model."""

    def answer(task: Session, prompt: TokenArray) -> Decoded:
        return _generate(replace(task, model=model), prompt, TRANSFORMERS_WAYS[name])

    return Contestant(name, lambda remember: NoDraft(), answer=answer)


def require_plain(task: Session) -> None:
    """Raise UsageError for options that transformers' own ways are not measured with."""
    if task.options.temperature > 0 or task.options.stop:
        raise UsageError(
            f"{' and '.join(TRANSFORMERS_WAYS)} are measured greedily and without stop strings",
            "leave out temperature and stop, or these two",
            option=("temperature", "stop"),
        )


@dataclass
class _Passes:
    """The model's passes: where each began, and when the first was over."""

    starts: list[int]
    first_over: float = 0.0

    def before(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        self.starts.append(0 if cache is None else int(cache.get_seq_length()))

    def after(self, *_: Any) -> None:
        if len(self.starts) == 1:
            self.first_over = time.perf_counter()

    def accepted(self, prompt: int, written: int) -> list[int]:
        """Return the accepted draft tokens of each pass after the first.

        What the first brought besides its own token counts for the second, so that they add up to
        what was written.
        """
        ends = [*self.starts[2:], prompt + written - 1]
        lengths = [end - start for start, end in zip(self.starts[1:], ends, strict=False)]
        if lengths:
            lengths[0] += written - 1 - sum(lengths)
        return [max(length - 1, 0) for length in lengths]


def _generate(task: Session, prompt: TokenArray, options: dict[str, Any]) -> Decoded:
    require_plain(task)
    model, request = task.model, task.request(prompt)
    room = len(prompt) + task.options.max_new_tokens
    longest = room if model.context is None else min(room, model.context)
    ids = torch.tensor(np.asarray(prompt, np.int64), device=model.model.device)[None]
    passes = _Passes([])
    hooks = (
        model.model.register_forward_pre_hook(passes.before, with_kwargs=True),
        model.model.register_forward_hook(passes.after),
    )
    began = time.perf_counter()
    try:
        with torch.inference_mode():
            whole = model.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_length=longest,
                eos_token_id=sorted(request.eos) or None,
                pad_token_id=min(request.eos, default=0),
                **options,
            )
    finally:
        for hook in hooks:
            hook.remove()
    seconds = time.perf_counter() - began
    written = whole[0, len(prompt) :].cpu().numpy().astype(np.int32)
    ended = len(written) and int(written[-1]) in request.eos
    return Decoded(
        prompt_tokens=len(prompt),
        token_ids=written,
        accepted_per_pass=passes.accepted(len(prompt), len(written)),
        ended_by="eos" if ended else "length",
        seconds=seconds,
        prefill_seconds=passes.first_over - began,
        draft_seconds=0.0,
        verify_seconds=seconds - (passes.first_over - began),
    )
