"""How often drafts change what is written in bfloat16, and how near the tie is where they first do.

Held-out prompts, the demo model on the CPU; the reference is model.generate(do_sample=False) in
bfloat16 too. Passes of several rows add up in another order than passes of one, so a near tie may
fall either way. Gaps are in units in the last place of the best logit, as a plain pass has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks import Row
from benchmarks._decoding import Drafters, Tokens, decoder_of, generate, held_out
from ngramkit.decode.load import LanguageModel, load_model

PROMPTS = 30
NAMES = ("none", "blend")
NEAR = 2  # units in the last place
BITS = 7  # of a bfloat16's fraction


def rows() -> Iterator[Row]:
    model = load_model("demo", device="cpu", dtype="bfloat16")
    decoder, prompts = decoder_of(model), held_out(model, PROMPTS)
    expected = [generate(model, prompt) for prompt in prompts]
    pairs = list(zip(prompts, expected, strict=True))
    near = np.concatenate([np.sort(behind(model, *pair), -1)[:-1, 1] for pair in pairs]) <= NEAR
    with TemporaryDirectory() as folder:
        drafters = Drafters(model, Path(folder))
        for name in NAMES:
            gaps = [
                gap_where_different(
                    model,
                    prompt,
                    wanted,
                    decoder.decode(decoder.request(prompt), drafters.make(name)).token_ids,
                )
                for prompt, wanted in pairs
            ]
            yield row(name, [gap for gap in gaps if gap is not None], float(near.mean()))


def gap_where_different(
    model: LanguageModel, prompt: Tokens, wanted: Tokens, found: Tokens
) -> float | None:
    """Return, at the first token that differs, how far the worse of the two is behind the best."""
    both = zip(wanted.tolist(), found.tolist(), strict=False)
    place = next((i for i, (theirs, ours) in enumerate(both) if theirs != ours), None)
    if place is None:
        return None
    gaps = behind(model, prompt, wanted[:place])[-1]
    return float(max(gaps[wanted[place]], gaps[found[place]]))


def behind(model: LanguageModel, prompt: Tokens, tokens: Tokens) -> np.ndarray:
    """Return each logit's distance to the best, float32[len(tokens) + 1, V], in a plain pass."""
    ids = torch.from_numpy(np.concatenate([prompt, tokens]).astype(np.int64))[None]
    with torch.inference_mode():
        logits = model.model(ids).logits[0, len(prompt) - 1 :].float()
    best = logits.max(-1, keepdim=True).values
    distances: np.ndarray = ((best - logits) / 2.0 ** (best.abs().log2().floor() - BITS)).numpy()
    return distances


def row(name: str, gaps: list[float], near: float) -> Row:
    at_most = f", first at gaps of at most {max(gaps):.0f} units" if gaps else ""
    return Row(
        f"bfloat16, demo on the CPU, {PROMPTS} held-out prompts, drafter {name}",
        f"{len(gaps) / PROMPTS:.0%} of the texts differ{at_most}",
        f"model.generate, whose two best are within {NEAR} units at {near:.0%} of its tokens",
        1 - len(gaps) / PROMPTS,
        f"gaps of at most {NEAR} units",
    )
