"""The plugin of SGLang's that has `engines.sglang` draft: an entry point, which each of its
processes imports.

One of them drafts. So this imports no numba: that and the rest come with the corpus, where one is
made.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ngramkit.basics.errors import NgramkitError
from ngramkit.engines.check import require_usable
from ngramkit.engines.config import VARIABLE

CORPUS = "sglang.srt.speculative.cpp_ngram.ngram_corpus.NgramCorpus"
PREPARE = "sglang.srt.speculative.ngram_worker.NGRAMWorker._prepare_draft_tokens"


def plugin() -> None:
    """Register the hooks, in each process of SGLang; nothing where NGRAMKIT_DRAFT is not set.

    Raises SystemExit where it is wrong, or names what is not there: before a model is loaded, since
    SGLang calls this first. Any other exception of a plugin it logs, and serves without the plugin.
    """
    if not os.environ.get(VARIABLE, "").strip():
        return
    try:
        require_usable("sglang")
    except NgramkitError as error:
        raise SystemExit(str(error)) from None
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(CORPUS, LateCorpus, hooks.HookType.REPLACE)
    hooks.HookRegistry.register(PREPARE, with_requests, hooks.HookType.AROUND)


class LateCorpus:
    """Stand-in for SGLang's corpus class: making one makes our `NgramCorpus`."""

    def __new__(cls, **options: Any) -> Any:
        from ngramkit.engines.sglang import NgramCorpus

        return NgramCorpus(**options)


def with_requests(original: Any, worker: Any, batch: Any) -> Any:
    """Show the batch's requests to the corpus, then prepare drafts as the worker does."""
    if hasattr(worker.ngram_corpus, "see"):  # else it is SGLang's own
        worker.ngram_corpus.see(batch.reqs)
    return original(worker, batch)
