"""ngramkit's speculator for vLLM's Model Runner V2; `engines.vllm_hooks` makes vLLM use it.

It is imported in a worker, when the runner is made. A step copies [rows, K + 3] ids from the device
once, which is its only wait, and [rows, K] ids back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.utils.gpu_sync_debug import gpu_sync_allowed
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.vllm_batch import is_first_rank_of_stage, most_drafted, open_batch
from ngramkit.engines.vllm_modes import MODES
from ngramkit.engines.vllm_options import draft_config, log_where_vllm_does, mode_of
from ngramkit.engines.vllm_requests import RunningRequests
from ngramkit.engines.wrapping import wrap

LOG = logging.getLogger("ngramkit")
MIN_SCORE = 1e-6  # scores are divided by each other
FACT_COLUMNS = 2  # columns before the tokens of a copied row: its length, what the step wrote


class Speculator(BaseSpeculator):  # type: ignore[misc]
    """The drafts of `GPUModelRunner`. Raises NgramkitError for a wrong configuration."""

    supports_mm_inputs = False
    draft_logits = None  # drafts are verified as if they were certain

    def __init__(self, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        log_where_vllm_does()
        speculative, self._model = vllm_config.speculative_config, vllm_config.model_config
        self._states, self.mode = req_states, mode_of(vllm_config)
        self.enable_adaptive_verification = self.mode == "adaptive"
        self.slots = int(speculative.num_speculative_tokens)  # K
        self._most_rows = int(vllm_config.scheduler_config.max_num_seqs)
        self.batch = self._open(vllm_config, device)
        self.requests = RunningRequests(
            self.batch,
            self._longest,
            self._tenants,
            counts=self.mode != "adaptive",  # the device decides how much is verified
        )
        shape, pinned = (self._most_rows, self.slots), device.type != "cpu"
        self._told = torch.empty(
            (self._most_rows, FACT_COLUMNS + self.slots + 1), dtype=torch.int32, pin_memory=pinned
        )
        # One buffer is enough: its next use follows a wait for the stream that copies it.
        self._made = torch.zeros(shape, dtype=torch.int64, pin_memory=pinned)
        self._sure = torch.zeros(shape, dtype=torch.float32, pin_memory=pinned)
        self._drafts = torch.zeros(shape, dtype=torch.int64, device=device)
        self.draft_token_confidence_probs = torch.zeros(shape, dtype=torch.float32, device=device)
        self._back = torch.arange(-(self.slots + 1), 0, device=device)
        self._drafted: dict[str, int] = {}  # tokens of each row's last draft
        self.waited, self.filled = 0.0, 0  # seconds for the device; slots without a draft
        self.step_slots = dict[int, int]()  # calls by their K
        self._logged = 0  # rows at the last line of the log
        LOG.info(
            "drafting in vLLM's Model Runner V2, %s: %s; K = %d",
            self.mode, MODES[self.mode].verified, self.slots,
        )  # fmt: skip

    def _open(self, vllm_config: Any, device: torch.device) -> BatchDrafter:
        config = draft_config(vllm_config)
        first = is_first_rank_of_stage(vllm_config.parallel_config)
        if first:
            config.log_unused(MODES[self.mode].unused, f"vLLM's {self.mode} mode")
        if self.mode != "trimmed":  # vLLM decides how much it verifies
            config = replace(config, pause=False)
        batch = open_batch(vllm_config, config, device.type, counts=first)
        # Each slot is verified in the fixed mode, also beyond `tokens`.
        self._length = self.slots if self.mode == "fixed" else most_drafted(vllm_config, config)
        self._tenants, self._log_rows = config.history_by, config.log_steps
        return batch

    def _longest(self) -> int:
        return int(self._model.max_model_len)  # vLLM may lower it after this object is made

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Do nothing: no graph is captured."""

    def capture(self) -> None:
        """Do nothing."""

    @torch.inference_mode()
    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Any,
        aux_hidden_states: Any,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: Any,
        seeds: Any,
        dp_sync_state: Any = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        mm_inputs: Any = None,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
    ) -> torch.Tensor:
        """Return drafts, int64[rows, K], on the device; the runner may write to them.

        A slot without a draft repeats the row's last token: the runner embeds every slot.
        """
        count = input_batch.num_reqs
        drafts = self._drafts[:count]
        if dummy_run:
            self.draft_token_confidence_probs[:count].zero_()
            return drafts.zero_()
        most = self.slots if num_speculative_tokens is None else num_speculative_tokens
        self.step_slots[most] = self.step_slots.get(most, 0) + 1
        told = self._copy(input_batch.idx_mapping, num_sampled)
        names, drafted = input_batch.req_ids, input_batch.num_draft_tokens_per_req
        index = input_batch.idx_mapping_np
        totals, counts = told[:, 0].tolist(), told[:, 1].tolist()
        rows = self.requests.follow(
            names,
            totals,
            counts,
            told[:, FACT_COLUMNS:],
            lambda i: self._whole(int(index[i]), int(told[i, 0])),
            () if drafted is None else drafted.tolist(),
        )
        chains = self.requests.chains(
            names,
            rows,
            min(most, self._length),
            None if self.mode == "trimmed" else 0.0,
            {
                name: total if count else 0
                for name, total, count in zip(names, totals, counts, strict=True)
            },
        )
        self._drafted = dict(zip(names, map(len, chains), strict=True))
        self._write(chains, told[:, -1])
        drafts.copy_(self._made[:count], non_blocking=True)
        if self.enable_adaptive_verification:
            confidences = self.draft_token_confidence_probs[:count]
            confidences.copy_(self._sure[:count], non_blocking=True)
        if self.mode != "trimmed":
            self.filled += most * sum(row is not None for row in rows) - sum(map(len, chains))
        self._report()
        return drafts

    def _copy(self, index: torch.Tensor, num_sampled: torch.Tensor) -> TokenArray:
        """Return int32[rows, K + 3]: each row's length, what was sampled, its last K + 1 tokens."""
        started, count = time.perf_counter(), len(index)
        totals = self._states.total_len.gpu[index].long()
        at = (totals[:, None] + self._back).clamp_(min=0)
        latest = self._states.all_token_ids.gpu[index[:, None], at]
        told = torch.cat([totals[:, None].int(), num_sampled[:count, None].int(), latest], 1)
        with gpu_sync_allowed():
            self._told[:count].copy_(told)
        self.waited += time.perf_counter() - started
        copied: TokenArray = self._told[:count].numpy()
        return copied

    def _whole(self, index: int, total: int) -> tuple[TokenArray, int]:
        with gpu_sync_allowed():
            tokens = self._states.all_token_ids.gpu[index, :total].cpu().numpy()
        return tokens, int(self._states.prompt_len.np[index])

    def _write(self, chains: Sequence[DraftTree], last: TokenArray) -> None:
        """Write chains and confidences to the buffers."""
        count, made, sure = len(chains), self._made.numpy(), self._sure.numpy()
        made[:count] = last[:, None]
        lengths = np.array([len(chain) for chain in chains])
        drafted = np.arange(self.slots) < lengths[:, None]
        if lengths.any():
            made[:count][drafted] = np.concatenate([chain.token_ids for chain in chains])
        if self.enable_adaptive_verification:
            scores = np.zeros((count, self.slots), np.float32)
            if lengths.any():
                scores[drafted] = np.concatenate([chain.scores for chain in chains])
            sure[:count] = confidence_probs(scores, drafted)

    def trim(self, ids: Any) -> Any:
        """Shorten vLLM's DraftTokenIds, K of each row, to what was drafted."""
        if ids is not None and self.mode == "trimmed":
            ids.draft_token_ids = [
                tokens[: self._drafted.get(name, 0)]
                for name, tokens in zip(ids.req_ids, ids.draft_token_ids, strict=True)
            ]
        return ids

    def _report(self) -> None:
        rows, running = self.batch.statistics.rows, self.requests.rows
        if len(running) > self._most_rows:  # each has a row of the runner
            self.requests.prune(self._states.req_id_to_index)
        if not self._log_rows or rows - self._logged < self._log_rows:
            return
        self._logged = rows
        calls = max(self.batch.statistics.calls, 1)
        LOG.info(
            "ngramkit: waited %.2f ms a call for the device, %s slots without a draft, "
            "%s rows copied again", 1e3 * self.waited / calls, f"{self.filled:,}", running.resynced,
        )  # fmt: skip


def confidence_probs(
    scores: npt.NDArray[np.float32], drafted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    """Return each token's probability if those before it are accepted, float32[rows, K].

    `scores`, float32[rows, K]: probabilities that a token and all before it are accepted. Slots
    that are not `drafted` get 0.
    """
    paths = np.minimum.accumulate(np.clip(scores, MIN_SCORE, 1.0), 1)
    conditional = paths.copy()
    conditional[:, 1:] /= paths[:, :-1]
    return np.where(drafted, conditional, np.float32(0.0))


def show_requests_to_speculators(runner: Any) -> None:
    """Wrap three methods of GPUModelRunner to show requests to a Speculator."""
    wrap(runner, "add_requests", _with_begins_seen)
    wrap(runner, "finish_requests", _with_ends_seen)
    wrap(runner, "take_draft_token_ids", _with_drafts_trimmed)


def _with_begins_seen(theirs: Any, runner: Any, scheduler_output: Any) -> Any:
    if isinstance(runner.speculator, Speculator):
        for new in scheduler_output.scheduled_new_reqs:
            runner.speculator.requests.begin(new)
    return theirs(runner, scheduler_output)


def _with_ends_seen(theirs: Any, runner: Any, scheduler_output: Any) -> Any:
    if isinstance(runner.speculator, Speculator):
        for name in sorted(scheduler_output.preempted_req_ids or ()):
            runner.speculator.requests.preempt(name)
        for name in sorted(scheduler_output.finished_req_ids):
            runner.speculator.requests.finish(name)
    return theirs(runner, scheduler_output)


def _with_drafts_trimmed(theirs: Any, runner: Any) -> Any:
    ids = theirs(runner)
    return runner.speculator.trim(ids) if isinstance(runner.speculator, Speculator) else ids
