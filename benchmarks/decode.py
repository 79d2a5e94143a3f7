"""Held-out prompts with the demo model on the CPU: every drafter, no drafts, and transformers.

The references are model.generate(do_sample=False), with and without prompt_lookup_num_tokens=10;
all alternate. Draft sizes adapt (--budget auto, calibrated in the same run). ssd and blend know
earlier requests but not the current one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import Row, in_turns, timed
from benchmarks._decoding import Drafters, Tokens, decoder_of, generate, held_out
from ngramkit.budget.profile import Profile
from ngramkit.decode.calibrate import measure_best_rounds
from ngramkit.decode.compare import warm_up
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.result import Decoded

PROMPTS = 6
ROUNDS = 3
LOOKUP = 10  # tokens
CALIBRATION = 10.0  # seconds
GENERATE, THEIR_LOOKUP, NONE = "model.generate", "its prompt lookup", "none"
DRAFTERS = (NONE, "rest", "cacheback", "ngrammys", "blend", "context", "prompt-lookup")
TARGETS = {NONE: "no slower", "blend": ">= 1.6"}


@dataclass
class Times:
    """Seconds by prompt, each way's best round, and the last run of each of our drafters."""

    tokens: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, list[Decoded]] = field(default_factory=dict)

    def ratios(self, name: str, reference: str) -> tuple[float, float, float]:
        """Return the ratio of all prompts together, the lowest and the highest of one."""
        ours, theirs = np.array(self.seconds[name]), np.array(self.seconds[reference])
        each = theirs / ours
        return float(theirs.sum() / ours.sum()), float(each.min()), float(each.max())


def rows() -> Iterator[Row]:
    model = load_model("demo", device="cpu")
    with TemporaryDirectory() as folder:
        drafters = Drafters(model, Path(folder))
        profile = measure_best_rounds(model, seconds=CALIBRATION)
        times = Times()
        for prompt in held_out(model, PROMPTS):
            compared(model, drafters, prompt, profile, times)
    for name in DRAFTERS:
        yield row(name, times)


def compared(
    model: LanguageModel, drafters: Drafters, prompt: Tokens, profile: Profile, times: Times
) -> None:
    """Time one prompt. Raises AssertionError where an output is not model.generate's."""
    expected = generate(model, prompt)
    same(THEIR_LOOKUP, generate(model, prompt, prompt_lookup_num_tokens=LOOKUP), expected)
    ways = {
        GENERATE: lambda: timed(lambda: generate(model, prompt)),
        THEIR_LOOKUP: lambda: timed(
            lambda: generate(model, prompt, prompt_lookup_num_tokens=LOOKUP)
        ),
    }

    def ours(name: str) -> float:
        side = alone if name == NONE else decoder
        latest[name] = side.decode(side.request(prompt), drafters.make(name))
        return latest[name].seconds

    latest: dict[str, Decoded] = {}
    decoder, alone = decoder_of(model, profile=profile), decoder_of(model)
    for name in DRAFTERS:
        warm_up(decoder, prompt, drafters.make(name))
        ways[name] = partial(ours, name)
    for name, best in in_turns(ways, ROUNDS).items():
        times.seconds.setdefault(name, []).append(best)
    for name, done in latest.items():
        same(name, done.token_ids, expected)
        times.runs.setdefault(name, []).append(done)
    times.tokens += len(expected)
    drafters.past.append(np.append(prompt, expected), len(prompt))


def same(name: str, tokens: Tokens, expected: Tokens) -> None:
    if not np.array_equal(tokens, expected):
        raise AssertionError(f"{name} is not lossless")


def row(name: str, times: Times) -> Row:
    runs = times.runs[name]
    steps = sum(len(done.token_ids) - 1 for done in runs) / sum(done.passes for done in runs)
    outside = sum(done.draft_seconds + done.other_seconds for done in runs)
    share = outside / sum(done.seconds for done in runs)
    ratio, low, high = times.ratios(name, GENERATE)
    over_lookup, over_none = (times.ratios(name, each)[0] for each in (THEIR_LOOKUP, NONE))
    speed = {way: times.tokens / sum(seconds) for way, seconds in times.seconds.items()}
    return Row(
        f"decode, demo on the CPU, {len(runs)} held-out prompts, drafter {name}",
        f"{speed[name]:,.0f} tokens/s, {steps:.2f} tokens/step, {share:.1%} outside the model",
        f"{speed[GENERATE]:,.0f} tokens/s, model.generate ({low:.2f} to {high:.2f} by prompt; "
        f"{over_lookup:.2f} over its prompt lookup, {over_none:.2f} over no drafts)",
        ratio,
        TARGETS.get(name, "above no drafts"),
    )
