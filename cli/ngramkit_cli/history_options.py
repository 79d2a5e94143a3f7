"""Options of drafters that learn from past requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.manifest import TokenizerRecord

HistoryPath = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="DIR",
        help="Past requests, for the drafters that learn from them; made where there is none. "
        "Default: nothing outlives the command.",
    ),
]
HistoryTokens = Annotated[
    int, typer.Option("--history-tokens", min=1, help="How many of the newest are searched.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Do not remember this request.")]
TOKENS = 4_000_000


@dataclass(frozen=True)
class HistoryUse:
    """What the options said. `recorded`: the requests are old ones, replayed or measured, so the
    folder is left alone and nothing depends on timing."""

    path: Path | None = None
    tokens: int = TOKENS
    store: bool = True
    recorded: bool = False
    least_score: float = 0.01  # of a node that is drafted

    def prepare(self, tokenizer: TokenizerRecord) -> None:
        """Makes a history where there is none, unless it would stay empty."""
        from ngramkit.formats.history import History

        if self.path is not None and not self.recorded:
            History.at(self.path, tokenizer)

    def past(self, tokenizer: TokenizerRecord, *, forgetful: bool = False) -> PastRequests:
        """What a drafter that learns is made with."""
        from ngramkit.drafters.past_requests import PastRequests
        from ngramkit.formats.history import History

        return PastRequests(
            None if self.path is None else History.open(self.path),
            tokenizer=tokenizer,
            capacity=self.tokens,
            background=not self.recorded,
            read_only=self.recorded,
            forgetful=forgetful or not self.store,
        )
