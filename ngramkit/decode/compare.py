"""Comparisons of decoding with drafts, without drafts, and by transformers.

Other programs change a machine's speed within a second, so on a CPU all sides alternate pass by
pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf, log2
from operator import attrgetter

import numpy as np
import torch
from transformers.generation.streamers import BaseStreamer

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import OtherPrograms, free_memory
from ngramkit.budget.auto import compile_kernels
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.generation import applied_settings, generate_options, prepare_call
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Run
from ngramkit.decode.options import GENERATE, TRANSFORMERS_WAYS
from ngramkit.decode.packed_weights import is_packed, packed_bytes, packed_weights_of, unpacked
from ngramkit.decode.pass_threads import PassThreads
from ngramkit.decode.passes import model_passes
from ngramkit.decode.result import Clock, Decoded
from ngramkit.decode.sampling import distances_to_draw
from ngramkit.drafters.base import Drafter, TokenArray, common_beginning
from ngramkit.drafters.registry import NoDraft

WARM_UP_TOKENS = 4  # tokens
ENOUGH_SECONDS = 10.0  # seconds of a comparison
NEAR_TIE = 4.0  # units in the last place of the best logit

CatchUp = Callable[[float], None]  # lets the other sides reach this number of tokens


@dataclass(frozen=True)
class Parting:
    """The first place where two texts differ.

    At a near tie rounding decides: both logits are within NEAR_TIE of the best one of a 16-bit
    model, or, in sampled text, changes of that size draw either token.
    """

    index: int  # of the new token
    ours: str | None  # its text; None if the answer ended before it
    theirs: str | None
    of: str  # the other text: "generate" or "no drafts"
    near_tie: bool


@dataclass(frozen=True)
class Comparison:
    """Times with and without drafts: of one round if they alternated, else the fastest of each."""

    drafted: Decoded
    baseline: Decoded
    rounds: tuple[float, ...] = ()  # the speed-up of each
    generate: Decoded | None = None  # transformers' own, if measured
    packed: bool = False  # the first two ran over packed weights, `generate` over plain ones
    parting: Parting | None = None  # from generate's text or that without drafts
    others: float | None = None  # cores that other programs used meanwhile

    @property
    def comparable(self) -> bool:
        """Whether the texts are the same up to a near tie."""
        return self.parting is None or self.parting.near_tie

    @property
    def speedup(self) -> float | None:
        """The speed-up over the same weights without drafts, if comparable."""
        return _times_as_fast(self.drafted, self.baseline) if self.comparable else None

    @property
    def over_generate(self) -> float | None:
        """The speed-up over `generate`, if measured and comparable."""
        if self.generate is None or not self.comparable:
            return None
        return _times_as_fast(self.drafted, self.generate)

    @property
    def undrafted_over_generate(self) -> float | None:
        """The part of `over_generate` from packed weights and our loop."""
        if self.generate is None or not self.comparable:
            return None
        return _times_as_fast(self.baseline, self.generate)

    @property
    def shown_speedup(self) -> str:
        if self.speedup is None:
            return "n/a"
        if len(self.rounds) < 2:
            return f"{self.speedup:.2f}"
        return f"{self.speedup:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"

    @property
    def identical(self) -> bool:
        return self.parting is None


def _times_as_fast(run: Decoded, other: Decoded) -> float:
    """Return the ratio of tokens per second: after a near tie, texts may end at other lengths."""
    return other.seconds / run.seconds * (len(run.token_ids) / len(other.token_ids))


def compare(
    decoder: Decoder,
    prompt: TokenArray,
    make_drafter: Callable[[], Drafter],
    *,
    rounds: int = 3,
    plain: LanguageModel | None = None,
) -> Comparison:
    """Decode `rounds` times with and without drafts, and with `plain` by `generate`.

    Every round has a new drafter, which has not seen the answer. Raises KeyboardInterrupt.
    """
    alone = decoder.undrafted()
    # A device may have no memory for a second cache.
    in_turns = decoder.model.model.device.type == "cpu" and decoder.options.cache is None
    warm_up(decoder, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    if plain is not None:
        short = replace(decoder, options=replace(decoder.options, max_new_tokens=WARM_UP_TOKENS))
        answer_by(GENERATE, plain, short, prompt[-WARM_UP_TOKENS:])
    beside = None
    if plain is not None:
        beside = partial(answer_by, GENERATE, plain, decoder, prompt)
    started, others = time.perf_counter(), OtherPrograms()
    comparisons: list[Comparison] = []
    for _ in range(rounds):
        drafter = make_drafter()
        if in_turns:
            with packed_weights_of(decoder.model.model):
                runs = [decoder.run(prompt, drafter), alone.run(prompt, NoDraft())]
                drafted, baseline, *by_generate = in_lockstep(runs, beside)
            generated = by_generate[0] if by_generate else None
        else:
            baseline = _require_finished(alone.decode(alone.request(prompt), NoDraft()))
            drafted = _require_finished(decoder.decode(decoder.request(prompt), drafter))
            generated = None if plain is None else answer_by(GENERATE, plain, decoder, prompt)
        comparisons.append(Comparison(drafted, baseline, generate=generated))
        if time.perf_counter() - started > ENOUGH_SECONDS:
            break
    speedups = tuple(_times_as_fast(each.drafted, each.baseline) for each in comparisons)
    if in_turns:
        best = min(comparisons, key=lambda each: each.drafted.seconds + each.baseline.seconds)
    else:
        seconds = attrgetter("seconds")
        generates = [each.generate for each in comparisons if each.generate is not None]
        best = Comparison(
            min((each.drafted for each in comparisons), key=seconds),
            min((each.baseline for each in comparisons), key=seconds),
            generate=min(generates, key=seconds, default=None),
        )
    found = replace(best, rounds=speedups, packed=is_packed(decoder.model.model))
    reference = decoder if plain is None else replace(decoder, model=plain)
    return replace(found, others=others.cores, parting=parting_of(found, reference, prompt))


def warm_up(decoder: Decoder, prompt: TokenArray, drafter: Drafter) -> None:
    """Write a few tokens, so that imports and kernels are not measured."""
    if decoder.costs is not None and not isinstance(drafter, NoDraft):
        compile_kernels()
    short = replace(decoder.options, max_new_tokens=WARM_UP_TOKENS, stop=())
    decoder = replace(decoder, options=short)
    _require_finished(decoder.decode(decoder.request(prompt[-WARM_UP_TOKENS:]), drafter))


def in_lockstep(
    runs: Sequence[Run], beside: Callable[[CatchUp], Decoded] | None = None
) -> list[Decoded]:
    """Run all to their ends, always stepping the run with the fewest tokens.

    After each of its passes `beside` calls its argument with its number of tokens, and the runs
    catch up; its result is the last. Raises KeyboardInterrupt.
    """

    def catch_up(tokens: float) -> None:
        while going := [run for run in runs if not run.ended_by and run.tokens < tokens]:
            run = min(going, key=lambda each: each.tokens)
            run.clock.resume()
            run.verify()
            run.accept_while_drafted()

    with model_passes():
        try:
            for run in runs:
                run.clock.resume()
                run.prefill()
                run.accept_while_drafted()
            others = [] if beside is None else [beside(catch_up)]
            catch_up(inf)
        finally:
            for run in runs:
                run.clock.resume()
                run.finish()
    return [*(run.result() for run in runs), *others]


def _require_finished(run: Decoded) -> Decoded:
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def parting_of(found: Comparison, decoder: Decoder, prompt: TokenArray) -> Parting | None:
    for of, other in (("generate", found.generate), ("no drafts", found.baseline)):
        if other is not None and not found.drafted.same_tokens(other):
            return where_answers_part(decoder, prompt, found.drafted.token_ids, other.token_ids, of)
    return None


def where_answers_part(
    decoder: Decoder, prompt: TokenArray, ours: TokenArray, theirs: TokenArray, of: str
) -> Parting:
    """Return where two different answers, int32[n] each, differ."""
    index, model = common_beginning(ours, theirs), decoder.model
    tokens = [text[index : index + 1].tolist() for text in (ours, theirs)]
    near, sampling = False, decoder.options.sampling
    if all(tokens) and (not sampling.greedy or model.model.dtype.itemsize == 2):
        scores, unit = _scores_after(decoder, prompt, ours[:index])
        both = [*tokens[0], *tokens[1]]
        if sampling.greedy:
            distances = scores.max() - scores[both]
        else:
            distances = distances_to_draw(scores, sampling.seed, index)[both]
        near = bool((distances <= NEAR_TIE * unit).all())
    mine, other = (model.tokenizer.decode_answer(token) if token else None for token in tokens)
    return Parting(index, mine, other, of, near)


def _scores_after(
    decoder: Decoder, prompt: TokenArray, tokens: TokenArray
) -> tuple[torch.Tensor, float]:
    """Return the next scores, float32[V], and a unit in the last place of the best."""
    model, sampling = decoder.model, decoder.options.sampling
    whole = np.concatenate([prompt, tokens]).astype(np.int64)
    ids = torch.from_numpy(whole).to(model.model.device)[None]
    with model_passes():
        logits = model.model(input_ids=ids, use_cache=False).logits[:, -1]
        kind, scores = torch.finfo(logits.dtype), logits.float()
        if not sampling.greedy or applied_settings(model, sampling):
            longest = len(prompt) + decoder.request(prompt).longest
            options = generate_options(model, sampling, max_length=longest)
            scores = prepare_call(model, prompt, options).processors(ids, scores)
    best = float(scores.max())
    unit: float = kind.eps * 2.0 ** floor(log2(max(abs(best), kind.tiny)))
    return scores[0].cpu(), unit


def plain_model(decoder: Decoder) -> LanguageModel | None:
    """Return the model with plain weights, if comparable and memory suffices."""
    model = decoder.model.model
    if not _is_greedy_without_stop(decoder) or 2 * packed_bytes(model) > free_memory():
        return None
    return replace(decoder.model, model=unpacked(model))


def _is_greedy_without_stop(decoder: Decoder) -> bool:
    return not (decoder.options.temperature > 0 or decoder.options.stop)


def require_greedy_without_stop(decoder: Decoder) -> None:
    if not _is_greedy_without_stop(decoder):
        raise UsageError(
            f"cannot compare {' and '.join(TRANSFORMERS_WAYS)} with temperature or stop",
            "Leave out temperature and stop, or these two.",
            option=("temperature", "stop"),
        )


class _TimedPasses(BaseStreamer):
    """Gets the tokens of each pass of `generate`; `catch_up` and `threads` are not timed."""

    def __init__(self, catch_up: CatchUp | None, threads: PassThreads | None) -> None:
        self.clock, self.tokens_per_pass = Clock(), list[int]()
        self._catch_up, self._threads = catch_up, threads
        self._has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if not self._has_prompt:  # `generate` puts it before the first pass
            self._has_prompt = True
            self.clock.lap("verify")
            return
        is_prefill = not self.tokens_per_pass
        self.tokens_per_pass.append(value.numel())
        passing = self.clock.lap("prefill" if is_prefill else "verify")
        if self._threads is not None:
            self._threads.adapt(0.0 if is_prefill else passing)
        if self._catch_up is not None:
            self._catch_up(sum(self.tokens_per_pass))
        self.clock.resume()

    def end(self) -> None:
        self.clock.lap("verify")


def answer_by(
    name: str,
    model: LanguageModel,
    decoder: Decoder,
    prompt: TokenArray,
    catch_up: CatchUp | None = None,
) -> Decoded:
    """Write with one of TRANSFORMERS_WAYS; with `catch_up` the other sides choose the threads."""
    decoder = replace(decoder, model=model)
    require_greedy_without_stop(decoder)
    request, sampling = decoder.request(prompt), decoder.options.sampling
    ids = torch.tensor(np.asarray(prompt, np.int64), device=model.model.device)[None]
    threads = decoder.threads if catch_up is None else None
    if threads is not None:  # as for our own passes
        threads.begin()
    passes = _TimedPasses(catch_up, threads)
    try:
        with model_passes():
            whole = model.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                streamer=passes,
                **generate_options(model, sampling, max_length=len(prompt) + request.longest),
                **TRANSFORMERS_WAYS[name],
            )
    finally:
        if threads is not None:
            threads.end()
    written = whole[0, len(prompt) :].cpu().numpy().astype(np.int32)
    first, *later = passes.tokens_per_pass
    if later:  # with prompt lookup the first pass may accept drafts, too
        later[0] += first - 1
    return Decoded(
        prompt_tokens=len(prompt),
        token_ids=written,
        accepted_per_pass=[tokens - 1 for tokens in later],
        ended_by="eos" if len(written) and int(written[-1]) in request.eos else "length",
        seconds=passes.clock.seconds,
        prefill_seconds=passes.clock.laps["prefill"],
        draft_seconds=0.0,
        verify_seconds=passes.clock.laps["verify"],
    )
