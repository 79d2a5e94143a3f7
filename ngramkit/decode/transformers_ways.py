"""transformers' own ways to write an answer, measured beside drafts.

`generate` is model.generate, a token a pass; `generate-lookup` the same with its prompt lookup
(`prompt_lookup_num_tokens`): what people have without ngramkit. Greedy, with plain weights, and
each with its defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ngramkit.decode.compare import WARM_UP
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import GENERATE, TRANSFORMERS_WAYS
from ngramkit.decode.packed_weights import packed_bytes, unpacked
from ngramkit.decode.result import Decoded
from ngramkit.decode.session import Session
from ngramkit.drafters.base import TokenArray
from ngramkit.errors import UsageError
from ngramkit.machine import free_memory

ROUNDS, SECONDS = 3, 5.0  # of which the quickest counts; no further one after so long
now = time.perf_counter


def answer_by(name: str, model: LanguageModel) -> Callable[[Session, TokenArray], Decoded]:
    """Return what writes an answer in the way that is called `name`, with a model of its own."""
    return lambda session, prompt: _generate(
        replace(session, model=model), prompt, TRANSFORMERS_WAYS[name]
    )


def measure_generate(session: Session, prompt: TokenArray) -> Decoded | None:
    """Write what transformers' `generate` writes after the prompt, in the quickest of some rounds.

    None where it cannot be compared, or plain weights would not fit beside the packed ones.
    """
    model = session.model.model
    if not _is_plain(session) or 2 * packed_bytes(model) > free_memory():
        return None
    answer = answer_by(GENERATE, replace(session.model, model=unpacked(model)))
    answer(session.with_options(max_new_tokens=WARM_UP), prompt[-WARM_UP:])
    runs: list[Decoded] = []
    while len(runs) < ROUNDS and sum(run.seconds for run in runs) < SECONDS:
        runs.append(answer(session, prompt))
    return min(runs, key=lambda run: run.seconds)


def _is_plain(session: Session) -> bool:
    return not (session.options.temperature > 0 or session.options.stop)


def require_plain(session: Session) -> None:
    """Raise UsageError for options that transformers' own ways are not measured with."""
    if not _is_plain(session):
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
            self.first_over = now()

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


def _generate(session: Session, prompt: TokenArray, options: dict[str, Any]) -> Decoded:
    require_plain(session)
    model, request = session.model, session.request(prompt)
    room = len(prompt) + session.options.max_new_tokens
    longest = room if model.context is None else min(room, model.context)
    ids = torch.tensor(np.asarray(prompt, np.int64), device=model.model.device)[None]
    passes = _Passes([])
    hooks = (
        model.model.register_forward_pre_hook(passes.before, with_kwargs=True),
        model.model.register_forward_hook(passes.after),
    )
    began = now()
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
    seconds = now() - began
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
