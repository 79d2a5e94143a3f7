"""Adapter for vLLM: `--speculative-config` with the method `custom_class` (read in 0.32 and 0.33).

    NGRAMKIT_DRAFT='{"datastores": ["hf://me/chat@v1"]}' vllm serve MODEL --speculative-config \\
      '{"method": "custom_class", "model": "ngramkit.engines.vllm.Proposer",
        "num_speculative_tokens": 8}'

With several ranks nothing depends on time, so all draft the same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import NgramkitError, UsageError, one_line
from ngramkit.engines.batch import Asked
from ngramkit.engines.growing_history import Finished
from ngramkit.engines.request_parameters import forbids_drafts
from ngramkit.engines.request_texts import IDS_KEY, TEMPLATE_IDS_KEY
from ngramkit.engines.vllm_batch import most_drafted, open_batch
from ngramkit.engines.vllm_modes import MODES
from ngramkit.engines.vllm_options import draft_config, log_where_vllm_does
from ngramkit.engines.vllm_requests import (
    answer_unless_aborted,
    history_of_request,
    most_output,
    tenant_by,
)
from ngramkit.engines.wrapping import wrap

LOG = logging.getLogger("ngramkit")
# Has the class that every platform's runner is based on.
RUNNER_MODULE = "vllm.v1.worker.gpu_model_runner"
ON_CPU = (  # of 0.32 and 0.33
    "if a batch has sampled requests, vLLM on a CPU verifies drafts of any method with "
    "uninitialised temperatures (its issue 55005): send only greedy requests"
)
SHOWN, ENDED = "propose_draft_token_ids", "_on_request_state_removed"  # its methods


class Proposer:
    """The class that vLLM's `create_custom_proposer` makes. `enabled = False` switches it off.

    Configured by NGRAMKIT_DRAFT, else by "ngramkit" in --additional-config; without either, blend
    over the requests' own text. Raises NgramkitError.
    """

    def __init__(self, vllm_config: Any) -> None:
        log_where_vllm_does()
        try:
            config = draft_config(vllm_config)
            rank = getattr(getattr(vllm_config, "parallel_config", None), "rank", 0)
            device = getattr(getattr(vllm_config, "device_config", None), "device_type", "")
            if device == "cpu" and not rank:
                LOG.warning("%s", ON_CPU)
            if not rank:
                config.log_unused(MODES["trimmed"].unused, "chains in vLLM")
            # Ranks count the same.
            self._batch = open_batch(vllm_config, config, device, counts=not rank)
            show_requests_to_proposers(
                tenants=config.history_by is not None, grows=self._batch.grows
            )
        except NgramkitError as error:
            raise type(error)(one_line(error), option=error.option) from error
        self.history, self.statistics = self._batch.history, self._batch.statistics
        self._length = most_drafted(vllm_config, config)
        self._longest = int(vllm_config.model_config.max_model_len)
        self._tenants = config.history_by
        self._states: dict[str, Any] = {}  # requests of the next rows, by name
        self._texts = self._batch.request_texts()
        self.enabled = True

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: vLLM's CPU runner calls this although there is no model."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a chain for every row of `sampled_token_ids`; [] for a row that sampled nothing.

        `num_tokens_no_spec`: int32[rows or more], the rows' tokens, sampled ones included.
        `token_ids_cpu`: int32[rows or more, max_model_len].
        """
        count = len(sampled_token_ids)
        if not self.enabled:
            return [[] for _ in range(count)]
        states = list(self._states.items()) if len(self._states) == count else [("", None)] * count
        rows, lengths, asked = [], [], []
        for i, ((name, state), sampled) in enumerate(zip(states, sampled_token_ids, strict=True)):
            size = int(num_tokens_no_spec[i]) if len(sampled) else 0
            rows.append(token_ids_cpu[i, :size])
            drafts = size > 0 and not forbids_drafts(_extra_args(state))
            lengths.append(max(min(self._length, self._longest - size - 1), 0) if drafts else 0)
            # Without a holder: vLLM reports neither discarded tokens nor a streamed prompt.
            tenant = "" if state is None else self._tenant(state) or ""
            asked.append(Asked(size - len(sampled), tenant, self._texts.get(name), name=name))
        chains = self._batch.chain_batch(rows, lengths, asked=asked)
        return [chain.token_ids.tolist() for chain in chains]

    def see(self, states: Mapping[str, Any]) -> None:
        """Take the requests of the next rows, by name, in the order of the rows."""
        self._states = dict(states)
        for name, state in self._states.items():
            said = _extra_args(state)
            ids, more = said.get(IDS_KEY), said.get(TEMPLATE_IDS_KEY)
            if (ids is not None or more is not None) and name not in self._texts:
                tenant = self._tenant(state) or ""
                self._texts.read(name, ids, templates=more, tenant=tenant)

    def remember_ended(self, name: str, state: Any) -> None:
        self._batch.sessions.end(name)
        self._texts.drop(name)
        prompt, sampling = state.prompt_token_ids, state.sampling_params
        if not self._batch.grows or prompt is None or sampling is None:
            return
        most = most_output(sampling, len(prompt), self._longest)
        joins = history_of_request(state, self._tenant(state), most)
        if joins is None:
            return
        output = answer_unless_aborted(sampling, state.output_token_ids, most)
        if output is not None:
            tokens = np.array([*prompt, *output], np.int32)
            self._batch.finish(Finished(tokens, len(prompt), name, joins))

    def _tenant(self, state: Any) -> str | None:
        return tenant_by(self._tenants, state.sampling_params, state.lora_request)


def _extra_args(state: Any) -> Mapping[str, Any]:
    return getattr(getattr(state, "sampling_params", None), "extra_args", None) or {}


def show_requests_to_proposers(*, tenants: bool, grows: bool) -> None:
    """Patch vLLM's model runner, once in a process, to show its requests to a Proposer.

    If its methods are missing, requests' own parameters are not seen, rows are told apart by their
    places, and no request joins a history; `tenants` then raise UsageError.
    """
    runner = getattr(sys.modules.get(RUNNER_MODULE), "GPUModelRunner", None)
    if not hasattr(runner, SHOWN) or not hasattr(runner, ENDED):
        if tenants:
            raise UsageError(
                "cannot use history_by: this vLLM does not report a request's tenant",
                "Leave history_by out.",
                option="history_by",
            )
        LOG.info("this vLLM does not report requests: their own parameters have no effect")
        if grows:
            LOG.warning("this vLLM does not report finished requests: none joins the history")
        return
    wrap(runner, SHOWN, _with_requests_seen)
    wrap(runner, ENDED, _with_end_seen)


def _with_requests_seen(theirs: Any, runner: Any, *given: Any, **named: Any) -> Any:
    if isinstance(getattr(runner, "drafter", None), Proposer):
        runner.drafter.see({name: runner.requests[name] for name in runner.input_batch.req_ids})
    return theirs(runner, *given, **named)


def _with_end_seen(theirs: Any, runner: Any, name: str, state: Any) -> Any:
    if state is not None and isinstance(getattr(runner, "drafter", None), Proposer):
        runner.drafter.remember_ended(name, state)
    return theirs(runner, name, state)
