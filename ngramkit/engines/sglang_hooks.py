"""The hooks of SGLang's plugin for `engines.sglang`, which each of its processes registers.

Only one of them drafts, so numba is imported when a corpus is made.
"""

from __future__ import annotations

import importlib
from typing import Any

from ngramkit.basics.errors import UsageError, one_line
from ngramkit.drafters.references import REFERENCE_KEY
from ngramkit.engines.config import require_usable_variable
from ngramkit.engines.request_parameters import check_parameters
from ngramkit.engines.request_texts import TEMPLATE_KEY, given_texts, token_ids
from ngramkit.engines.tool_templates import offered_templates

CORPUS_CLASS = "sglang.srt.speculative.cpp_ngram.ngram_corpus.NgramCorpus"
PREPARE_METHOD = "sglang.srt.speculative.ngram_worker.NGRAMWorker._prepare_draft_tokens"
VERIFY_METHOD = "sglang.srt.sampling.sampling_params.SamplingParams.verify"  # by the front end
CHAT_METHOD = "sglang.srt.entrypoints.openai.protocol.ChatCompletionRequest.to_sampling_params"


def register_hooks() -> None:
    """Check NGRAMKIT_DRAFT, and register the hooks. Raises NgramkitError if it is wrong."""
    require_usable_variable("sglang")
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(CORPUS_CLASS, LateCorpus, hooks.HookType.REPLACE)
    for method, hook in (
        (PREPARE_METHOD, with_requests),
        (VERIFY_METHOD, with_text),
        (CHAT_METHOD, with_templates),
    ):
        hooks.HookRegistry.register(method, hook, hooks.HookType.AROUND)


class LateCorpus:
    """Replacement of SGLang's corpus class that makes `NgramCorpus`."""

    def __new__(cls, **options: Any) -> Any:
        from ngramkit.engines.sglang import NgramCorpus

        return NgramCorpus(**options)


def with_requests(original: Any, worker: Any, batch: Any) -> Any:
    if hasattr(worker.ngram_corpus, "see"):  # else it is SGLang's own
        worker.ngram_corpus.see(batch.reqs)
    return original(worker, batch)


def with_templates(original: Any, request: Any, *given: Any, **named: Any) -> Any:
    """Add templates of a chat's tools to its parameters; its schema is among them already."""
    parameters = original(request, *given, **named)
    written = offered_templates(request)
    if written:
        said = parameters.get("custom_params")
        parameters["custom_params"] = {**(said or {}), TEMPLATE_KEY: written}
    return parameters


def with_text(original: Any, parameters: Any, vocabulary: int) -> None:
    """Check the texts of a request too. Raises ValueError, which SGLang answers with status 400."""
    original(parameters, vocabulary)
    said = parameters.custom_params
    said = said if isinstance(said, dict) else {}
    try:
        check_parameters(said)
        for key in (REFERENCE_KEY, TEMPLATE_KEY):
            # Texts are encoded later.
            token_ids(given_texts(said.get(key)), lambda text: (), vocabulary)
    except UsageError as error:
        raise ValueError(one_line(error)) from None
