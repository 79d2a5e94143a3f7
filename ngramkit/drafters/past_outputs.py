"""Past requests without their prompts: what models wrote is nearer to what they write next."""

from __future__ import annotations

from ngramkit.drafters.past_requests import PastRequests
from ngramkit.kernels.arrays import Array


class PastOutputs(PastRequests):
    """Past requests of which the outputs alone are remembered; a history's are as it holds them."""

    def remember(self, tokens: Array, prompt: int) -> None:
        super().remember(tokens[prompt:], 0)
