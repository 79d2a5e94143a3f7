"""`--budget auto` against fixed draft sizes and no drafts, on a real model.

    OMP_NUM_THREADS=1 python -m benchmarks.fixed_sizes --data DIR

`blend` answers MT-Bench's first questions with SmolLM2-135M and the artifacts of `make real`. All
sizes answer a question together, pass by pass, and times are processor time of this thread, so
other programs hardly matter. A round begins with nothing learnt about the costs of passes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks._figures import write_figures
from benchmarks._real import MODEL, NEW_TOKENS, QUESTIONS, artifacts, in_turns
from ngramkit.basics.progress import SILENT
from ngramkit.corpus.chat import find_template
from ngramkit.decode.compare import in_lockstep, warm_up
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.kept_costs import learnt_costs
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.result import Clock
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.registry import NoDraft
from ngramkit.evaluate.records import prompts_of_conversation
from ngramkit.evaluate.statistics import ratio_with_interval
from ngramkit.formats.opening import open_artifact_folder

SIZES = (2, 4, 8, 16, 32)  # draft nodes
NONE, AUTO = "none", "`--budget auto`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/real"), metavar="DIR")
    parser.add_argument("--questions", type=int, default=12, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument(
        "--write", action="store_true", help="keep the table in benchmarks/figures/"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(MODEL)
    datastore, frozen, bigram = map(
        open_artifact_folder, artifacts(options.data, options.work, model, SILENT)
    )

    def drafter() -> Drafter:
        return load_drafter("blend", datastores=[datastore], frozen_table=frozen, bigram=bigram)

    template = find_template("auto", model.tokenizer)
    questions = in_turns(options.data / QUESTIONS)[: options.questions]
    prompts = [
        next(prompts_of_conversation(model, template, question, ())) for question in questions
    ]
    head = ["round", *(f"{size} nodes" for size in SIZES), AUTO, "auto over the best (95 %)"]
    rows = []
    for number in range(options.rounds):
        rows.append([str(number + 1), *measure(model, drafter, prompts)])
        print(dict(zip(head, rows[-1], strict=True)), flush=True)
    if options.write:
        command = "OMP_NUM_THREADS=1 python -m benchmarks.fixed_sizes --write"
        write_figures("fixed_sizes", command, {"head": head, "rows": rows})


def measure(
    model: LanguageModel, make: Callable[[], Drafter], prompts: list[TokenArray]
) -> list[str]:
    """Return the speed-up over no drafts of each size and of auto, and auto's over the best."""
    seconds: dict[str, list[float]] = {name: [] for name in (NONE, *map(str, SIZES), AUTO)}
    decoders = {name: decoder(model, name) for name in seconds}
    warm_up(decoders[AUTO], prompts[0], make())
    for prompt in prompts:
        runs = [
            decoder.run(prompt, NoDraft() if name == NONE else make())
            for name, decoder in decoders.items()
        ]
        for run in runs:
            run.clock = Clock(time.thread_time)
        for name, done in zip(decoders, in_lockstep(runs), strict=True):
            seconds[name].append(done.seconds)
    total = {name: sum(each) for name, each in seconds.items()}
    best = min(map(str, SIZES), key=total.__getitem__)
    ones = [1.0] * len(prompts)
    ratio = ratio_with_interval((AUTO, ones, seconds[AUTO]), (best, ones, seconds[best]))
    speed_ups = [f"{total[NONE] / total[name]:.2f}" for name in (*map(str, SIZES), AUTO)]
    return [*speed_ups, f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"]


def decoder(model: LanguageModel, name: str) -> Decoder:
    """Return a decoder of a draft size that knows nothing of what passes cost."""
    budget = int(name) if name.isdigit() else None
    options = DecodeOptions(max_new_tokens=NEW_TOKENS, budget=budget)
    settled = Decoder.settle(model, options)
    if settled.costs is not None:  # not those of a profile
        settled = replace(settled, costs=learnt_costs(model.model, settled.verify))
    return settled.undrafted() if name == NONE else settled


if __name__ == "__main__":
    main()
