"""Fits the blend drafter's weights on recorded text: `python -m research.fit_blend`.

Each --on names a model (its tokenizer), an artifact of a corpus (a datastore or a frozen table; -
for none) and a record file whose answers are not in it. The weights are fitted on all of them
together, with and without a corpus. They minimise the log loss of the next token at random places
of the answers. The evaluation's own records are not used.

The weights in this repository were fitted on chat answers of models and to questions that were
both left out of the corpus (see `research.held_out`), and on held-out files of the Python
standard library with the demo tokenizer: each with the datastore (`--on` three times for chat,
twice for code), with the frozen table and without both, 60,000 places of each. Never on MT-Bench.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.blend import FITTED_WEIGHTS, Blend
from ngramkit.evaluate.records import Record, read_records
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.safetensors import write_arrays
from ngramkit.kernels.blend.counts import COLUMNS
from ngramkit.kernels.blend.sources import new_place, rewind
from ngramkit.kernels.blend.weighting import (
    GATE_FEATURES,
    GATES,
    TOKEN_FEATURES,
    Weights,
    count_in_sources,
    gate_features_of,
    token_features_of,
)
from ngramkit.kernels.jit import allocating_entry
from ngramkit.kernels.packed_arguments import Packed

KEPT = 40  # candidates per place, the likeliest by a plain mean of all orders
HIDDEN, UNITS = 48, 12
EPOCHS, BATCH, RATE = 10, 512, 6e-3
MISS = -30.0  # log p of what is not there

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Places:
    """Contexts of recorded text and what followed. Label KEPT: none of the candidates."""

    gate_features: Floats  # [n, GATE_FEATURES]
    shares: Floats  # [n, KEPT, COLUMNS], counts / totals
    present: npt.NDArray[np.bool_]  # [n, COLUMNS], the column has counts
    token_features: Floats  # [n, KEPT, TOKEN_FEATURES - 1], without log p
    valid: npt.NDArray[np.bool_]  # [n, KEPT]
    labels: npt.NDArray[np.int64]  # [n]


def observe(drafter: Blend, records: Sequence[Record], places: int, seed: int) -> Places:
    """Sample about `places` places of the records' answers."""
    total = sum(len(turn.answer) for record in records for turn in record.turns)
    random = np.random.default_rng(seed)
    rows = list(_rows(drafter, records, places / total, random))
    return Places(*(np.stack(column) for column in zip(*rows, strict=True)))


def _rows(
    drafter: Blend, records: Sequence[Record], share: float, random: np.random.Generator
) -> Iterator[tuple[Any, ...]]:
    for record in records:
        for turn in record.turns:
            drafter.start(turn.prompt)
            chosen = np.flatnonzero(random.random(len(turn.answer)) < share)
            done = 0
            for place in chosen.tolist():
                drafter.accept(turn.answer[done:place])
                done = place
                yield _row(drafter, int(turn.answer[place]))


def _row(drafter: Blend, token: int) -> tuple[Any, ...]:
    request, shards = drafter.request, len(drafter.shared.given.table)
    assert request is not None
    sources, place = drafter.workspace.bind(request), Packed(new_place(shards))
    tokens, counts, totals, gate_features, token_features = look(sources, place, request.size)
    shares = np.where(totals > 0, counts / np.maximum(totals, 1), 0)
    best = np.argsort(-shares.sum(1), kind="stable")[:KEPT]
    hit = np.flatnonzero(tokens[best] == token)
    n = len(best)
    row_shares = np.zeros((KEPT, COLUMNS), np.float32)
    row_features = np.zeros((KEPT, TOKEN_FEATURES - 1), np.float32)
    row_shares[:n], row_features[:n] = shares[best], token_features[best, 1:]
    label = int(hit[0]) if len(hit) else KEPT
    return gate_features, row_shares, totals > 0, row_features, np.arange(KEPT) < n, np.int64(label)


@allocating_entry
def look(sources: Any, place: Any, size: int) -> Any:
    """Return the mixture's inputs after `size` tokens: tokens int32[n], counts [n, COLUMNS], totals
    [COLUMNS], gate features, token features [n, TOKEN_FEATURES] (log p left at 0)."""
    into = sources.into
    rewind(sources, place, size, size)  # nothing is taken back: it finds the last tokens' place
    count_in_sources(sources, place.root, place.recent, size)
    rows = into.state[0]
    gate_features = np.empty(GATE_FEATURES, np.float32)
    gate_features_of(into, size, gate_features)
    token_features = np.empty((rows, TOKEN_FEATURES), np.float32)
    for row in range(rows):
        share = sources.shares[into.tokens[row]]
        token_features_of(into, row, sources.live, size, share, np.float32(0), token_features[row])
    return (
        into.tokens[:rows].copy(),
        into.counts[:rows].copy(),
        into.totals.copy(),
        gate_features,
        token_features,
    )


def fit(places: Places, seed: int = 0) -> Weights:
    """Minimise the log loss with Adam, on one core, reproducibly."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    shapes = [(GATE_FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, GATES), (GATES,)]
    shapes += [(TOKEN_FEATURES, UNITS), (UNITS,), (UNITS + 1,)]
    parameters = [torch.zeros(shape) for shape in shapes]
    for i in (0, 2, 4, 6):
        torch.nn.init.normal_(parameters[i], std=0.5 / shapes[i][0] ** 0.5)
    parameters[6][-1] = 1.0
    for parameter in parameters:
        parameter.requires_grad_()
    data = [torch.from_numpy(value) for value in vars(places).values()]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    count = len(places.labels)
    steps = EPOCHS * (count // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (steps + 1))
    for _ in range(EPOCHS):
        order = torch.randperm(count)
        for begin in range(0, count - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            loss = _loss(parameters, [column[chosen] for column in data])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return Weights(*(parameter.detach().numpy() for parameter in parameters))


def log_loss(weights: Weights, places: Places) -> float:
    """Return the mean of -log p(what followed), nats; a miss counts as the probability of none."""
    import torch

    with torch.no_grad():
        data = [torch.from_numpy(value) for value in vars(places).values()]
        return float(_loss([torch.from_numpy(w) for w in weights], data))


def _loss(parameters: Sequence[Any], data: Sequence[Any]) -> Any:
    """Compute what kernels.blend.weighting does, for many places at once."""
    import torch

    gate_in, gate_bias, gate_out, gate_out_bias, token_in, token_bias, token_out = parameters
    gate_features, shares, present, token_features, valid, labels = data
    logits = torch.relu(gate_features @ gate_in + gate_bias) @ gate_out + gate_out_bias
    columns = logits[:, :COLUMNS].masked_fill(~present, -1e9)
    gates = torch.cat([columns, logits[:, COLUMNS : COLUMNS + 1]], 1).softmax(1)
    p = (shares * gates[:, None, :COLUMNS]).sum(2)
    log_p = torch.log(p.clamp(min=1e-7))
    x = torch.cat([log_p[..., None] * 0.25, token_features], 2)
    y = log_p * token_out[-1] + torch.relu(x @ token_in + token_bias) @ token_out[:-1]
    y = y.masked_fill(~valid | (p <= 0), MISS)
    none = torch.log((1 - p.sum(1)).clamp(min=1e-6)) + logits[:, COLUMNS + 1]
    return torch.nn.functional.cross_entropy(torch.cat([y, none[:, None]], 1), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("--on", "--check-on"):
        names = ("MODEL", "ARTIFACT", "RECORDS")
        parser.add_argument(flag, nargs=3, action="append", metavar=names, default=[])
    parser.add_argument("--template", default="vicuna")
    parser.add_argument("--places", type=int, default=60_000, help="per --on")
    parser.add_argument("--out", type=Path, default=FITTED_WEIGHTS)
    options = parser.parse_args()
    # One that is named twice gives other places the second time, and weighs twice.
    seen = [_places(each, options, seed=seed) for seed, each in enumerate(options.on, 1)]
    columns = zip(*(vars(places).values() for places in seen), strict=True)
    together = Places(*(np.concatenate(column) for column in columns))
    weights = fit(together)
    print(f"log loss where fitted: {log_loss(weights, together):.4f}")
    for each in options.check_on:
        print(f"log loss on {each[2]}: {log_loss(weights, _places(each, options, seed=2)):.4f}")
    write_arrays(options.out, weights._asdict())
    print(f"wrote {options.out}")


def _places(on: Sequence[str], options: argparse.Namespace, seed: int) -> Places:
    model, artifact, answers = on
    tokenizer = load_tokenizer(model)
    records, _ = read_records(Path(answers), None, tokenizer, options.template)
    opened = None if artifact == "-" else open_artifact_folder(artifact)
    drafter = Blend(
        [opened] if isinstance(opened, Datastore) else [],
        opened if isinstance(opened, FrozenTable) else None,
        tokenizer=tokenizer.record,
        weights=_unfitted(),
    )
    return observe(drafter, records, options.places, seed)


def _unfitted() -> Weights:
    shapes = [(GATE_FEATURES, 1), (1,), (1, GATES), (GATES,), (TOKEN_FEATURES, 1), (1,), (2,)]
    return Weights(*(np.zeros(shape, np.float32) for shape in shapes))


if __name__ == "__main__":
    main()
