"""The Hub client's own bars: drawn while models and corpora come, where somebody looks."""

from __future__ import annotations

import sys


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
