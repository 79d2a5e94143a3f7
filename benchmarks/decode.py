"""Decoding held-out prompts with the demo model on the CPU: each drafter, our own loop without
drafts, and transformers' model.generate, in turns.

References are model.generate(do_sample=False). Artifacts are those of `make demo`; where there are
none they are built first, untimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from benchmarks import Row, interleaved
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import build_tokens
from ngramkit.corpus.opening import open_corpus
from ngramkit.decode.complete import Task, complete, warm_up
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.prompt import prompt_ids
from ngramkit.decode.result import Decoded
from ngramkit.demo import demo_prompts
from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.none import NoDraft

PROMPTS = 6
NEW_TOKENS = 128
ROUNDS = 3
TARGETS = {
    "none": "no slower",
    "rest": "above no drafts",
    "cacheback": "above no drafts",
    "blend": ">= 1.6",
}

Make = Callable[[], Drafter]


def rows() -> Iterator[Row]:
    model = load_model("demo", device="cpu")
    tasks = [
        Task(prompt_ids(model.tokenizer, text), NEW_TOKENS) for _, text in demo_prompts(PROMPTS)
    ]
    with TemporaryDirectory() as folder:
        drafters = {"none": NoDraft, **built(Path(folder))}
        yield from compared(model, tasks, drafters)


def built(folder: Path) -> dict[str, Make]:
    """The drafters over artifacts of the embedded corpus."""
    store = build_tokens(open_corpus("python-stdlib"), "demo", folder / "tokens")
    datastore = build_datastore(store, folder / "datastore")
    frozen = build_frozen(store, folder / "frozen")
    return {
        "rest": lambda: load_drafter("rest", datastores=[datastore]),
        "cacheback": lambda: load_drafter("cacheback", frozen_table=frozen),
        "blend": lambda: load_drafter("blend", datastores=[datastore]),
    }


def compared(model: LanguageModel, tasks: list[Task], drafters: dict[str, Make]) -> Iterator[Row]:
    """The times of a drafter are summed over the prompts, the best of some rounds each."""
    runs: dict[str, list[Decoded]] = {name: [] for name in drafters}
    seconds = dict.fromkeys(["generate", *drafters], 0.0)
    for task in tasks:
        expected = generated(model, task)
        for name, make in drafters.items():
            warm_up(model, make(), task)
            run = complete(model, make(), task)
            if not np.array_equal(run.token_ids, expected):
                raise AssertionError(f"{name} is not lossless")
            runs[name].append(run)
        timed = [partial(generated, model, task)]
        timed += [partial(fresh, model, make, task) for make in drafters.values()]
        for name, best in zip(seconds, interleaved(*timed, rounds=ROUNDS), strict=True):
            seconds[name] += best
    for name, done in runs.items():
        yield row(name, done, seconds)


def fresh(model: LanguageModel, make: Make, task: Task) -> Decoded:
    """A new drafter every time: one that learns must not have seen the answer."""
    return complete(model, make(), task)


def row(name: str, runs: list[Decoded], seconds: dict[str, float]) -> Row:
    tokens = sum(len(run.token_ids) for run in runs)
    steps = sum(len(run.token_ids) - 1 for run in runs) / sum(run.passes for run in runs)
    outside = sum(run.draft_seconds + run.other_seconds for run in runs)
    share = outside / sum(run.seconds for run in runs)
    over_none = seconds["none"] / seconds[name]
    what = f"decode, demo on the CPU, {len(runs)} held-out prompts, drafter {name}"
    ours = f"{tokens / seconds[name]:,.0f} tokens/s, {steps:.2f} tokens/step, {share:.1%} outside"
    rate = tokens / seconds["generate"]
    reference = f"{rate:,.0f} tokens/s, model.generate ({over_none:.2f} over no drafts)"
    return Row(what, ours, reference, seconds["generate"] / seconds[name], TARGETS[name])


def generated(model: LanguageModel, task: Task) -> npt.NDArray[np.int64]:
    """What transformers writes, int64[n]."""
    import torch

    ids = torch.from_numpy(task.prompt.astype(np.int64))[None]
    output = model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=task.max_new_tokens,
    )
    return output[0, ids.shape[1] :].numpy()
