"""The sources of an engine's requests, if the drafter is blend.

Other drafters have requests with the same methods in `engines.drafter_requests`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ngramkit.drafters.blend import Blend
from ngramkit.drafters.blend_request import Workspace
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.engines.growth import GrowingHistory
from ngramkit.formats.artifact import Artifact


class RequestSource:
    """The artifacts and the history that all requests share. The tokenizers of `compared` must be
    the engine's."""

    def __init__(self) -> None:
        self.artifacts: Sequence[Artifact] = ()
        self.compared: Sequence[Artifact] = ()
        self.history: GrowingHistory | None = None

    def past(self, tenant: str) -> PastRequests | None:
        """Return the past requests that a tenant's requests draft from."""
        return None if self.history is None else self.history.past(tenant)


class BlendSource(RequestSource):
    """The artifacts, models and past requests of all requests of blend."""

    def __init__(self, blend: Blend) -> None:
        super().__init__()
        self.blend = blend
        self.vocabulary = blend.vocabulary

    def past(self, tenant: str) -> PastRequests | None:
        """Return the past requests that a tenant's requests draft from; without a history, those of
        the blend."""
        return self.blend.past if self.history is None else super().past(tenant)

    def workspace(self) -> Workspace:
        """Return a new workspace, for one thread."""
        return Workspace(self.blend.shared)

    def refresh(self) -> None:
        """Search the newest past requests of all tenants; call it while no thread drafts."""
        self.blend.shared.refresh()
