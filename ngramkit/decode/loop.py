"""draft -> verify -> accept -> append.

Drafts change the number of passes, never the output.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ngramkit.decode.accept import AcceptedPath
from ngramkit.decode.base import Choose, Sink, Verifier
from ngramkit.decode.ends import reason_to_end
from ngramkit.decode.passes import model_passes
from ngramkit.decode.request import Request
from ngramkit.decode.result import Clock, Decoded, work_clock
from ngramkit.drafters.base import Drafter, DraftTree, Evidence
from ngramkit.drafters.checked import drafts_of
from ngramkit.drafters.references import start_with_references


def decode(
    verifier: Verifier, drafter: Drafter, request: Request, sink: Sink | None = None
) -> Decoded:
    """Return what is written until an end or Ctrl-C."""
    run = Run(verifier, drafter, request, sink)
    with model_passes():
        try:
            run.prefill()
            run.accept_while_drafted()
            while not run.ended_by:
                run.verify()
                run.accept_while_drafted()
        except KeyboardInterrupt:
            run.ended_by = "interrupt"
        finally:
            run.finish()
    return run.result()


class Run:
    """A request in progress: `decode` runs one, `compare.in_lockstep` several."""

    def __init__(
        self, verifier: Verifier, drafter: Drafter, request: Request, sink: Sink | None = None
    ) -> None:
        self.ended_by = ""
        self._verifier, self._drafter, self._request, self._sink = verifier, drafter, request, sink
        self._fit = getattr(verifier, "fit", None)
        self._wants_evidence = bool(getattr(drafter, "wants_evidence", False))
        self._evidence: Evidence | None = None
        self._started = False  # whether the drafter has the prompt
        self._written: list[int] = []
        self._passed_on = 0  # written tokens that the drafter has
        self._drafts: Callable[[int], DraftTree] = drafter.draft  # checked once ids are known
        self._accepted_per_pass: list[int] = []
        self._nodes_per_pass: list[int] = []
        self._declined = 0
        self.clock = Clock()
        # The current pass:
        self._asked = True
        self._drafting = self._passing = 0.0  # seconds of work

    def prefill(self) -> None:
        prompt = self._request.prompt
        if self._request.threads is not None:
            self._request.threads.begin()
        logits = self._verifier.prefill(prompt)
        if self._request.threads is None:
            self.clock.work = work_clock(logits.device.type)
        else:  # the number of threads may change
            self.clock.work = time.perf_counter
        self._drafts = drafts_of(self._drafter, logits.shape[-1])
        self._path = AcceptedPath(DraftTree.empty())
        self._choose = self._choose_from_logits(logits, int(prompt[-1]), DraftTree.empty())
        self.clock.lap("prefill")
        start_with_references(self._drafter, prompt, self._request.references)
        self._started = True
        self.clock.lap("draft")

    @property
    def tokens(self) -> int:
        return len(self._written)

    def accept_while_drafted(self) -> None:
        while self.accept_or_end_pass(self.choose_token()):
            pass

    def choose_token(self) -> int:
        return self._choose(self._path.row)

    def accept_or_end_pass(self, token: int) -> bool:
        """Write a token; return whether the pass has the logits after it."""
        length = len(self._written) + len(self._path.tokens) + 1
        self.ended_by = reason_to_end(self._request, token, length)
        if self._path.accept_if_drafted(token) and not self.ended_by:
            return True
        self._append_accepted()
        return False

    def verify(self) -> None:
        tree = self.draft()
        self._choose = self._verify_draft(tree)
        self._path = AcceptedPath(tree)
        self._nodes_per_pass.append(len(tree))

    def draft(self) -> DraftTree:
        """Return a draft, cut to what the verifier, the budget and the rest of the output allow."""
        left = self._request.longest - len(self._written) - 1
        budget, length = min(self._request.budget, left), self._verifier.length
        auto, tree = self._request.auto, DraftTree.empty()
        self._asked = (auto is None or auto.opens()) and budget > 0
        if self._asked:
            self._pass_on()
            asked = budget if auto is None else auto.nodes_to_draft(budget, length)
            tree = self._drafts(asked)
        if self._fit is not None:
            tree = self._fit(tree, self._request.budget)
        if auto is not None:
            tree = auto.cut(tree, length, getattr(self._verifier, "replayed", None))
        self._drafting = self.clock.lap("draft")
        return tree

    def _verify_draft(self, tree: DraftTree) -> Choose:
        root = self._written[-1]
        if self._request.threads is not None:
            self._request.threads.adapt(self._passing)
            self.clock.lap("other")
        logits = self._verifier.verify(root, tree)
        self._passing = self.clock.lap("verify")
        choose = self._choose_from_logits(logits, root, tree)
        if self._asked and self._wants_evidence and logits.device.type == "cpu":
            self._drafting += self.clock.lap("draft")  # other devices wait for the pass here
        else:
            self._passing += self.clock.lap("verify")
        return choose

    def _choose_from_logits(self, logits: torch.Tensor, root: int, tree: DraftTree) -> Choose:
        self._evidence = None
        if not (self._asked and self._wants_evidence):
            return self._request.choice.read(logits)
        choose, tops = self._request.choice.read_with_tops(logits)
        tokens = np.concatenate([np.array([root], np.int32), tree.token_ids])
        parents = np.concatenate([np.array([-1], np.int32), tree.parents + np.int32(1)])
        self._evidence = Evidence(tokens, parents, tops.ids, tops.log_probs)
        return choose

    def _append_accepted(self) -> None:
        nodes, tokens = self._path.nodes, self._path.tokens
        is_pass = bool(self._nodes_per_pass)  # false for the prefill
        if is_pass:
            self.clock.lap("other")
            self._verifier.keep(nodes)
            self._passing += self.clock.lap("verify")
            self._accepted_per_pass.append(len(nodes))
        for count, token in enumerate(tokens, start=1):
            self._written.append(token)
            if self._sink is not None:
                self._sink(token, count <= len(nodes))
        self.clock.lap("other")
        if self._asked:
            self._pass_on()
            self._drafting += self.clock.lap("draft")
        auto = self._request.auto
        if is_pass and auto is not None:
            auto.learn(tokens, self._passing, self._drafting)
            self._declined += auto.declined

    def _pass_on(self) -> None:
        new = self._written[self._passed_on :]
        if new:
            self._passed_on = len(self._written)
            self._drafter.accept(np.array(new, np.int32), self._evidence)

    def finish(self) -> None:
        """Pass on all tokens and end the drafter's request, if it began."""
        if self._request.threads is not None:
            self._request.threads.end()
        if self._started:
            self._pass_on()
            self._drafter.finish()

    def result(self) -> Decoded:
        laps: dict[str, Any] = self.clock.laps
        return Decoded(
            prompt_tokens=len(self._request.prompt),
            token_ids=np.array(self._written, np.int32),
            accepted_per_pass=self._accepted_per_pass,
            nodes_per_pass=self._nodes_per_pass,
            declined_passes=self._declined,
            ended_by=self.ended_by,
            seconds=self.clock.seconds,
            prefill_seconds=laps.get("prefill", 0.0),
            draft_seconds=laps.get("draft", 0.0),
            verify_seconds=laps.get("verify", 0.0),
        )
