"""The sources of an engine's requests, if the drafter is blend."""

from __future__ import annotations

from collections.abc import Sequence

from ngramkit.drafters.blend import Blend
from ngramkit.drafters.blend_request import Workspace
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.engines.growing_history import GrowingHistory
from ngramkit.formats.artifact import Artifact


class RequestSource:
    """Artifacts and history of all requests; `compared` must have the engine's tokenizer.

    `past`: the past requests without a history.
    """

    def __init__(self, past: PastRequests | None = None) -> None:
        self.past = past
        self.artifacts: Sequence[Artifact] = ()
        self.compared: Sequence[Artifact] = ()
        self.history: GrowingHistory | None = None


class BlendSource(RequestSource):
    def __init__(self, blend: Blend) -> None:
        super().__init__(blend.past)
        self.blend = blend
        self.vocabulary = blend.vocabulary

    def workspace(self) -> Workspace:
        return Workspace(self.blend.shared)

    def refresh(self) -> None:
        self.blend.shared.refresh()
