"""How a loaded model's passes are run: everything that "auto" and None stood for, settled once.

The one place that asks `verifiers` what a model can be given. Knows transformers models, no
tokenizers and no text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.priors import MOST
from ngramkit.budget.profile import Profile
from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.profile_files import keep_costs, learnt_costs, profile_file
from ngramkit.decode.result import Decoded
from ngramkit.decode.specache.decoding import CacheFacts, specache_verifier
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.threads import threads
from ngramkit.decode.verifiers import open_verifier, settled
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.none import NoDraft
from ngramkit.errors import require_between
from ngramkit.progress import SILENT, Reporter

MOST_NODES = 4096  # of a draft; attention to itself grows with their square


@dataclass(frozen=True)
class Runner:
    """`model` is a transformers causal LM, `engine` eager or static, `verify` tree, batch or
    chain.

    `budget` is the most draft nodes of a pass; with `auto` as many of them as pay for their time,
    which is learnt, from a `profile` on if there is one. With `cache`, a SpeCache, there are no
    drafts, and what is written is not the model's own.
    """

    model: Any
    engine: str
    verify: str
    budget: int
    auto: bool = False
    profile: Profile | None = None
    cache: SpeCache | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        budget: int | Literal["auto"] | None = None,
        engine: str = "auto",
        verify: str | None = None,
        cache: SpeCache | None = None,
        reporter: Reporter = SILENT,
    ) -> Runner:
        """As ngramkit.PassOptions says; `reporter` hears of an auto budget.

        Raises UsageError for what makes no sense, InputError for a model that can take no drafts
        and for a profile that is none.
        """
        if cache is not None:
            return cls(model, "eager", "tree", 1, cache=cache)
        if isinstance(budget, int):
            require_between("budget", budget, 1, MOST_NODES)
        engine, verify = settled(model, engine, verify)
        if isinstance(budget, int):
            return cls(model, engine, verify, budget)
        path = profile_file(model, engine)
        reporter.note("budget: auto" if path is None else f"budget: auto, from {path} on")
        profile = None if path is None else Profile.load(path)
        return cls(model, engine, verify, MOST, True, profile)

    @property
    def shown_budget(self) -> int | str:
        """As users write it."""
        return "auto" if self.auto else self.budget

    def undrafted(self) -> Runner:
        """For passes without drafts: there is nothing to decide about."""
        return replace(self, auto=False, profile=None)

    def open(self, tokens: int) -> ResumableVerifier:
        """A verifier with room for so many tokens and one draft."""
        return open_verifier(self.model, self.verify, self.engine, room=tokens + self.budget)

    def decode(
        self,
        request: Request,
        drafter: Drafter,
        sink: Sink | None = None,
        verifier: Verifier | None = None,
    ) -> Decoded:
        """Writes what was requested. `verifier`: one that holds the prompt's beginning, in place of
        an empty one. Ctrl-C ends it; what was written until then is returned."""
        request = self.budgeted(request, drafter)
        room = len(request.prompt) + request.longest
        if self.cache is None:
            found = decode(verifier or self.open(room), drafter, request, sink)
            if request.auto is not None:
                keep_costs(self.model, self.engine, self.verify, request.auto.costs)
            return found
        with specache_verifier(self.model, self.cache, room=room, drafter=drafter) as low:
            run = decode(low, low.drafter, request, sink)
            return replace(run, cache=CacheFacts.of(low.run))

    def budgeted(self, request: Request, drafter: Drafter) -> Request:
        """With the rule that cuts `drafter`'s drafts to what pays, where that is wanted, and on a
        CPU the one that chooses threads."""
        if self.model.device.type == "cpu" and torch.get_num_threads() > 1:
            request = replace(request, threads=threads())
        if not self.auto or isinstance(drafter, NoDraft):
            return request
        costs = learnt_costs(self.model, self.engine, self.verify, self.profile)
        return replace(request, auto=AutoBudget(costs, drafter, rows=self.verify == "batch"))
