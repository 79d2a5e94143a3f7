"""vLLM's entry point for `engines.vllm_hooks`.

It imports nothing that can fail: vLLM logs an error of this module, and starts with its own n-gram
drafter. An error of the function stops vLLM.
"""

from __future__ import annotations


def plugin() -> None:
    """Prepare vLLM to use ngramkit's speculator if it is asked for.

    Raises ImportError if a part of ngramkit cannot be imported, else as `register_hooks`.
    """
    try:
        from ngramkit.engines.vllm_hooks import register_hooks
    except Exception as error:
        raise ImportError(
            f"cannot load ngramkit: {error}. Repair its installation, or leave it out of "
            "VLLM_PLUGINS."
        ) from error
    register_hooks()
