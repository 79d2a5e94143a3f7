"""Times of passes with packed and with plain weights, by rows: the table of docs/decoding.md.

    python -m benchmarks.packed_weights [--write]

SmolLM2-135M in float32. Both models verify the same drafts after the same prompt, alternating, and
each cell is the least of the rounds.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch

from benchmarks import interleaved, markdown
from benchmarks._figures import write_figures
from benchmarks.engine import BEHIND, SMALL, tokens_of
from ngramkit.decode.load import load_model
from ngramkit.decode.packed_weights import unpacked
from ngramkit.decode.verifiers import open_verifier

SIZES = (1, 2, 4, 5, 8, 16, 32)  # rows of a pass
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="keep the table in benchmarks/figures/"
    )
    options = parser.parse_args()
    model = load_model(SMALL, device="cpu").model
    verifiers = [open_verifier(each, "tree", room=BEHIND + 33) for each in (unpacked(model), model)]
    with torch.inference_mode():
        for verifier in verifiers:
            verifier.prefill(np.arange(BEHIND, dtype=np.int32))
        tasks = [partial(tokens_of, each, size - 1) for each in verifiers for size in SIZES]
        interleaved(*tasks, rounds=2)
        times = [f"{1e3 * seconds:.1f}" for seconds in interleaved(*tasks, rounds=ROUNDS)]
    head = ["ms of a pass", "1 row", *map(str, SIZES[1:])]
    rows = [["plain", *times[: len(SIZES)]], ["packed", *times[len(SIZES) :]]]
    print(markdown(head, rows))
    if options.write:
        command = "python -m benchmarks.packed_weights --write"
        write_figures("packed_weights", command, {"head": head, "rows": rows})


if __name__ == "__main__":
    main()
