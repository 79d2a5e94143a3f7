"""The models and prompts of `never_slower`, and the rule as it was when it had to be calibrated."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._decoding import Drafters
from ngramkit.budget.costs import PassCosts, Prior
from ngramkit.budget.profile import Profile
from ngramkit.budget.rule import AutoBudget
from ngramkit.builders.model_unigram import build_model_unigram
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.demo import demo_prompts
from ngramkit.formats.kinds import open_artifact

REAL = Path(os.environ.get("NGRAMKIT_BENCH_REAL", "build/real"))

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
    """(kind, text), `each` of every kind, 6 at most; always the same."""
    code = [text for _, text in demo_prompts(each)]
    words = re.findall(r"\w+", " ".join(PROSE + CHAT))
    shuffled = []
    for seed in range(each):
        random.Random(seed).shuffle(words)
        shuffled.append(" ".join(words[:60]))
    rows = zip(code, PROSE, CHAT, shuffled, strict=False)
    return [pair for row in rows for pair in zip(KINDS, row, strict=True)]


def random_model() -> LanguageModel:
    """One layer of random numbers, the demo model's tokens."""
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
    """Each with how many prompts of a kind, how many tokens, in how many rounds it is asked.

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
    """Every drafter for one of `models`; `folder` holds what is built for it."""
    if model.name != "smollm2-135m":
        return Drafters(model, folder)
    built = REAL / "artifacts"
    unigram = build_model_unigram(model.model, model.tokenizer, folder / "unigram").table
    return Drafters(
        model,
        folder,
        {
            "datastores": [open_artifact(built / "chat-smollm2-135m-datastore")],
            "frozen_table": open_artifact(built / "chat-smollm2-135m-frozen"),
            "bigram": open_artifact(built / "smollm2-135m-model-bigram"),
            "unigram": unigram,
        },
    )


class Measured(PassCosts):
    """A profile as it is: nothing is learnt."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(Prior.by_profile(profile, profile.sizes[-1] + 1))

    def at(self, length: int) -> npt.NDArray[np.float64]:
        return self._prior.at(length).copy()

    def unit(self, length: int) -> float:
        return 1.0

    def reach(self, length: int) -> int:
        return self.most

    def seen(self, length: int) -> int:
        return 1 << 30

    def learn(self, rows: int, length: int, seconds: float) -> None: ...


class Calibrated(AutoBudget):
    """`--budget auto` up to 0.1: by a profile alone, and every pass is drafted for."""

    def opens(self) -> bool:
        return True
