"""Comparisons of decoding with drafts, without them, and by transformers' own ways.

A machine that other programs use is slower now and faster then, by a fifth within a second. Runs
one after another differ by that. On a CPU, runs with and without drafts therefore go on in turns, a
pass at a time.

Of transformers' ways, `generate` is model.generate, a token a pass; `generate-lookup` the same with
its prompt lookup (`prompt_lookup_num_tokens`): what people have without ngramkit. Greedy, with
plain weights, and each with its defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import free_memory
from ngramkit.budget.rule import prepare
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Run
from ngramkit.decode.options import GENERATE, TRANSFORMERS_WAYS
from ngramkit.decode.packed_weights import packed_bytes, unpacked
from ngramkit.decode.result import Decoded
from ngramkit.decode.session import Session
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft

WARM_UP = 4  # tokens
ENOUGH = 10.0  # seconds of a comparison
ROUNDS, SECONDS = 3, 5.0  # of generate; the quickest counts, and no further one after so long
now = time.perf_counter  # of generate


@dataclass(frozen=True)
class Comparison:
    """One round with and without drafts, or the best of each where they could not take turns."""

    drafted: Decoded
    baseline: Decoded
    rounds: tuple[float, ...] = ()  # the speed-up of each
    generate: Decoded | None = None  # transformers' own, where it was measured too

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.drafted.seconds

    @property
    def over_generate(self) -> float | None:
        """The speed-up over transformers' own `generate`; None where that was not measured."""
        if self.generate is None:
            return None
        return self.drafted.tokens_per_second / self.generate.tokens_per_second

    @property
    def shown_speedup(self) -> str:
        """The speed-up, with the least and the most of all rounds where there were several."""
        if len(self.rounds) < 2:
            return f"{self.speedup:.2f}"
        return f"{self.speedup:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"

    @property
    def identical(self) -> bool:
        return self.drafted.same_tokens(self.baseline)


def compare(
    session: Session,
    prompt: TokenArray,
    make_drafter: Callable[[], Drafter],
    *,
    rounds: int = 3,
) -> Comparison:
    """Decode with and without drafts some times; where runs take turns the quickest round counts.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once ENOUGH seconds are spent. Ctrl-C is raised.
    """
    alone = session.undrafted()
    # A device may have no memory for a second cache.
    in_turns = session.model.model.device.type == "cpu" and session.options.cache is None
    warm_up(session, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    started = time.perf_counter()
    comparisons: list[Comparison] = []
    for _ in range(rounds):
        drafter = make_drafter()
        if in_turns:
            runs = [session.run(prompt, drafter), alone.run(prompt, NoDraft())]
            drafted, baseline = in_lockstep(runs)
        else:
            baseline = _finished(alone.complete(prompt, NoDraft()))
            drafted = _finished(session.complete(prompt, drafter))
        comparisons.append(Comparison(drafted, baseline))
        if time.perf_counter() - started > ENOUGH:
            break
    speedups = tuple(each.speedup for each in comparisons)
    if in_turns:
        quickest = min(comparisons, key=lambda each: each.drafted.seconds + each.baseline.seconds)
        return replace(quickest, rounds=speedups)
    drafted = min((each.drafted for each in comparisons), key=lambda run: run.seconds)
    baseline = min((each.baseline for each in comparisons), key=lambda run: run.seconds)
    return Comparison(drafted, baseline, speedups)


def warm_up(session: Session, prompt: TokenArray, drafter: Drafter) -> None:
    """Write a few tokens after the prompt's last ones, and drop them: imports and compiled kernels
    are then paid for."""
    if session.is_auto and not isinstance(drafter, NoDraft):
        prepare()
    short = session.with_options(max_new_tokens=WARM_UP, stop=())
    _finished(short.complete(prompt[-WARM_UP:], drafter))


def in_lockstep(runs: Sequence[Run]) -> list[Decoded]:
    """Run all to their ends, a pass at a time, always of the run that has written the fewest
    tokens. Each run's clock stands while it is another's turn. Ctrl-C is raised."""
    with torch.inference_mode():
        try:
            for run in runs:
                run.clock.resume()
                run.begin()
            while going := [run for run in runs if not run.ended_by]:
                run = min(going, key=lambda each: each.tokens)
                run.clock.resume()
                run.step()
        finally:
            for run in runs:
                run.clock.resume()
                run.finish()
    return [run.result() for run in runs]


def _finished(run: Decoded) -> Decoded:
    """Return the run; raise KeyboardInterrupt where Ctrl-C ended it."""
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def answer_by(name: str, model: LanguageModel) -> Callable[[Session, TokenArray], Decoded]:
    """Return a function that writes an answer by one of TRANSFORMERS_WAYS, with `model` in place of
    the session's."""
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


def _generate(session: Session, prompt: TokenArray, options: dict[str, Any]) -> Decoded:
    require_plain(session)
    model, request = session.model.model, session.request(prompt)
    ids = torch.tensor(np.asarray(prompt, np.int64), device=model.device)[None]
    starts: list[int] = []  # tokens before each pass
    began = prefilled = now()

    def before(_model: Any, _args: Any, inputs: dict[str, Any]) -> None:
        cache = inputs.get("past_key_values")
        starts.append(0 if cache is None else int(cache.get_seq_length()))

    def after(*_: Any) -> None:
        nonlocal prefilled
        if len(starts) == 1:
            prefilled = now()

    hooks = (
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after),
    )
    try:
        with torch.inference_mode():
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_length=len(prompt) + request.longest,
                eos_token_id=sorted(request.eos) or None,
                pad_token_id=min(request.eos, default=0),
                **options,
            )
    finally:
        for hook in hooks:
            hook.remove()
    ended = now()
    written = whole[0, len(prompt) :].cpu().numpy().astype(np.int32)
    return Decoded(
        prompt_tokens=len(prompt),
        token_ids=written,
        accepted_per_pass=_accepted_per_pass(starts, len(prompt), len(written)),
        ended_by="eos" if len(written) and int(written[-1]) in request.eos else "length",
        seconds=ended - began,
        prefill_seconds=prefilled - began,
        draft_seconds=0.0,
        verify_seconds=ended - prefilled,
    )


def _accepted_per_pass(starts: Sequence[int], prompt: int, written: int) -> list[int]:
    """Return the accepted draft tokens of each pass after the first.

    What the first brought besides its own token counts for the second, so that they add up to what
    was written.
    """
    ends = [*starts[2:], prompt + written - 1]
    lengths = [end - start for start, end in zip(starts[1:], ends, strict=False)]
    if lengths:
        lengths[0] += written - 1 - sum(lengths)
    return [max(length - 1, 0) for length in lengths]
