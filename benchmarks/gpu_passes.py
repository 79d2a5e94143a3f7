"""Passes of a model of Qwen3-8B's size through transformers on a GPU, next to the formula's.

    python -m benchmarks.gpu_passes [--write]

The weights are random, in bfloat16, and take 16 GB of the GPU's memory. A pass verifies a draft
tree of one request.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks import markdown
from benchmarks._figures import write_figures
from benchmarks.load import MODELS
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import model_size
from ngramkit.decode.calibrate import measure_best_rounds
from ngramkit.decode.load import LanguageModel, load_model

NAME, CONTEXTS, SECONDS = "Qwen3-8B, dense", (512, 8192), 30.0
TOKENS = np.array([1, 2, 4, 8, 16, 32, 64, 96, 128])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_passes")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    given = parser.parse_args()
    sizes = tuple(int(tokens) - 1 for tokens in TOKENS)
    profile = measure_best_rounds(random_model(), sizes=sizes, contexts=CONTEXTS, seconds=SECONDS)
    formula = ModelCost(size=model_size(MODELS[NAME])).times(TOKENS.astype(float), 1, CONTEXTS[0])
    rows = [
        [f"context of {context:,} tokens, ms", *(f"{1e3 * each:.1f}" for each in seconds)]
        for context, seconds in zip(profile.contexts, profile.measured(), strict=True)
    ]
    rows.append(["by the formula, over one token", *(f"{x:.2f}" for x in formula / formula[0])])
    head = ["tokens of a pass", *map(str, TOKENS)]
    print(torch.cuda.get_device_name(), markdown(head, rows), sep="\n")
    if given.write:
        figures = {"gpu": torch.cuda.get_device_name(), "head": head, "rows": rows}
        write_figures("gpu_passes", "python -m benchmarks.gpu_passes", figures)


def random_model() -> LanguageModel:
    config: Any = transformers.Qwen3Config
    made = config(**MODELS[NAME], tie_word_embeddings=False, max_position_embeddings=16_384)
    torch.manual_seed(0)
    with torch.device("cuda"):
        of: Any = transformers.AutoModelForCausalLM
        model = of.from_config(made, dtype=torch.bfloat16).eval()
    return LanguageModel(NAME, model, load_model("demo", device="cpu").tokenizer)


if __name__ == "__main__":
    main()
