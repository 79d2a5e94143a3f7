"""Every drafter against no drafts, prompt by prompt, with `--budget auto`, nothing calibrated.

60 prompts of code, prose, chat and shuffled words, for three models: the embedded model, one layer
of random numbers (whose sampled text nothing predicts), and SmolLM2-135M if `make real` has built
its artifacts (NGRAMKIT_BENCH_REAL names its --work folder). NGRAMKIT_BENCH_MODELS=demo,random and
NGRAMKIT_BENCH_PROMPTS=1 select fewer.

Each drafter's passes alternate with those of no drafts, because whole runs one after another differ
by a fifth on a shared machine. Times are processor time of this thread; run it with
OMP_NUM_THREADS=1, so that torch has no other. A prompt below 0.97 is asked again in more rounds and
counts with their median, which removes noise and keeps real losses. The first prompts of each model
also teach what passes cost, as for any user.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import Row
from benchmarks._decoding import Drafters
from benchmarks._real import built_in
from ngramkit.builders.model_unigram import build_model_unigram
from ngramkit.decode.compare import in_lockstep, warm_up
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.kept_costs import learnt_costs
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.result import Clock, Decoded
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.registry import DRAFTERS, NoDraft
from ngramkit.formats.opening import open_artifact_folder

REAL = Path(os.environ.get("NGRAMKIT_BENCH_REAL", "build/real"))
NONE = "none"
LEAST = 0.97
AGAIN = 6  # more rounds where a prompt was below LEAST


@dataclass
class PromptRatios:
    """One prompt: every round's speed over no drafts, by drafter, and the latest runs."""

    kind: str
    ratios: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, Decoded] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """Return the median of all rounds."""
        return statistics.median(self.ratios[name])


class Comparison:
    """Every drafter against none on one model."""

    def __init__(self, given: Drafters, new_tokens: int, *, sampled: bool) -> None:
        self.model, self._drafts = given.model, given
        options = DecodeOptions(max_new_tokens=new_tokens, temperature=1.0 if sampled else 0.0)
        settled = Decoder.settle(self.model, options)
        costs = learnt_costs(self.model.model, settled.verify)
        self._decoder = replace(settled, costs=costs)
        self._alone = self._decoder.undrafted()
        self.names = [name for name in DRAFTERS if name != NONE]

    def ask(self, kind: str, prompt: TokenArray, rounds: int) -> PromptRatios:
        """Answer one prompt with every drafter; slow ones in more rounds."""
        result = PromptRatios(kind)
        for name in self.names:
            warm_up(self._decoder, prompt, self._drafts.make(name))
        self._rounds(result, prompt, self.names, rounds)
        low = [name for name in self.names if result.ratio(name) < LEAST]
        self._rounds(result, prompt, low, AGAIN)
        return result

    def _rounds(
        self, result: PromptRatios, prompt: TokenArray, names: list[str], rounds: int
    ) -> None:
        for _ in range(rounds):
            for name in names:
                pair = [
                    self._alone.run(prompt, NoDraft()),
                    self._decoder.run(prompt, self._drafts.make(name)),
                ]
                for run in pair:
                    run.clock = Clock(time.thread_time)
                alone, ours = in_lockstep(pair)
                result.ratios.setdefault(name, []).append(alone.seconds / ours.seconds)
                result.runs[name] = ours
                if not ours.same_tokens(alone):
                    raise AssertionError(f"{name} is not lossless")


def rows() -> Iterator[Row]:
    chosen = os.environ.get("NGRAMKIT_BENCH_MODELS", "")
    for model, each, new_tokens, rounds in models(chosen.split(",") if chosen else None):
        with TemporaryDirectory() as folder:
            drafters, sampled = drafters_of(model, Path(folder)), model.name.startswith("random")
            comparison = Comparison(drafters, new_tokens, sampled=sampled)
            prompts = []
            for kind, text in texts(each):
                result = comparison.ask(kind, model.tokenizer.encode_prompt(text), rounds)
                prompts.append(result)
                shown = {name: round(result.ratio(name), 3) for name in result.ratios}
                print(json.dumps({"kind": kind, **shown}), file=sys.stderr, flush=True)
        for name in comparison.names:
            yield row(model.name, name, prompts)


def row(model: str, name: str, prompts: list[PromptRatios]) -> Row:
    """Return the least ratio of all prompts, and their mean."""
    ratios = [prompt.ratio(name) for prompt in prompts]
    slowest = min(prompts, key=lambda prompt: prompt.ratio(name))
    run, rounds = slowest.runs[name], len(slowest.ratios[name])
    below = sum(ratio < LEAST for ratio in ratios)
    return Row(
        f"never slower, {model}, {len(prompts)} prompts, {name}",
        f"mean {statistics.fmean(ratios):.2f}; {below} below {LEAST}",
        f"no drafts; least with {slowest.kind}, {rounds} rounds, {run.tokens_per_step:.2f} "
        f"tokens/step, {run.drafted_passes} of {run.passes} passes drafted, "
        f"{run.passes - run.declined_passes} not declined",
        min(ratios),
        f">= {LEAST}",
    )


# The models and prompts.


PROSE = (
    "The harbour was built of grey stone, two long arms that held the water still while the sea "
    "outside went on as it pleased. In winter nobody came but the gulls and the old pilot, who "
    "counted the ships that did not arrive and wrote their number into a green book.",
    "When the last train had left, the stationmaster put out the lamps one after another. He had "
    "done so for thirty years, and he knew by the sound of the gravel whether it would rain. That "
    "evening the gravel said nothing at all, and he stood there for a while and listened.",
    "Glaciers are rivers that have forgotten how to hurry. Snow falls, is buried by more snow, and "
    "turns to ice under its own weight. The ice begins to creep downhill, carrying sand and rocks "
    "along, and where it melts it leaves them in long curved heaps across the valley.",
    "My grandmother kept bees behind the house. She said that a hive was a single animal which "
    "happened to be able to fly apart, and that one should speak to it as to a neighbour: not too "
    "often, never in anger, and always before taking anything away.",
    "The printing press did not only make books cheaper. It made them alike. For the first time "
    "two scholars in distant cities could name a page and be certain that they meant the same "
    "words, and errors, once found, could be mended for everybody at once.",
    "It is easy to describe the town in fog, because then there is nothing to describe. One hears "
    "the tram before it comes, a bell, a dog, somebody sweeping a yard. Everything is near and "
    "nothing is there, and people greet each other more kindly than on clear days.",
)
CHAT = (
    "User: How do I keep bread fresh for longer?\nAssistant: Store it in a paper bag or a bread "
    "box, not in the fridge.\nUser: Why not in the fridge?\nAssistant:",
    "User: Please write three sentences about the moon for a child of six.\nAssistant:",
    "User: What is the difference between weather and climate?\nAssistant: Weather is what happens "
    "on a day, climate is what is usual over many years.\nUser: Can you give me an example?\n"
    "Assistant:",
    "User: My neighbour plays loud music every night. How should I talk to him about it?\n"
    "Assistant:",
    "User: Make a plan for a weekend in Lisbon with two children.\nAssistant: Of course. Here is a "
    "plan for two days.\n\nSaturday morning:",
    "User: Explain recursion as if I had never written a program.\nAssistant:",
)
KINDS = ("code", "prose", "chat", "shuffled words")


def texts(each: int) -> list[tuple[str, str]]:
    """Return (kind, text), `each` of every kind, 6 at most; always the same."""
    code = [text for _, text in demo_prompts(each)]
    words = re.findall(r"\w+", " ".join(PROSE + CHAT))
    shuffled = []
    for seed in range(each):
        random.Random(seed).shuffle(words)
        shuffled.append(" ".join(words[:60]))
    rows = zip(code, PROSE, CHAT, shuffled, strict=False)
    return [pair for row in rows for pair in zip(KINDS, row, strict=True)]


def random_model() -> LanguageModel:
    """Return one layer of random numbers with the demo model's tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    demo = load_model("demo", device="cpu")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=demo.model.config.vocab_size,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=4096,
    )
    make: Callable[..., Any] = LlamaForCausalLM
    model = make(config).eval()
    model.generation_config.eos_token_id = None
    return LanguageModel("random, 1 layer", model, demo.tokenizer)


def models(names: Sequence[str] | None = None) -> Iterator[tuple[LanguageModel, int, int, int]]:
    """Yield each with its number of prompts of a kind, of tokens and of rounds.

    NGRAMKIT_BENCH_PROMPTS: another number of prompts of a kind.
    """
    count = int(os.environ.get("NGRAMKIT_BENCH_PROMPTS", "0"))
    if names is None or "demo" in names:
        yield load_model("demo", device="cpu"), count or 6, 128, 1
    if names is None or "random" in names:
        yield random_model(), count or 6, 128, 1
    if (names is None or "smollm2-135m" in names) and (REAL / "artifacts").is_dir():
        yield load_model("smollm2-135m", device="cpu"), count or 3, 96, 1


def drafters_of(model: LanguageModel, folder: Path) -> Drafters:
    """Return every drafter for one of `models`; `folder` holds what is built for it."""
    if model.name != "smollm2-135m":
        return Drafters(model, folder)
    store, frozen, bigram = map(open_artifact_folder, built_in(REAL))
    unigram = build_model_unigram(model.model, model.tokenizer, folder / "unigram").table
    given = {"datastores": [store], "frozen_table": frozen, "bigram": bigram, "unigram": unigram}
    return Drafters(model, folder, given)
