"""Adapter for TensorRT-LLM: `UserProvidedDecodingConfig` (contract read in 1.2 and on its main).

    from tensorrt_llm.llmapi import UserProvidedDecodingConfig
    from ngramkit.engines.tensorrt_llm import make_drafter
    config = UserProvidedDecodingConfig(max_draft_len=8, drafter=make_drafter(8, vocabulary=128256))

The arguments of its Drafter differ between versions. Untested on a real engine.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping, Sized
from functools import cache
from typing import Any

import numpy as np

from ngramkit.basics.errors import UsageError, require_between
from ngramkit.budget.pass_times import pass_times
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig, config_for
from ngramkit.engines.growing_history import Finished
from ngramkit.engines.remembered_requests import EndedRequests, joined_history
from ngramkit.engines.request_parameters import tenant_of_request
from ngramkit.engines.source import engine_record, load_engine_tokenizer

BASE_MODULE = "tensorrt_llm._torch.speculative.drafter"
MAX_CHAIN_TOKENS = 64  # maximum tokens of a chain


def make_drafter(
    max_draft_len: int,
    config: DraftConfig | None = None,
    *,
    vocabulary: int | None = None,
    tokenizer: Any = None,
    max_concurrency: int | None = None,
    draft_len_schedule: Mapping[int, int] | None = None,
) -> Any:
    """Return a Drafter of TensorRT-LLM's, for `UserProvidedDecodingConfig(drafter=)`.

    `enabled = False` switches it off, `statistics` counts.

    `max_draft_len`: as in UserProvidedDecodingConfig. `config`: in place of NGRAMKIT_DRAFT; without
    either, blend over the requests' own text. `vocabulary`: the model's number of ids; needed
    without `tokenizer`. `tokenizer`: the model's, from transformers, or its Hub id or folder:
    artifacts of another one are refused; without it only the number of ids is compared.
    `max_concurrency`, `draft_len_schedule`: TensorRT-LLM's own limits of concurrent drafts.

    Raises as `DraftConfig.read` and `engines.source.open_source`; UsageError if TensorRT-LLM is not
    installed or its Drafter lacks such an option.
    """
    require_between("max_draft_len", max_draft_len, 1, MAX_CHAIN_TOKENS)
    options = {"max_concurrency": max_concurrency, "draft_len_schedule": draft_len_schedule}
    given = {name: value for name, value in options.items() if value is not None}
    config = config_for("tensorrt-llm", "chains in TensorRT-LLM", config)
    return _drafter_class()(max_draft_len, config, vocabulary, tokenizer, given)


def _drafter_class() -> type[Any]:
    """Return our class; importing TensorRT-LLM's Drafter needs a GPU."""
    try:
        base = importlib.import_module(BASE_MODULE).Drafter
    except ImportError as error:
        raise UsageError(
            f"cannot import TensorRT-LLM: {error}", "Install tensorrt_llm 1.2 or later."
        ) from error
    return _class_over(base)


@cache
def _class_over(base: type[Any]) -> type[Any]:
    class Drafter(base):  # type: ignore[misc]
        # Its sampler removes as many tokens as the padded draft has.
        _needs_padding_kv_extension = True

        def __init__(
            self,
            length: int,
            config: DraftConfig,
            vocabulary: int | None,
            tokenizer: Any,
            options: dict[str, Any],
        ) -> None:
            super().__init__(**_base_arguments(base, length, options))
            self._made_of = (length, config, vocabulary, tokenizer, options)
            self._length = min(config.tokens or length, length)
            own = load_engine_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
            known = config.vocabulary if vocabulary is None else vocabulary
            record = engine_record(own, known)
            if known is None and record is not None:
                known = record.vocabulary
            self._batch = BatchDrafter.open(
                config,
                vocabulary=config.require_vocabulary(known, "Give tokenizer or vocabulary."),
                cost=pass_times(config.pass_cost),
                tokenizer=record,
                writes=_is_first_process(),
            )
            self._batch.require_same_encoding(own)
            self.history, self.statistics = self._batch.history, self._batch.statistics
            self._ended_requests = EndedRequests(
                lambda each: _was_cancelled(each) or each.is_generation_complete_state
            )
            self._tenants = config.history_by
            self.enabled = True

        def __reduce__(self) -> Any:
            return _make_drafter, self._made_of

        def prepare_draft_tokens(
            self, scheduled_requests: Any, resource_manager: Any = None
        ) -> None:
            """Set py_draft_tokens, list[int], of every request that generates."""
            requests = list(scheduled_requests.generation_requests)
            names = [f"{request.request_id:020}" for request in requests]
            if self._batch.grows:
                self._remember(dict(zip(names, requests, strict=True)))
            rows = [list(request.get_tokens(0)) for request in requests]
            longest = self._longest() if self.enabled else 0
            lengths = [
                max(min(longest, _most_tokens(request, len(row))), 0)
                for request, row in zip(requests, rows, strict=True)
            ]
            asked = [
                Asked(_prompt_length(request, row), self._tenant(request) or "", name=name)
                for name, request, row in zip(names, requests, rows, strict=True)
            ]
            chains = self._batch.chain_batch(rows, lengths, asked=asked)
            for request, chain in zip(requests, chains, strict=True):
                request.py_draft_tokens = chain.token_ids.tolist()

        def _remember(self, running: Mapping[str, Any]) -> None:
            for name, request in self._ended_requests.ended(running):
                aborted = _was_cancelled(request)
                joins = joined_history(self._tenant(request), {}, aborted=aborted)
                if joins is not None:
                    tokens = np.array(request.get_tokens(0), np.int32)
                    prompt = _prompt_length(request, tokens)
                    self._batch.finish(Finished(tokens, prompt, name, joins))

        def _tenant(self, request: Any) -> str | None:
            return tenant_of_request(
                self._tenants,
                {},
                lora=getattr(request, "lora_task_id", None),
                salt=getattr(request, "cache_salt_id", None),
            )

        def _longest(self) -> int:
            now = getattr(self, "max_total_draft_tokens", None)
            return self._length if now is None else min(self._length, int(now))

    return Drafter


def _make_drafter(*given: Any) -> Any:
    return _drafter_class()(*given)


def _base_arguments(base: type[Any], length: int, options: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(base.__init__).parameters
    for name in options:
        if name not in parameters:
            raise UsageError(
                f"cannot set {name}: this TensorRT-LLM's Drafter does not have it", "Leave it out."
            )
    names = ("max_draft_len", "max_draft_tokens", "max_total_draft_tokens")
    return {**{name: length for name in names if name in parameters}, **options}


def _is_first_process() -> bool:
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")
    ranks = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
    return not ranks or int(ranks[0]) == 0


def _was_cancelled(request: Any) -> bool:
    return bool(getattr(request, "is_finished_due_to_cancellation", False))


def _prompt_length(request: Any, row: Sized) -> int:
    prompt = getattr(request, "py_orig_prompt_len", None)
    return len(row) - 1 if prompt is None else int(prompt)


def _most_tokens(request: Any, tokens: int) -> int:
    prompt = getattr(request, "py_orig_prompt_len", None)
    new = getattr(request, "py_max_new_tokens", None)
    return (
        MAX_CHAIN_TOKENS if prompt is None or new is None else int(prompt) + int(new) - tokens - 1
    )
