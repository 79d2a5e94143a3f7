"""SGLang's plugin for `engines.sglang`: an entry point that each of its processes imports.

Only one of them drafts, so numba is imported when a corpus is made.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ngramkit.basics.errors import NgramkitError, UsageError, one_line
from ngramkit.engines.check import require_usable
from ngramkit.engines.config import CONFIG_VARIABLE
from ngramkit.engines.request_texts import REFERENCE_KEY, given_texts, token_ids

CORPUS_CLASS = "sglang.srt.speculative.cpp_ngram.ngram_corpus.NgramCorpus"
PREPARE_METHOD = "sglang.srt.speculative.ngram_worker.NGRAMWorker._prepare_draft_tokens"
VERIFY_METHOD = "sglang.srt.sampling.sampling_params.SamplingParams.verify"  # by the front end


def plugin() -> None:
    """Register the hooks if NGRAMKIT_DRAFT is set.

    Raises SystemExit if it is wrong: SGLang logs any other exception of a plugin, and serves
    without it.
    """
    if not os.environ.get(CONFIG_VARIABLE, "").strip():
        return
    try:
        require_usable("sglang")
    except NgramkitError as error:
        raise SystemExit(str(error)) from None
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(CORPUS_CLASS, LateCorpus, hooks.HookType.REPLACE)
    hooks.HookRegistry.register(PREPARE_METHOD, with_requests, hooks.HookType.AROUND)
    hooks.HookRegistry.register(VERIFY_METHOD, with_text, hooks.HookType.AROUND)


class LateCorpus:
    """Replacement of SGLang's corpus class that makes `NgramCorpus`."""

    def __new__(cls, **options: Any) -> Any:
        from ngramkit.engines.sglang import NgramCorpus

        return NgramCorpus(**options)


def with_requests(original: Any, worker: Any, batch: Any) -> Any:
    if hasattr(worker.ngram_corpus, "see"):  # else it is SGLang's own
        worker.ngram_corpus.see(batch.reqs)
    return original(worker, batch)


def with_text(original: Any, parameters: Any, vocabulary: int) -> None:
    """Check the text of a request too. Raises ValueError, which SGLang answers with status 400."""
    original(parameters, vocabulary)
    said = parameters.custom_params
    given = said.get(REFERENCE_KEY) if isinstance(said, dict) else None
    try:
        token_ids(given_texts(given), lambda text: (), vocabulary)  # texts are encoded later
    except UsageError as error:
        raise ValueError(one_line(error)) from None
