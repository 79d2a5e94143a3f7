"""The drafter that never drafts: what every other one is measured against."""

from __future__ import annotations

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.drafters.described import Described


class NoDraft(Described):
    """Every pass yields one token."""

    def start(self, prompt: TokenArray) -> None: ...

    def draft(self, budget: int) -> DraftTree:
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None: ...

    def finish(self) -> None: ...
