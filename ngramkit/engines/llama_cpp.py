"""Adapter for llama-cpp-python: `Llama(draft_model=Drafter(), logits_all=True)` (read in 0.3.36).

The engine passes all token ids so far, int32[n], takes one chain, and reports no start or end.

    from ngramkit.engines.llama_cpp import Drafter
    drafter = Drafter(vocabulary=49152)
    llama = Llama("model.gguf", draft_model=drafter, logits_all=True)
    drafter.check(llama)
"""

from __future__ import annotations

import importlib
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.budget.model_files import read_size
from ngramkit.budget.model_size import ModelSize, gguf_size
from ngramkit.budget.pass_timer import Clock, PassTimer
from ngramkit.budget.pass_times import pass_times
from ngramkit.drafters.base import DraftTree, Source
from ngramkit.drafters.references import reference_texts, require_references
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import (
    CONFIG_VARIABLE,
    DraftConfig,
    config_for,
    existing_history,
)
from ngramkit.engines.growing_history import FINISH_PRIORITY, Finished
from ngramkit.engines.llama_grammar import LlamaGrammar
from ngramkit.engines.request_parameters import check_switch, is_off
from ngramkit.engines.request_texts import Encode, given_texts, token_ids

# Cost of a drafted token in passes, if they are not timed: a pass of two tokens took 1.6
# passes of one, of three 2.0 (SmolLM2-135M, Q4_1, one thread).
UNTIMED_TOKEN_COST = 0.6
# Probability of a token that a grammar forces: others may spell the same text.
FORCED_PROBABILITY = 0.9
WRITTEN_TOKENS = 8  # last tokens of a text that a grammar reads
DEFAULT_DRAFT_TOKENS = 8
MAX_TEXTS = 8  # tracked at once


class Drafter:
    """A drafter for `Llama(draft_model=)`, of one or several. `enabled = False` switches it off.

    `config`: in place of NGRAMKIT_DRAFT; without either, blend over the text itself. `vocabulary`:
    `llama.n_vocab()`; not needed with artifacts if `check` is called before the first text.
    `clock`: seconds by which passes are timed; it must not count other work between passes.

    Raises as `DraftConfig.read` and `engines.source.open_source`.
    """

    def __init__(
        self,
        config: DraftConfig | None = None,
        *,
        vocabulary: int | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        config = config_for("llama-cpp", "chains in llama-cpp-python", config)
        if config.sessions is None:
            config = replace(config, sessions=MAX_TEXTS)
        if not _has_artifacts(config):
            hint = f"Give vocabulary=llama.n_vocab(), or name artifacts in {CONFIG_VARIABLE}."
            vocabulary = config.require_vocabulary(vocabulary, hint)
        given = config.min_probability, config.pass_cost
        self.timed = given == (None, None) and config.clock is not False
        fixed = config.clock is False and config.pass_cost is None
        self._prices = not fixed and given == (None, None)  # by formula
        self._batch = BatchDrafter.open(
            config,
            vocabulary=vocabulary,
            cost=UNTIMED_TOKEN_COST if fixed else pass_times(config.pass_cost, device="cpu"),
            clock=clock if self.timed else None,
        )
        self.history, self.statistics = self._batch.history, self._batch.statistics
        self._vocabulary = config.vocabulary if vocabulary is None else vocabulary
        self._model_ids = self._vocabulary  # ids of the models, once they are known
        self._config, self._clock = config, clock
        self._length = config.tokens or DEFAULT_DRAFT_TOKENS
        self.enabled = True
        self._checked = False
        self._asked = Asked(None)  # what the current request gives
        self._encode: Encode | None = None
        self._lock = Lock()
        self._texts: list[_Text] = []
        self._numbers = count()  # of requests
        self._running: _Text | None = None  # text of the last call
        self._grammars: weakref.WeakKeyDictionary[Any, LlamaGrammar] = weakref.WeakKeyDictionary()
        if self._batch.grows:
            Finalize(self, _finish_all, (self._batch, self._texts), exitpriority=FINISH_PRIORITY)

    def __call__(self, input_ids: npt.NDArray[np.intc], /, **options: Any) -> npt.NDArray[np.intc]:
        """Return intc[k], tokens that may follow `input_ids`, intc[n]."""
        if not self.enabled or len(input_ids) == 0:
            return np.empty(0, np.intc)
        with self._lock:
            if not self._checked:
                if self._config.named:
                    hint = "Call drafter.check(llama) first, or give vocabulary=llama.n_vocab()."
                    self._config.require_vocabulary(self._vocabulary, hint)
                self._batch.require_same_encoding(None)
                self._checked = True
            text = self._text_of(input_ids)
            self._finish_unless_continued(text, input_ids)
            grammar = self._grammar_of(input_ids.base)
            keep = None if grammar is None else partial(_apply_grammar, grammar, input_ids)
            if self.timed:
                self._batch.timer = text.timer
            asked = self._asked._replace(name=text.name, holder=text)
            (chain,) = self._batch.chain_batch(
                [input_ids], [self._length], keep=keep, asked=[asked]
            )
            text.drafted = len(chain)
            return chain.token_ids.astype(np.intc)

    @contextmanager
    def request(self, reference: Any = None, *, draft: Any = True) -> Iterator[None]:
        """Draft for the texts that are written inside from `reference`, or not at all.

        `reference`: a text, a list of token ids, or a list of these. `draft`: False, 0 or "off".
        Texts need `check` before. Raises UsageError for other values and for ids that the model
        does not have; ids that the artifacts do not have are not drafted.
        """
        check_switch("draft", draft)
        texts = given_texts(reference)
        if self._model_ids is not None:
            texts = [*token_ids(texts, self._encode, self._model_ids)]
        known = self._batch.source.vocabulary
        ids = token_ids(texts, self._encode, known, strict=False)
        if ids:
            require_references(DrafterSpec.parse(self._config.drafter).name)
        before = self._asked, self.enabled
        self._asked = Asked(None, references=reference_texts(ids))
        self.enabled = self.enabled and not is_off(draft)
        try:
            yield
        finally:
            self._asked, self.enabled = before

    def _text_of(self, input_ids: npt.NDArray[np.intc]) -> _Text:
        """Return the text of the Llama that holds `input_ids`, and start its clock.

        Texts without a holder are reused: a Llama that loads a state holds another array.
        """
        holder = input_ids.base if isinstance(input_ids.base, np.ndarray) else None
        by_holder = {id(text.holder()): text for text in reversed(self._texts)}
        text = by_holder.get(id(holder)) or by_holder.get(id(None))
        if text is None:
            text = _Text(OwnClock(self._clock))
            self._texts.append(text)
        text.holder = _no_callback if holder is None else weakref.ref(holder)
        if self._running is not text:
            if self._running is not None:
                self._running.clock.stop()
            text.clock.start()
            self._running = text
        return text

    def _grammar_of(self, holder: Any) -> LlamaGrammar | None:
        """Return the grammar of the running request, if it has one."""
        for llama, grammar in self._grammars.items():
            if llama.input_ids is holder and grammar.is_given:
                return grammar
        return None

    def _finish_unless_continued(self, text: _Text, input_ids: npt.NDArray[np.intc]) -> None:
        """Finish a Llama's text unless at most the draft and one token were appended to it."""
        size = len(text.ids)
        goes_on = 0 < len(input_ids) - size <= text.drafted + 1
        if not goes_on or not np.array_equal(input_ids[:size], text.ids):
            _finish_text(self._batch, text)
            self._batch.sessions.end(text.name)
            text.prompt, text.name = len(input_ids) - 1, f"text {next(self._numbers)}"
        text.ids = input_ids.copy()

    def check(self, llama: Any) -> None:
        """Compare the drafter with a Llama, and obey the grammars of its requests from then on.

        Passes cost what the Llama's model suggests from then on, unless `pass_cost` is given.
        Raises ArtifactError for an artifact of another tokenizer, UsageError if `vocabulary` is not
        the model's, or if the engine would fail within a text.
        """
        if getattr(llama, "_is_recurrent", False) or getattr(llama, "_is_hybrid", False):
            raise UsageError(
                "cannot draft for a model with recurrent layers: llama-cpp-python cannot remove "
                "rejected tokens from their state",
                "Leave draft_model out.",
                option="draft_model",
            )
        kept = len(llama.scores)
        if kept < llama.n_ctx():
            raise UsageError(
                f"cannot draft beyond {kept} tokens: this Llama keeps no more logits, "
                f"and its context is {llama.n_ctx()}",
                "Open it with logits_all=True, and with an n_ctx that is a multiple of 256.",
                option="logits_all",
            )

        known = llama.n_vocab()
        if self._vocabulary not in (None, known):
            raise UsageError(
                f"vocabulary must be {known:,}, the ids of this Llama, got {self._vocabulary:,}",
                "Give vocabulary=llama.n_vocab().",
                option="vocabulary",
            )
        self._batch.require_known_ids(known)
        self._model_ids = max(known, self._model_ids or 0)
        if self._prices:
            self._batch.budget.cost = pass_times(None, _model_size(llama), device="cpu")

        def encode(text: str) -> Any:
            return llama.tokenize(text.encode(), add_bos=False, special=True)

        self._batch.require_same_encoding(encode)
        if hasattr(llama, "tokenize"):
            self._encode = partial(_encode_text, weakref.ref(llama))  # it holds the drafter
        self._checked = True
        if hasattr(llama, "_sampler") and llama not in self._grammars:
            self._grammars[llama] = LlamaGrammar(llama, importlib.import_module("llama_cpp"))


class OwnClock:
    def __init__(self, clock: Clock) -> None:
        self._clock, self._spent = clock, 0.0
        self._since: float | None = None  # when it was started

    def __call__(self) -> float:
        return self._spent + (0.0 if self._since is None else self._clock() - self._since)

    def start(self) -> None:
        self._since = self._clock()

    def stop(self) -> None:
        self._spent, self._since = self(), None


def _no_callback() -> None: ...


def _encode_text(llama: Callable[[], Any], text: str) -> Any:
    return llama().tokenize(text.encode(), add_bos=False, special=True)


class _Text:
    def __init__(self, clock: OwnClock) -> None:
        self.clock, self.timer = clock, PassTimer(clock)
        self.holder: Callable[[], Any] = _no_callback  # the array that holds its ids
        self.name = ""  # another for each request
        self.ids = np.empty(0, np.int32)  # of the last call
        self.drafted = 0  # tokens of the last draft
        self.prompt = 0  # tokens that the model did not write


def _apply_grammar(
    grammar: LlamaGrammar, text: npt.NDArray[np.intc], chain: DraftTree
) -> DraftTree:
    forced = grammar.forced_tokens(text[-WRITTEN_TOKENS:].tolist())
    if forced and chain.token_ids[: len(forced)].tolist() != forced:
        ids = np.array(forced, np.int32)
        parents = np.arange(-1, len(ids) - 1, dtype=np.int32)
        scores = np.full(len(ids), FORCED_PROBABILITY, np.float32)
        return DraftTree(ids, parents, scores, np.full(len(ids), Source.MODEL, np.uint8))
    return chain.first(grammar.allowed_length(chain.token_ids.tolist()))


def _model_size(llama: Any) -> ModelSize | None:
    """Return the size of a Llama's model: by its file, or by its metadata if that is not there."""
    path = Path(getattr(llama, "model_path", None) or "")
    if path.is_file():
        with suppress(InputError):
            return read_size(str(path))
    return gguf_size(getattr(llama, "metadata", None) or {})


def _finish_text(batch: BatchDrafter, text: _Text) -> None:
    if len(text.ids):
        batch.finish(Finished(text.ids, text.prompt))
    text.ids = np.empty(0, np.int32)


def _finish_all(batch: BatchDrafter, texts: list[_Text]) -> None:
    for text in texts:
        _finish_text(batch, text)


def _has_artifacts(config: DraftConfig) -> bool:
    history = existing_history(config) is not None
    return bool(config.artifacts) or history or config.drafter.partition(":")[0] != DEFAULT_DRAFTER
