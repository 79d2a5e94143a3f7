"""What both adapters for vLLM know of a request, and the running requests of Model Runner V2."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import NO_TOKENS, DraftTree, TokenArray
from ngramkit.drafters.references import NO_REFERENCES, ReferenceTexts
from ngramkit.engines.batch import Asked, BatchDrafter, Decode
from ngramkit.engines.growing_history import FINISH_PRIORITY, Finished
from ngramkit.engines.host_rows import HostRow, HostRows
from ngramkit.engines.prediction_counts import PredictionCounts
from ngramkit.engines.remembered_requests import joined_history
from ngramkit.engines.request_parameters import forbids_drafts, tenant_of_request
from ngramkit.engines.request_texts import (
    IDS_KEY,
    PREDICTION_KEY,
    TEMPLATE_IDS_KEY,
    given_texts,
    token_ids,
)

WARM_UP_PREFIXES = ("_warmup_", "_v2_mixed_warmup")  # ids of vLLM's own requests begin like this
MAX_COUNTED = 1024  # requests whose predictions' counts are kept for the front end


@dataclass(slots=True)
class Request:
    sampling: Any  # vLLM's SamplingParams
    tenant: str  # whose history it drafts from
    joins: str | None  # key of the history that it joins at its end; None: of none
    drafts: bool
    stops: frozenset[int]
    most: int  # tokens of its output
    ended: bool = False  # vLLM may compute it once more
    references: ReferenceTexts = NO_REFERENCES
    predicted: PredictionCounts | None = None  # None: its prediction's tokens are not counted


class RunningRequests:
    """Model Runner V2's requests by id: their tokens, drafts and ends.

    `longest` returns the current maximum of a request's tokens. `tenants`: as `history_by`.
    `counts`: what comes from predictions is counted.
    """

    def __init__(
        self,
        batch: BatchDrafter,
        longest: Callable[[], int],
        tenants: str | None,
        *,
        counts: bool = True,
    ) -> None:
        self.batch, self.rows, self.texts = batch, HostRows(), batch.request_texts()
        self._longest, self._tenants = longest, tenants
        self.counts = counts
        self._counted: dict[str, PredictionCounts] = {}  # by id, the oldest first
        Finalize(self, _finish_ended, (self.rows, batch), exitpriority=FINISH_PRIORITY)

    def begin(self, new: Any) -> None:
        """Add a request: a NewRequestData, also of a resumed request or a streaming update."""
        sampling, tokens = new.sampling_params, new.prefill_token_ids
        if sampling is None or new.req_id.startswith(WARM_UP_PREFIXES):
            return
        parameters = sampling.extra_args or {}
        drafts = not forbids_drafts(parameters)
        tenant = tenant_by(self._tenants, sampling, new.lora_request)
        if self.batch.history is not None and tenant is not None:
            self.batch.history.past(tenant)  # before a rank may write: all pass the model first
        most = most_output(sampling, new.prompt_len, self._longest())
        references = NO_REFERENCES
        if drafts:
            given, more = parameters.get(IDS_KEY), parameters.get(TEMPLATE_IDS_KEY)
            references = self.texts.read(new.req_id, given, templates=more, tenant=tenant or "")
        self.rows.begin(
            new.req_id,
            np.array(tokens, np.int32),
            new.prompt_len,
            hidden=0 if new.prompt_embeds is None else new.prompt_len,
            request=Request(
                sampling,
                tenant or "",
                joins=history_of_request(new, tenant, most),
                drafts=drafts,
                stops=frozenset(stop_tokens(sampling)),
                most=most,
                references=references,
                predicted=self._prediction_counts_of(new, drafts, references),
            ),
        )

    def preempt(self, name: str) -> None:
        self.rows.pop(name, None)
        self.texts.drop(name)

    def finish(self, name: str) -> None:
        """Forget a request that has finished or was aborted, and remember what it finished."""
        row = self.rows.pop(name, None)
        self.batch.sessions.end(name)
        self.texts.drop(name)
        if row is not None:
            remember_finished(self.batch, name, row)

    def follow(
        self,
        names: Sequence[str],
        totals: Sequence[int],
        counts: Sequence[int],
        latest: TokenArray,
        whole: Callable[[int], tuple[TokenArray, int]],
        verified: Sequence[int] = (),
    ) -> list[HostRow | None]:
        """Append what a step wrote; return the rows to draft for, None for other rows.

        `totals`, `counts`: tokens of each row, and how many of these the step wrote; none in the
        chunks of a prompt. `latest`, int32[rows, n]: the last n tokens of each row. `whole(i)`: all
        tokens of row i, and how many are its prompt. `verified`: drafted tokens of each row in the
        step, if it had any.
        """
        found: list[HostRow | None] = [None] * len(names)
        for i, count in enumerate(counts):
            name = names[i]
            if count == 0 or name.startswith(WARM_UP_PREFIXES):
                continue
            new = latest[i, latest.shape[1] - count :]
            row = self.rows.extend(name, totals[i], new)
            if row is None:
                row = self.rows.resync(name, *whole(i))
            request = row.request
            if request is None:  # vLLM did not show how it began
                continue
            if request.predicted is not None and not request.ended and len(verified):
                written, room = new.tolist(), request.most - (row.length - row.prompt - count)
                ends = (i + 1 for i, token in enumerate(written) if token in request.stops)
                request.predicted.learn(written, verified[i], min(next(ends, count), room))
            request.ended = (
                request.ended
                or row.length - row.prompt >= request.most
                or not request.stops.isdisjoint(new.tolist())
            )
            if not request.ended and request.drafts:
                found[i] = row
        return found

    def chains(
        self,
        names: Sequence[str],
        rows: Sequence[HostRow | None],
        most: int,
        cost: float | None,
        sizes: Mapping[Hashable, int] | None = None,
    ) -> list[DraftTree]:
        """Return a chain of at most `most` tokens for each row; an empty one without a row.

        `cost`, `sizes` as in `BatchDrafter.chain_batch`.
        """
        rest = self._longest() - 1
        contexts, lengths, asked = [], [], []
        for name, row in zip(names, rows, strict=True):
            if row is None:
                contexts.append(NO_TOKENS)
                lengths.append(0)
                asked.append(Asked(0, name=name))
                continue
            contexts.append(row.tokens)
            lengths.append(max(min(most, rest - row.hidden - row.length), 0))
            request = row.request
            asked.append(
                Asked(row.prompt, request.tenant, request.references, name=name, holder=row)
            )
        chains = self.batch.chain_batch(contexts, lengths, cost, asked=asked, sizes=sizes)
        for row, chain in zip(rows, chains, strict=True):
            if row is not None and row.request.predicted is not None:
                row.request.predicted.set_draft(chain, row.tokens)
        return chains

    def prune(self, known: Container[str]) -> None:
        """Drop requests that the engine no longer has."""
        self.rows.prune(known)
        self.texts.keep(known)

    def report_predicted(self, request: str, count: int) -> tuple[int, int] | None:
        """Return and forget the counts of `predicted`: a client may use a request's id again."""
        found = self.predicted(request, count)
        if found is not None:
            for name in [name for name in self._counted if external_id(name) == request]:
                del self._counted[name]
        return found

    def predicted(self, request: str, count: int) -> tuple[int, int] | None:
        """Return how many tokens of a prediction were accepted and rejected in all its answers.

        `request`: vLLM's id before it appends to it; `count`: the number of answers. Returns None
        if they are not known.
        """
        found = [p for name, p in self._counted.items() if external_id(name) == request]
        if len(found) != count:
            return None
        return sum(each.accepted for each in found), sum(each.rejected for each in found)

    def _prediction_counts_of(
        self, new: Any, drafts: bool, references: ReferenceTexts
    ) -> PredictionCounts | None:
        """Return the counts of a request with a prediction, also of a resumed one.

        None with stop texts: only the front end knows where one ended the answer.
        """
        parameters = new.sampling_params.extra_args or {}
        if not (self.counts and drafts and PREDICTION_KEY in parameters):
            return None
        if new.sampling_params.stop:
            return None
        try:
            given = given_texts(parameters[PREDICTION_KEY], id_bytes=1)
            prediction = token_ids(given, None, self.batch.source.vocabulary, strict=False)
        except UsageError:  # ngramkit's front end did not encode it
            return None
        counts = self._counted.setdefault(new.req_id, PredictionCounts())
        counts.begin(prediction, references.texts)
        while len(self._counted) > MAX_COUNTED:
            del self._counted[next(iter(self._counted))]
        return counts


def history_of_request(request: Any, tenant: str | None, most: int) -> str | None:
    """Return the history that a request of at most `most` output tokens joins at its end."""
    return joined_history(
        tenant,
        request.sampling_params.extra_args or {},
        hidden=request.prompt_embeds is not None or bool(request.mm_features),
        most=most,
    )


def remember_finished(
    batch: BatchDrafter, name: str, row: HostRow, *, proven: bool = False
) -> None:
    """Add a row that has ended to the history, unless it was aborted or must not be remembered.

    `proven`: only if its tokens show that it has ended.
    """
    request = row.request
    if request is None or request.joins is None:
        return
    sampling, written = request.sampling, row.output.tolist()
    output = answer_unless_aborted(sampling, written, request.most, proven=proven)
    if output is None and proven and sampling.stop and batch.decode is not None:
        output = stopped_answer(sampling, written, batch.decode)
    if output is not None:
        tokens = row.tokens[: row.prompt + len(output)]
        batch.finish(Finished(tokens, row.prompt, name, request.joins))


def _finish_ended(rows: HostRows, batch: BatchDrafter) -> None:
    """Remember the last requests, whose ends vLLM would have shown in the next step."""
    for name, row in sorted(rows.items()):
        remember_finished(batch, name, row, proven=True)


def external_id(name: str) -> str:
    """Return the id of which vLLM made a request's: 1_ID-xxxxxxxx is the second answer to ID."""
    asked = name.rpartition("-")[0]
    number, _, rest = asked.partition("_")
    return rest if number.isdecimal() else asked


def tenant_by(by: str | None, sampling: Any, lora: Any) -> str | None:
    """Return whose history a request drafts from and joins, as `tenant_of_request`."""
    parameters = getattr(sampling, "extra_args", None) or {}
    return tenant_of_request(by, parameters, lora=getattr(lora, "lora_name", None))


def stop_tokens(sampling: Any) -> set[int]:
    return {*(sampling.stop_token_ids or ()), sampling.eos_token_id} - {None}


def most_output(sampling: Any, prompt: int, longest: int) -> int:
    return min(sampling.max_tokens or longest, longest - prompt)


def answer_unless_aborted(
    sampling: Any, output: Sequence[int], most: int, *, proven: bool = False
) -> list[int] | None:
    """Return the token ids of a request's answer; None if it was aborted.

    The last pass may have gone beyond its end. Requests with stop texts count as finished, unless
    the end must be `proven`: they end as aborted ones do.
    """
    stops, output = stop_tokens(sampling), list(output)
    for i, token in enumerate(output[:most]):
        if token in stops:
            return output[: i + 1]
    finished = len(output) >= most or (sampling.stop and not proven)
    return output[:most] if finished else None


def stopped_answer(sampling: Any, output: list[int], decode: Decode) -> list[int] | None:
    """Return an answer up to the token that completes a stop text; None if there is none."""

    def stops(size: int) -> bool:
        text = decode(output[:size], skip_special_tokens=sampling.skip_special_tokens)
        return any(each in text for each in sampling.stop)

    size = bisect_left(range(len(output) + 1), True, key=stops)
    return output[:size] if sampling.min_tokens < size <= len(output) else None
