"""How long work tells of itself. Builders call a Reporter; they do not know who listens."""

from __future__ import annotations

import sys


class Reporter:
    """Listens to nothing. The command line's subclass draws bars."""

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        """A new stage of work begins; `total` is in `unit`, None where nobody knows."""

    def advance(self, amount: float, **counts: float) -> None:
        """`amount` more of the stage's unit is done; `counts` are running figures worth showing."""

    def note(self, text: str) -> None:
        """One line that the user should read: a default taken, a fallback used."""

    def fetched(self, source: str, commit: str) -> None:
        """`source`, hf://USER/NAME[@REVISION], is now here, as this commit of it."""


SILENT = Reporter()


# The Hub client's own bars: drawn while models and corpora come, where somebody looks.


def show_downloads() -> None:
    """transformers and datasets turn the client's bars off with their own; this puts them back.

    HF_HUB_DISABLE_PROGRESS_BARS=1 has the last word.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    watched = sys.stderr is not None and sys.stderr.isatty()
    if constants.HF_HUB_DISABLE_PROGRESS_BARS:
        return
    if watched:
        enable_progress_bars()
    else:
        disable_progress_bars()
