"""What a Speculator drafts in a worker of vLLM's, compared with fresh drafters.

`start`, `report` and `host_times` are sent to every worker by `collective_rpc`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

MAX_MODEL_LEN = 512


def start(worker: Any) -> None:
    """Watch the worker's Speculator, if it has one."""
    speculator = _speculator(worker)
    if speculator is not None:
        speculator.watched = Watched(speculator)


def report(worker: Any, texts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was counted; None if ngramkit does not draft in this worker."""
    speculator = _speculator(worker)
    return None if speculator is None else speculator.watched.report(texts)


def host_times(worker: Any) -> tuple[int, float, float]:
    """Return the Speculator's calls, seconds waited for the device and seconds drafting so far."""
    speculator = _speculator(worker)
    if speculator is None:
        return 0, 0.0, 0.0
    counts = speculator.batch.statistics
    return counts.calls, speculator.waited, counts.seconds


def _speculator(worker: Any) -> Any:
    runner = getattr(getattr(worker, "worker", worker), "model_runner", None)
    speculator = getattr(runner, "speculator", None)
    return speculator if hasattr(speculator, "requests") else None


class Watched:
    """Every chain is drafted once more, by a drafter that knows a row's tokens and nothing else.

    With past requests, trust in them is learnt during a request. So there one drafter follows all
    requests.
    """

    def __init__(self, speculator: Any) -> None:
        from ngramkit.engines.batch import Asked, BatchDrafter
        from ngramkit.engines.config import DraftConfig

        self.speculator, self.chains, self.different = speculator, 0, 0
        self.digest = hashlib.sha256()  # of all chains
        self.texts: dict[str, tuple[list[int], int]] = {}  # by id: tokens, how many are the prompt
        requests, theirs = speculator.requests, speculator.requests.chains
        source, config = speculator.batch.source, DraftConfig.from_environment() or DraftConfig()
        grows = bool(config.history) and config.store
        comparable = config.min_probability is not None and not grows
        twin = None
        if comparable and config.history:
            twin = BatchDrafter.open(config, vocabulary=source.vocabulary)

        def of(name: str, row: Any) -> Asked:
            return Asked(row.prompt, references=row.request.references, name=name)

        def again(named: Any, lengths: Any, cost: float | None) -> Any:
            tokens, asked = [row.tokens for _, row in named], [of(*each) for each in named]
            if twin is not None:
                return twin.chain_batch(tokens, lengths, cost, asked=asked)
            each = zip(tokens, lengths, asked, strict=True)
            return [
                BatchDrafter(source, config).chain_batch([row], [most], cost, asked=[one])[0]
                for row, most, one in each
            ]

        def chains(names: Any, rows: Any, most: int, cost: float | None, sizes: Any) -> Any:
            made = theirs(names, rows, most, cost, sizes)
            for name, row, chain in zip(names, rows, made, strict=True):
                self.digest.update(repr((name, chain.token_ids.tolist())).encode())
                if row is not None:
                    self.texts[name] = row.tokens.tolist(), row.prompt
            kept = [i for i, row in enumerate(rows) if row is not None]
            ends = [MAX_MODEL_LEN - rows[i].hidden - rows[i].length - 1 for i in kept]
            lengths = [max(min(most, end), 0) for end in ends]
            if comparable:
                wanted = again([(names[i], rows[i]) for i in kept], lengths, cost)
                for i, chain in zip(kept, wanted, strict=True):
                    self.chains += 1
                    self.different += made[i].token_ids.tolist() != chain.token_ids.tolist()
            return made

        requests.chains = chains

    def report(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was counted; `mirrored`: requests whose tokens are what was answered.

        `texts`: token ids of each request's answers, by its name.
        """
        requests, mirrored, shown = self.speculator.requests, 0, 0
        for name, (tokens, prompt) in self.texts.items():
            number, _, asked = name.rpartition("-")[0].rpartition("_")
            if asked in texts:
                shown += 1
                answer, output = texts[asked][int(number or 0)], tokens[prompt:]
                mirrored += answer[: len(output)] == output[: len(answer)]
        counts = self.speculator.batch.statistics
        return {
            "mode": self.speculator.mode,
            "chains": self.chains,
            "different": self.different,
            "digest": self.digest.hexdigest(),
            "resynced": requests.rows.resynced,
            "K": {str(slots): steps for slots, steps in self.speculator.step_slots.items()},
            "mirrored": mirrored,
            "shown": shown,
            "requests": counts.requests,
            "drafted": counts.draft_tokens,
            "remembered": counts.remembered,
            "predicted": [requests.predicted(name, 1) for name in texts],
            "texts": len(requests.texts),
        }
