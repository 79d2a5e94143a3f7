"""Fits the offers of blend's copying: `python -m research.fit_copying --model MODEL FILE...`.

Each FILE is a log of calls in order of time, as `ngramkit replay` reads it. They are written again
token for token, by a blend that knows their own text and the outputs before. Each offer of a copied
token is noted: its kind, the probability p that all else gave the token, and whether it was right.
A logistic curve of logit p is fitted to each kind. A file counts as MOST offers of a kind at most,
and a weak prior pulls towards p itself. Prints each curve beside FITTED_TRUST of
kernels.blend.copied_text.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import NO_TOKENS
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.evaluate.records import read_records
from ngramkit.kernels.blend.copied_text import (
    FITTED_TRUST,
    MIN_PROBABILITY,
    PLACES,
    offered_token,
    point_to_live,
)
from ngramkit.kernels.blend.counts import listed_row
from ngramkit.kernels.blend.sources import (
    extend,
    follow_token,
    mix_sources_in_order,
    move_on,
    new_place,
)
from ngramkit.kernels.jit import entry
from ngramkit.kernels.packed_arguments import Packed

MOST = 2000  # offers of a kind that a file counts as, at most
PRIOR = np.array([2.0, 20.0])  # of trust 0 and slope 1, in offers


@entry
def write(sources: Any, place: Any, begin: int, offers: Any) -> None:
    """Read a prompt of `begin` tokens, then write the others of a call; note the offers in
    float32[tokens, 2, 3]: kind (-1: none), p, whether it was right."""
    for which in range(PLACES):  # so that offers change nothing
        for kind in range(sources.copying.trust.shape[1]):
            sources.copying.trust[which, kind], sources.copying.slopes[which, kind] = 0, 1
    extend(sources, place, 0, begin)
    for i in range(len(offers)):
        position, token = begin + i, np.int64(sources.live.tokens[begin + i])
        point_to_live(place.copied, sources.live)
        mix_sources_in_order(
            sources, place.root, place.past, place.recent, place.copied, position, np.float32(0),
            token,
        )  # fmt: skip
        for which in range(2):
            kind, copied = offered_token(place.copied[which], sources.edits)
            offers[i, which, 0] = -1
            if 0 <= copied < len(sources.into.rows) - 1:
                row = listed_row(sources.into, copied)
                offers[i, which, 0], offers[i, which, 2] = kind, copied == token
                offers[i, which, 1] = sources.scratch.p[row] if row >= 0 else 0
                sources.copying.trust[which, kind] = 0
        move_on(sources, place, position)
        follow_token(sources, place)


def offers_of(file: Path, tokenizer: Any) -> Iterator[Any]:
    """Yield the offers of each call in a log, float32[tokens, 2, 3]."""
    past = PastRequests(tokenizer=tokenizer.record, background=False, prompts=False)
    drafter = Blend(past=past)
    for record in read_records(file, None, tokenizer, "none")[0]:
        for turn in record.turns:
            drafter.start(NO_TOKENS)  # takes in past requests
            assert drafter.request is not None
            text = np.concatenate([turn.prompt, turn.answer]).astype(np.int32)
            drafter.request.append(np.minimum(text.view(np.uint32), drafter.vocabulary))
            sources, place = drafter.workspace.bind(drafter.request), Packed(new_place(0))
            offers = np.zeros((len(turn.answer), 2, 3), np.float32)
            write(sources, place, len(turn.prompt), offers)
            yield offers
            past.remember(text, len(turn.prompt))


def fit(logs: list[Any]) -> Any:
    """Return trust and slope, float64[2], of the likeliest curve through offers, float32[n, 3]
    each, by Newton's method."""
    _, p, right = np.concatenate(logs).T.astype(np.float64)
    weights = np.concatenate([np.full(len(log), min(1, MOST / max(len(log), 1))) for log in logs])
    p = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    inputs, curve = np.stack([np.ones_like(p), np.log(p / (1 - p))]), np.array([0.0, 1.0])
    for _ in range(100):
        chance = 1 / (1 + np.exp(-curve @ inputs))
        gradient = inputs @ (weights * (right - chance)) - PRIOR * (curve - [0, 1])
        hessian = (inputs * weights * chance * (1 - chance)) @ inputs.T + np.diag(PRIOR)
        step = np.linalg.solve(hessian, gradient)
        curve += step / max(1, np.abs(step).max())
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", required=True, help="whose tokenizer: a name or a folder")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.model)
    logs = [np.concatenate(list(offers_of(file, tokenizer))) for file in options.files]
    for row in range(2):
        for kind in range(FITTED_TRUST.shape[1]):
            trust, slope = fit([log[log[:, row, 0] == kind, row] for log in logs])
            print(row, kind, f"({trust:.2f}, {slope:.2f})", FITTED_TRUST[row, kind])


if __name__ == "__main__":
    main()
