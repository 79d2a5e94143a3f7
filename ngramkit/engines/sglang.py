"""Adapter for SGLang: draft trees under `--speculative-algorithm NGRAM` (read in 0.5.23).

    NGRAMKIT_DRAFT='{"datastores": ["hf://me/chat@v1"]}' python -m sglang.launch_server \\
      --model-path MODEL --speculative-algorithm NGRAM --speculative-num-draft-tokens 16

A breadth of 1 (`--speculative-ngram-max-bfs-breadth`) drafts a chain. The sampling parameter
`"custom_params": {"ngramkit": false}` (or 0, "false", "off") switches drafts off for a request,
`{"ngramkit_reference": TEXT}` gives it a text to draft from. A request with a JSON schema drafts
from a template of it.
"""

from __future__ import annotations

import importlib
import logging
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import ArtifactError, InputError, UsageError, one_line
from ngramkit.basics.untrusted import parse_json
from ngramkit.budget.crossover import stops_paying
from ngramkit.budget.model_size import model_size, served_config
from ngramkit.budget.pass_times import PassTimes, pass_times
from ngramkit.drafters.base import DraftTree, LiveContext, TokenArray
from ngramkit.drafters.references import REFERENCE_KEY
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig, config_for
from ngramkit.engines.growing_history import Finished, config_of_later_replica
from ngramkit.engines.metrics import EngineCounters
from ngramkit.engines.remembered_requests import EndedRequests, joined_history
from ngramkit.engines.request_parameters import forbids_drafts, tenant_of_request
from ngramkit.engines.request_texts import (
    MAX_RUNNING_TEXT_TOKENS,
    TEMPLATE_KEY,
    text_encoder,
)
from ngramkit.engines.source import engine_record, load_engine_tokenizer
from ngramkit.engines.tool_templates import call_templates

LOG = logging.getLogger("ngramkit")
Ids = npt.NDArray[np.int64]


class NgramCorpus:
    """Replacement of SGLang's NgramCorpus. Only its draft size and a breadth of 1 have an effect.

    Raises as `DraftConfig.read` and `engines.source.open_source`.
    """

    def __init__(
        self, *, draft_token_num: int = 8, max_bfs_breadth: int = 8, **others: Any
    ) -> None:
        config = config_for("sglang", "drafts in SGLang")
        server = _server_facts(config)
        config = server.config
        hint = f'Add "vocabulary" to {CONFIG_VARIABLE}: the vocab_size of the model\'s config.json.'
        vocabulary = config.require_vocabulary(server.vocabulary, hint)
        self._batch = BatchDrafter.open(
            config,
            vocabulary=vocabulary,
            counters=EngineCounters(),
            tokenizer=engine_record(server.tokenizer, vocabulary),
            writes=server.first,
        )
        self.history, self.statistics = self._batch.history, self._batch.statistics
        self._ended_requests = EndedRequests(lambda request: request.finished_reason is not None)
        self._tenants = config.history_by
        self.draft_token_num = draft_token_num
        nodes = draft_token_num - 1  # the first is the last token of the context
        self._nodes = min(config.budget or nodes, nodes)
        self._chain = max_bfs_breadth == 1
        if server.first and server.times is not None:
            _log_crossover(server.times, self._nodes, nodes)
        # Tokens of each request, and how many before them are unknown.
        self._texts: dict[str, tuple[LiveContext, int]] = {}
        self._requests: dict[str, Any] = {}
        self._references = self._batch.request_texts()
        self._compared = False

    def see(self, requests: Sequence[Any]) -> None:
        """Take the batch's requests, whose tokens complete those given to `batch_get`.

        If an artifact has another tokenizer than the first request, that is logged and nothing is
        drafted.
        """
        if requests and not self._compared:
            self._compared = True
            try:
                self._batch.require_same_encoding(getattr(requests[0], "tokenizer", None))
            except ArtifactError as error:
                LOG.error("%s; nothing is drafted", one_line(error))
                self._nodes, self._batch.grows = 0, False
        before, self._requests = self._requests, {request.rid: request for request in requests}
        if before.keys() - self._requests.keys():
            self._end_sessions()
        if self._references.tokens > MAX_RUNNING_TEXT_TOKENS // 2:  # SGLang may not report all ends
            self._references.keep(self._requests)
        for name, request in self._requests.items():
            if before.get(name) is request:
                continue
            self._texts.pop(name, None)  # a client may use an id again
            if self._is_on(name):
                self._references.read(
                    name,
                    _custom_params(request).get(REFERENCE_KEY),
                    text_encoder(getattr(request, "tokenizer", None)),
                    templates=_templates(request) or None,
                    tenant=self._tenant(request) or "",
                )
        ended = self._ended_requests.ended(self._requests) if self._batch.grows else []
        for name, request in ended:
            parameters = _custom_params(request)
            joins = joined_history(
                self._tenant(request),
                parameters,
                aborted="ABORT" in type(request.finished_reason).__name__,
                undrafted=forbids_drafts(parameters),
            )
            if joins is not None:
                prompt = request.origin_input_ids_unpadded
                output = getattr(request, "output_ids_through_stop", request.output_ids)
                tokens = np.concatenate([np.array(part, np.int32) for part in (prompt, output)])
                self._batch.finish(Finished(tokens, len(prompt), name, joins))

    def batch_get(
        self,
        req_ids: Sequence[str],
        batch_tokens: Sequence[Sequence[int]],
        total_lens: Sequence[int],
    ) -> tuple[Ids, Ids]:
        """Return trees of K nodes: tokens int64[rows * K] and masks int64[rows * K * K].

        K is draft_token_num. Node 0 is the context's last token; row i of a mask marks node i and
        its ancestors; padding is token 0 under node 0. `batch_tokens`: the last tokens of each
        request.
        """
        rows = [self._text(*each) for each in zip(req_ids, batch_tokens, total_lens, strict=True)]
        draft = self._batch.chain_batch if self._chain else self._batch.draft_batch
        nodes = [self._nodes if self._is_on(name) else 0 for name in req_ids]
        asked = [self._asked(*each) for each in zip(req_ids, rows, strict=True)]
        trees = draft(rows, nodes, asked=asked)
        last = np.array([tokens[-1] if len(tokens) else 0 for tokens in batch_tokens], np.int64)
        return pack_trees(trees, last, self.draft_token_num)

    def erase_match_state(self, req_ids: Sequence[str]) -> None:
        """Forget the texts of requests, which may return."""
        for name in req_ids:
            self._texts.pop(name, None)
            self._references.drop(name)

    def reset(self) -> None:
        self._texts.clear()
        self._requests = {}
        self._references.keep(())
        self._batch.sessions.clear()

    def batch_put(self, batch_tokens: Sequence[Sequence[int]]) -> None:
        """Do nothing: requests learn from their own text, datastores are read only."""

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""

    @property
    def remaining_token_budget(self) -> int:
        return 0

    def load_external_corpus_named(self, corpus_id: str, chunks: Any) -> int:
        """Raise UsageError: corpora are datastores here."""
        raise UsageError(
            f"cannot load the corpus {corpus_id}: ngramkit drafts from datastores",
            f"Build one (ngramkit build-datastore) and name it in {CONFIG_VARIABLE}.",
        )

    def commit_external_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None: ...

    def remove_external_corpus(self, corpus_id: str) -> None: ...

    def list_external_corpora(self) -> dict[str, int]:
        return {}

    def _end_sessions(self) -> None:
        """End the sessions of requests that SGLang has released, so that none returns."""
        sessions = self._batch.sessions
        for name in sessions.names:
            if isinstance(name, weakref.ref) and name() is None:
                sessions.end(name)

    def _is_on(self, name: str) -> bool:
        return not forbids_drafts(_custom_params(self._requests.get(name)))

    def _tenant(self, request: Any) -> str | None:
        return tenant_of_request(
            self._tenants,
            _custom_params(request),
            lora=getattr(request, "lora_id", None) or None,
            salt=getattr(request, "cache_salt", None) or None,
        )

    def _asked(self, name: str, row: TokenArray) -> Asked:
        request = self._requests.get(name)
        text, unknown = self._texts[name]
        if request is None:
            return Asked(len(row), name=name, holder=text)  # its prompt is not known
        return Asked(
            max(len(request.origin_input_ids_unpadded) - unknown, 0),
            self._tenant(request) or "",
            self._references.get(name),
            name=weakref.ref(request),  # a client may use an id again
            holder=text,
        )

    def _text(self, name: str, tail: Sequence[int], total: int) -> TokenArray:
        end = np.array(tail, np.int32)
        text, skipped = self._texts.get(name, (None, 0))
        if text is None or not _append_missing(text, end, total - skipped):
            text = LiveContext(self._whole(name, end, total))
            self._texts[name] = text, total - text.length
        return text.tokens

    def _whole(self, name: str, tail: TokenArray, total: int) -> TokenArray:
        request = self._requests.get(name)
        if request is None:
            return tail
        parts = request.origin_input_ids_unpadded, request.output_ids
        text = LiveContext(np.concatenate([np.array(part, np.int32) for part in parts]))
        return text.tokens if _append_missing(text, tail, total) else tail


def _custom_params(request: Any) -> dict[str, Any]:
    custom = getattr(getattr(request, "sampling_params", None), "custom_params", None)
    return custom if isinstance(custom, dict) else {}


def _templates(request: Any) -> list[Any]:
    """Return templates of the request's tools, and of the JSON schema of its answer."""
    given = _custom_params(request).get(TEMPLATE_KEY)
    tools = given if isinstance(given, list) else [] if given is None else [given]
    schema = getattr(getattr(request, "sampling_params", None), "json_schema", None)
    if isinstance(schema, str):
        with suppress(InputError):  # such as $$ANY$$, for any JSON
            tools = [*tools, *call_templates((), parse_json(schema, "json_schema"))]
    return tools


class _Server(NamedTuple):
    config: DraftConfig  # of this replica
    tokenizer: Any = None  # if a history needs it
    vocabulary: int | None = None  # ids of the model
    first: bool = True  # this is the first rank of the first data-parallel replica
    times: PassTimes | None = None  # of its passes; None if the model's config does not show them


def _server_facts(config: DraftConfig) -> _Server:
    context = sys.modules.get("sglang.srt.runtime_context")
    if context is None:
        return _Server(config)
    models = importlib.import_module("sglang.srt.configs.model_config")
    about = models.ModelConfig.from_server_args(context.get_server_args())
    tokenizer = None
    if config.history:
        # Not from the server's arguments, which hold no defaults.
        name, model = context.get_serving().tokenizer_path, context.get_model()
        tokenizer = load_engine_tokenizer(
            name, revision=model.revision, trust_remote_code=bool(model.trust_remote_code)
        )
    parallel = context.get_parallel()
    first_here = not (parallel.tp_rank or parallel.pp_rank)
    if parallel.dp_rank:  # None without replicas
        ranks = parallel.tp_size * parallel.pp_size
        config = config_of_later_replica(config, ranks=ranks, logs=first_here)
    size = model_size(served_config(about))
    times = None if size is None else pass_times(None, size, str(context.get_device().device))
    first = first_here and not parallel.dp_rank
    return _Server(config, tokenizer, int(about.vocab_size), first, times)


def _log_crossover(times: PassTimes, nodes: int, slots: int) -> None:
    """Log from how many requests on drafts cost time: each pass verifies all their slots."""
    requests = stops_paying(times, nodes, padded=True, slots=slots)
    if requests is not None:
        LOG.info(
            "by the model's config, typical drafts of %s nodes make SGLang slower if %s or more "
            "requests run at once",
            nodes,
            requests,
        )


def _append_missing(text: LiveContext, tail: TokenArray, total: int) -> bool:
    """Append what `text` lacks of `total` tokens that end with `tail`; False if it differs."""
    new = total - text.length
    if not 0 <= new <= len(tail):
        return False
    overlap = len(tail) - new
    if overlap > text.length:
        return False
    if not np.array_equal(text.tokens[text.length - overlap :], tail[:overlap]):
        return False
    text.append(tail[overlap:])
    return True


def pack_trees(trees: Sequence[DraftTree], last: Ids, size: int) -> tuple[Ids, Ids]:
    """Return trees as `NgramCorpus.batch_get` does; `last` int64[rows], the contexts' last tokens.

    Last 5, tokens [7, 8] with parents [-1, 0], size 4: tokens [5, 7, 8, 0], mask rows 1000, 1100,
    1110, 1001.
    """
    rows = len(trees)
    tokens = np.zeros((rows, size), np.int64)
    parents = np.zeros((rows, size), np.int64)
    for row, tree in enumerate(trees):
        tokens[row, 1 : len(tree) + 1] = tree.token_ids
        parents[row, 1 : len(tree) + 1] = tree.parents + 1
    tokens[:, 0] = last
    mask = np.zeros((rows, size, size), np.int64)
    mask[:, 0, 0] = 1
    every = np.arange(rows)
    for node in range(1, size):
        mask[:, node] = mask[every, parents[:, node]]
        mask[:, node, node] = 1
    return tokens.ravel(), mask.ravel()
