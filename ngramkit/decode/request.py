"""A request of decoding: its prompt, its bounds, how tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from ngramkit.budget.auto import AutoBudget
from ngramkit.decode.base import Choice, Stop
from ngramkit.decode.pass_threads import PassThreads
from ngramkit.decode.sampling import GreedyChoice
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.references import Given as References

MAX_FIRST_OUTPUT = 4096  # maximum tokens of an output that memory is allocated for at first


@dataclass(frozen=True)
class Request:
    prompt: TokenArray  # int32[n], n >= 1
    max_new_tokens: int
    budget: int  # draft nodes per pass
    choice: Choice = field(default_factory=GreedyChoice)
    eos: frozenset[int] = frozenset()
    context: int | None = None  # the most tokens, prompt and output, that the model can hold
    stop: Stop | None = None
    references: References = ()  # texts that the answer probably repeats
    auto: AutoBudget | None = None  # cuts each draft to the size that is worth its time
    threads: PassThreads | None = None  # of passes on a CPU

    @property
    def longest(self) -> int:
        room = self.max_new_tokens
        if self.context is not None:
            room = min(room, self.context - len(self.prompt))
        return room

    @property
    def room(self) -> int:
        """The tokens to allocate at first: those of prompt, output and one draft.

        An output may end long before `max_new_tokens`, so more of it grows the memory.
        """
        return len(self.prompt) + min(self.longest, MAX_FIRST_OUTPUT) + self.budget
