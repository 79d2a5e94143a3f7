"""Text of requests in vLLM's front end: checked, encoded, and counted in `usage`.

Read in 0.32 and 0.33. vLLM accepts OpenAI's `prediction` and drops it; here it is carried to the
drafter with the request's other parameters. Wrong values are an error of their request.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ngramkit.basics.errors import UsageError, one_line
from ngramkit.basics.terminal_text import visible
from ngramkit.drafters.references import REFERENCE_KEY
from ngramkit.engines.request_parameters import check_parameters
from ngramkit.engines.request_texts import (
    IDS_KEY,
    PREDICTION_KEY,
    TEMPLATE_IDS_KEY,
    TEMPLATE_KEY,
    Encode,
    given_texts,
    join_with_separator,
    text_encoder,
    token_ids,
)
from ngramkit.engines.tool_templates import offered_templates
from ngramkit.engines.vllm_wanted import is_configured_by_variable
from ngramkit.engines.wrapping import wrap

FRONT_END_KEYS = {IDS_KEY, TEMPLATE_KEY, TEMPLATE_IDS_KEY}  # never taken from a client
LOG = logging.getLogger("ngramkit")
PROTOCOL_MODULE = "vllm.entrypoints.openai.chat_completion.protocol"
SERVING_MODULE = "vllm.entrypoints.openai.chat_completion.serving"
WORKER_MODULE = "vllm.v1.worker.worker_base"
# The worker's method that returns the counts of a prediction.
PREDICTED_COUNTS = "ngramkit_predicted"
COUNT_SECONDS = 10.0  # seconds that an answer waits for its counts
OWN_PREFIX = "ngramkit."  # begins the model of a custom class


class Served:
    """The front end of this process."""

    by_options = False  # vLLM's ask for ngramkit's drafts: NGRAMKIT_DRAFT may be unset
    refusal: type[Exception] = UsageError  # vLLM's error of a request, if it has one


def uses_our_drafts(speculative_config: Any) -> bool:
    method = getattr(speculative_config, "method", None)
    if method == "custom_class":
        return str(getattr(speculative_config, "model", "")).startswith(OWN_PREFIX)
    return method == "ngram" and _is_configured()


def _is_configured() -> bool:
    return Served.by_options or is_configured_by_variable()


def carry_texts() -> None:
    """Wrap the methods of vLLM's parameters that it has."""
    try:
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import SamplingParams
    except ImportError:  # a version without them
        return
    Served.refusal = VLLMValidationError
    wrap(SamplingParams, "verify", _with_ids_of_texts)
    # Loaded before plugins if chats are served.
    chats = getattr(sys.modules.get(PROTOCOL_MODULE), "ChatCompletionRequest", None)
    wrap(chats, "to_sampling_params", _with_texts_of_chat)


def _with_ids_of_texts(
    theirs: Any,
    parameters: Any,
    model_config: Any,
    speculative_config: Any,
    structured: Any,
    tokenizer: Any,
) -> None:
    theirs(parameters, model_config, speculative_config, structured, tokenizer)
    if not parameters.extra_args or not uses_our_drafts(speculative_config):
        return
    encode, vocabulary = text_encoder(tokenizer), int(model_config.get_vocab_size())
    try:
        parameters.extra_args = with_ids(parameters.extra_args, encode, vocabulary)
    except UsageError as error:
        raise Served.refusal(one_line(error)) from None


def with_ids(said: dict[str, Any], encode: Encode | None, vocabulary: int) -> dict[str, Any]:
    """Return a request's parameters with the ids of all its texts, those of its prediction twice.

    Raises UsageError.
    """
    check_parameters(said)
    prediction, reference = said.get(PREDICTION_KEY), said.get(REFERENCE_KEY)
    texts = given_texts(prediction, reference)  # their bytes are bounded together
    if not texts and said.keys().isdisjoint(FRONT_END_KEYS):
        return said
    found = {key: value for key, value in said.items() if key not in FRONT_END_KEYS}
    predicted = token_ids(given_texts(prediction), encode, vocabulary)
    if predicted:
        found[PREDICTION_KEY] = join_with_separator(predicted)
    if texts:
        others = token_ids(given_texts(reference), encode, vocabulary)
        found[IDS_KEY] = join_with_separator([*predicted, *others])
    written = given_texts(said.get(TEMPLATE_KEY))
    if written and encode is not None:
        found[TEMPLATE_IDS_KEY] = join_with_separator(token_ids(written, encode, vocabulary))
    return found


def _with_texts_of_chat(theirs: Any, request: Any, *given: Any, **named: Any) -> Any:
    made = theirs(request, *given, **named)
    if not _is_configured():
        return made
    added: dict[str, Any] = {}
    if written := _templates_of_request(request):
        added[TEMPLATE_KEY] = written
    if (prediction := _prediction_of_request(request)) is not None:
        try:
            added[PREDICTION_KEY] = predicted_text(prediction)
        except UsageError as error:
            raise Served.refusal(one_line(error)) from None
        chats = getattr(sys.modules.get(SERVING_MODULE), "OpenAIServingChat", None)
        wrap(chats, "chat_completion_full_generator", _with_counts)
        wrap(chats, "chat_completion_stream_generator_raw", _with_streamed_counts)
    if added:
        made.extra_args = {**(made.extra_args or {}), **added}
    return made


def _templates_of_request(request: Any) -> list[str]:
    """Return templates of what a chat's tools and response format let the model write."""
    schema = getattr(request.response_format, "json_schema", None)
    return offered_templates(request, getattr(schema, "json_schema", None))


def _prediction_of_request(request: Any) -> Any:
    return (request.model_extra or {}).get("prediction")


def predicted_text(prediction: Any) -> str:
    """Return the text of OpenAI's `prediction`, which nobody has validated.

    Raises UsageError unless its content is a text or a list of text parts.
    """
    content = prediction.get("content") if isinstance(prediction, Mapping) else None
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts: list[Any] = [
        part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        for part in parts
    ]
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(
            'prediction must be {"type": "content", "content": TEXT}, with a text or text parts, '
            f"got {visible(repr(prediction), 60)}",
            "Give the text that the answer probably repeats.",
        )
    return "".join(texts)


# What `usage` reports.


async def _with_counts(
    theirs: Any, serving: Any, request: Any, results: Any, name: str, *given: Any, **named: Any
) -> Any:
    answer = await theirs(serving, request, results, name, *given, **named)
    await _add_counts(serving, request, name, answer)
    return answer


async def _with_streamed_counts(
    theirs: Any, serving: Any, request: Any, results: Any, name: str, *given: Any, **named: Any
) -> AsyncIterator[Any]:
    async for chunk in theirs(serving, request, results, name, *given, **named):
        if not getattr(chunk, "choices", True):  # the last chunk, with the usage
            await _add_counts(serving, request, name, chunk)
        yield chunk


async def _add_counts(serving: Any, request: Any, name: str, answer: Any) -> None:
    usage, engine = getattr(answer, "usage", None), serving.engine_client
    config = getattr(engine, "vllm_config", None)
    if usage is None or config is None or not config.use_v2_model_runner:
        return
    if _prediction_of_request(request) is None or not uses_our_drafts(config.speculative_config):
        return
    try:
        asked = engine.collective_rpc(PREDICTED_COUNTS, args=(name, request.n or 1))
        replies = await asyncio.wait_for(asked, COUNT_SECONDS)
    except Exception as error:  # an answer is never lost for its counts
        LOG.warning("cannot report the tokens of a prediction: %s", error or type(error).__name__)
        return
    found = next((reply for reply in replies if reply is not None), None)
    if found is None:
        return
    details = usage.completion_tokens_details
    if details is None:
        serve = sys.modules[type(usage).__module__]
        details = usage.completion_tokens_details = vars(serve)["CompletionTokenUsageInfo"]()
    details.accepted_prediction_tokens, details.rejected_prediction_tokens = found


def register_prediction_counts() -> None:
    """Let this process's worker answer PREDICTED_COUNTS."""
    workers = getattr(sys.modules.get(WORKER_MODULE), "WorkerBase", None)
    if workers is not None:
        setattr(workers, PREDICTED_COUNTS, _counts_from_worker)


def _counts_from_worker(worker: Any, name: str, answers: int) -> tuple[int, int] | None:
    requests = getattr(getattr(worker.model_runner, "speculator", None), "requests", None)
    found: tuple[int, int] | None = requests and requests.report_predicted(name, answers)
    return found
