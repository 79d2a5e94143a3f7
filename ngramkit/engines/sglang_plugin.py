"""SGLang's entry point for `engines.sglang_hooks`: each of its processes imports it.

It imports nothing that can fail: SGLang logs an error of this module, and serves with its own
corpus.
"""

from __future__ import annotations

import os

from ngramkit.basics.errors import NgramkitError  # which the package imports too

VARIABLE = "NGRAMKIT_DRAFT"  # CONFIG_VARIABLE, whose module may fail


def plugin() -> None:
    """Register the hooks if NGRAMKIT_DRAFT is set.

    Raises SystemExit if it is wrong or ngramkit cannot be used: SGLang logs any other exception,
    and serves without it.
    """
    if not os.environ.get(VARIABLE, "").strip():
        return
    try:
        from ngramkit.engines.sglang_hooks import register_hooks

        register_hooks()
    except NgramkitError as error:
        raise SystemExit(str(error)) from None
    except Exception as error:
        raise SystemExit(f"cannot use ngramkit: {error}") from error
