"""Progress of long work."""

from __future__ import annotations

import sys
from typing import Any


class Reporter:
    """A reporter that shows nothing; subclasses show progress."""

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        """Begin a stage of `total` units; None if unknown."""

    def advance(self, amount: float, **counts: float) -> None:
        """Add `amount` finished units to the stage, and show running `counts`."""

    def note(self, text: str) -> None:
        """Show a line for the user, such as a default that is used."""

    def fetched(self, source: str, commit: str) -> None:
        """Record that `source` (hf://USER/NAME[@REVISION] or a URL) had this commit or checksum."""

    def resumed(self) -> None:
        """Record that an earlier run did a part of the work."""


class _Silent(Reporter):
    def __repr__(self) -> str:
        return "SILENT"


SILENT: Reporter = _Silent()


def notebook_shell() -> Any:
    """Return IPython's shell if it runs in a kernel, else None.

    A kernel imports IPython before anything else, so nothing is imported here.
    """
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_shell() if get_shell is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def show_downloads() -> None:
    """Show the Hub client's bars on terminals and in notebooks.

    transformers and datasets disable them.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    if constants.HF_HUB_DISABLE_PROGRESS_BARS:
        return
    if on_terminal or notebook_shell() is not None:
        enable_progress_bars()
    else:
        disable_progress_bars()
