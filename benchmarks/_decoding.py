"""The demo model's held-out prompts and every drafter for them, for the decoding benchmarks.

Artifacts are those of `make demo`, and the model's own tables; they are built first, untimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._data import stdlib_tokens
from ngramkit.budget.profile import Profile
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.model_bigram import build_model_bigram
from ngramkit.builders.model_unigram import build_model_unigram
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.kept_costs import learnt_costs
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.formats.history import History

NEW_TOKENS = 128

Make = Callable[[], Drafter]
Tokens = npt.NDArray[np.int32]


def held_out(model: LanguageModel, count: int) -> list[Tokens]:
    return [model.tokenizer.encode_prompt(text) for _, text in demo_prompts(count)]


def default_budget(model: LanguageModel) -> int:
    """Return draft nodes per pass, by what one costs: next to nothing on a GPU."""
    return 6 if model.model.device.type == "cpu" else 64


def decoder_of(model: LanguageModel, profile: Profile | None = None) -> Decoder:
    """Return a decoder of fixed drafts, or with `profile` one of --budget auto."""
    options = DecodeOptions(budget=default_budget(model), max_new_tokens=NEW_TOKENS)
    decoder = Decoder.settle(model, options)
    if profile is not None:
        costs = learnt_costs(model.model, decoder.verify, profile)
        decoder = replace(decoder, budget=profile.sizes[-1], costs=costs)
    return decoder


class Drafters:
    """Every drafter of the registry, new each time: one that learns must not have seen the answer.

    `past` holds the requests that ssd and blend know; it is empty at first. `artifacts` are what
    `load_drafter` takes; without any, those of the demo model are built.
    """

    def __init__(
        self, model: LanguageModel, folder: Path, artifacts: Mapping[str, Any] | None = None
    ) -> None:
        self.model = model
        self.past = History.at(folder / "past", model.tokenizer.record)
        self._artifacts = _of_demo(model, folder) if artifacts is None else artifacts

    def make(self, name: str) -> Drafter:
        past = PastRequests(History.open(self.past.path), background=False, forgetful=True)
        return load_drafter(name, past=past, **self._artifacts)


def _of_demo(model: LanguageModel, folder: Path) -> dict[str, Any]:
    store = stdlib_tokens(folder)
    return {
        "datastores": [build_datastore(store, folder / "datastore")],
        "frozen_table": build_frozen(store, folder / "frozen"),
        "bigram": build_model_bigram(model.model, model.tokenizer, folder / "bigram").table,
        "unigram": build_model_unigram(model.model, model.tokenizer, folder / "unigram").table,
    }


def generate(model: LanguageModel, prompt: Tokens, **options: Any) -> Tokens:
    """Return what transformers' greedy decoding writes, int32[n]."""
    import torch

    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    output = model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        **options,
    )
    tokens: Tokens = output[0, ids.shape[1] :].numpy().astype(np.int32)
    return tokens
