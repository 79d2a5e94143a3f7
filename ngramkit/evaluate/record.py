"""`ngramkit.record`: a model's answers and its top-k at every verified node, for replays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted
from ngramkit.choose import DrafterChoice, choose_from_sources, drafts_private_texts
from ngramkit.corpus.chat import find_template, require_template
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import open_pending_model
from ngramkit.decode.placement import DTYPES
from ngramkit.decode.sampling import best_and_tops
from ngramkit.drafters.asked import asked_drafters
from ngramkit.drafters.base import NO_TOKENS, Drafter, DraftTree, TokenArray, common_beginning
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DEFAULT_DRAFTER
from ngramkit.drafters.sources import Given, Sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.evaluate.bench import DEFAULT_NEW_TOKENS
from ngramkit.evaluate.bench_contest import TOO_LONG, Bench
from ngramkit.evaluate.bench_runs import TurnRun
from ngramkit.evaluate.recorded_evidence import NOT_RECORDED, RequestRows, TopK, add_rows
from ngramkit.evaluate.records import Question, questions_for, require_questions
from ngramkit.formats.evidence import KEPT_TOKENS, About, EvidenceFolder

if TYPE_CHECKING:
    import torch

    from ngramkit.decode.base import ResumableVerifier, Verifier
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.options import Budget

RECORDED_BUDGET = 64


@dataclass
class Recording(Result):
    """The additions of one call to a folder."""

    path: Path
    questions: int = 0
    answers: int = 0  # one per question, turn and drafter
    tokens: int = 0  # of the answers
    rows: int = 0  # new contexts
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<Recording {self.path}: {self.answers:,} answers, {self.rows:,} contexts>"


def record(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | Path | LanguageModel | None = None,
    *,
    out: str | Path,
    drafters: Sequence[str | Callable[[], Drafter]] | str = (),
    artifacts: Sources | Sequence[Given] | Given = (),
    template: str = "auto",
    max_new_tokens: int = DEFAULT_NEW_TOKENS,
    limit: int | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    budget: Budget = RECORDED_BUDGET,
    verify: str | None = None,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> Recording:
    """Answer `questions` greedily and add the model's top-k at every verified node to `out`.

    `questions`, `template`, `limit`: as in `bench`. `drafters` (default: blend): as in
    `choose_drafter`, each new for every question; none records only the answers' positions. Others:
    as in `DecodeOptions`. Repeated calls skip recorded questions.

    Raises UsageError for options that cannot work, and if `out` is the record of another model.
    """
    asked = asked_drafters(drafters, reporter) or [DrafterSpec.parse(DEFAULT_DRAFTER)]
    if budget == "auto":
        raise UsageError("budget must be a number of nodes, got 'auto'", option="budget")
    require_template(template)
    require_questions(questions)
    EvidenceFolder.require_room(out)
    options = DecodeOptions(
        model,
        artifacts=artifacts,
        max_new_tokens=max_new_tokens,
        reporter=reporter, budget=RECORDED_BUDGET if budget is None else budget, verify=verify,
        datastores=datastores, frozen_table=frozen_table, bigram=bigram, unigram=unigram,
        history=history, history_tokens=history_tokens, store=store,
        device=device, dtype=dtype, device_map=device_map, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    prepared = open_pending_model(options)
    wanted = questions_for(questions, prepared.tokenizer.record.id, limit, reporter)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    given = options.sources().recorded()
    choices = [
        choose_from_sources(each, prepared.tokenizer.record, given, reporter, prepared.load)
        for each in asked
    ]
    decoder, choices = prepared.decoder(choices)
    from ngramkit.decode.generation import applied_facts

    plan = {
        "model": decoder.model.name,
        "dtype": str(decoder.model.model.dtype).removeprefix("torch."),
        "template": form.name,
        "max_new_tokens": options.max_new_tokens,
        **applied_facts(decoder.model, options.sampling),
    }
    folder = EvidenceFolder.at(
        out, plan, decoder.model.tokenizer.record, private=drafts_private_texts(given, choices)
    )
    return _record_all(Bench(decoder, [], wanted, form), folder, choices, reporter)


class RecordingVerifier:
    """A verifier that adds every pass to `request`."""

    def __init__(self, verifier: Verifier, request: RequestRows) -> None:
        self._verifier, self._request = verifier, request
        self._read = NOT_RECORDED  # row of the context that the model has read
        self._rows: list[int] = []  # of the last pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    @property
    def length(self) -> int:
        return self._verifier.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        logits = self._verifier.prefill(prompt)
        ids, log_probs = _top_k(logits)
        self._read = self._request.add(NOT_RECORDED, int(prompt[-1]), ids[0], log_probs[0])
        return logits

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        logits = self._verifier.verify(root, tree)
        self._rows = self._request.add_pass(self._read, root, tree, *_top_k(logits))
        return logits

    def keep(self, nodes: list[int]) -> None:
        self._verifier.keep(nodes)
        self._read = self._rows[nodes[-1] + 1 if nodes else 0]


def _record_all(
    bench: Bench, folder: EvidenceFolder, choices: Sequence[DrafterChoice], reporter: Reporter
) -> Recording:
    result = Recording(folder.path, len(bench.questions))
    kept: set[tuple[str, str, int]] = set()  # once each: replays add contexts to them
    asked: dict[str, bytes] = {}  # the first prompt of each recorded question
    for each in folder.requests():
        kept.add((each.about.question, each.about.drafter, each.about.turn))
        if each.about.turn == 0:
            asked[each.about.question] = each.prompt.tobytes()
    for question in bench.questions:
        prompt = next(bench.conversation(question, [])).tobytes()
        if asked.get(str(question.id), prompt) != prompt:
            raise UsageError(
                f"cannot add to {folder.path}: its question {question.id} has another text",
                "Choose another out.",
                option="out",
            )
    done = {(question, drafter) for question, drafter, _ in kept}
    if bench.too_long:
        reporter.note(TOO_LONG.format(counted(bench.too_long, "question")))
    if kept:
        reporter.note(f"resuming: {counted(len(kept), 'answer')} in {folder.path}")
    reporter.stage("recording", len(bench.questions) * len(choices), "answers")
    begun = time.perf_counter()
    try:
        for question in bench.questions:
            requests: dict[bytes, RequestRows] = {}  # of this question, by prompt
            for choice in choices:
                # Artifacts by their builds: they may be moved.
                builds = [each.manifest.build[:12] for each in choice.opened]
                over = ", ".join([*builds, *choice.histories])
                name = f"{choice.label}, {bench.decoder.budget} nodes{over and f', over {over}'}"
                if (str(question.id), name) not in done:
                    answered = _record_answer(
                        bench, question, choice.load(forgetful=True), name, requests
                    )
                    result.tokens += sum(len(request.answer) for request in answered)
                    result.rows += add_rows(answered, folder)
                    result.answers += len(answered)
                reporter.advance(1, contexts=result.rows)
    except KeyboardInterrupt as stop:
        answers = counted(result.answers, "answer")
        stop.add_note(f"kept in {folder.path}: {answers} more; the same command goes on there")
        raise
    result.seconds = time.perf_counter() - begun
    return result


def _record_answer(
    bench: Bench,
    question: Question,
    drafter: Drafter,
    name: str,
    requests: dict[bytes, RequestRows],
) -> list[RequestRows]:
    turns: list[TurnRun] = []
    answered: list[RequestRows] = []
    for prompt in bench.conversation(question, turns):
        asked = bench.decoder.request(prompt)
        about = About(str(question.id), question.category, len(turns), name, asked.longest)
        request = requests.setdefault(prompt.tobytes(), RequestRows(about, prompt, NO_TOKENS))
        request.about = about
        verifier = RecordingVerifier(bench.decoder.open(prompt), request)
        decoded = bench.decoder.decode(asked, drafter, verifier=verifier)
        if decoded.ended_by == "interrupt":
            raise KeyboardInterrupt
        request.answer = decoded.token_ids
        turns.append(bench.turn_run(decoded))
        answered.append(request)
    return answered


class VerifyingModel:
    """A model that verifies missing contexts; it reads common beginnings once."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._verifier: ResumableVerifier | None = None
        self._prompt = self._tokens = NO_TOKENS  # of the open request; tokens its verifier has read

    def after_prompt(self, prompt: TokenArray) -> TopK:
        from ngramkit.decode.passes import model_passes

        with model_passes():
            self._verifier = self._decoder.open(prompt)
            self._prompt = self._tokens = prompt
            return _top_k(self._verifier.prefill(prompt))

    def after_draft(self, prompt: TokenArray, written: TokenArray, tree: DraftTree) -> TopK:
        from ngramkit.decode.passes import model_passes

        tokens = np.concatenate([prompt, written[:-1]])
        with model_passes():
            return _top_k(self._having_read(prompt, tokens).verify(int(written[-1]), tree))

    def _having_read(self, prompt: TokenArray, tokens: TokenArray) -> ResumableVerifier:
        if self._verifier is None or not np.array_equal(prompt, self._prompt):
            self._verifier, self._prompt = self._decoder.open(prompt), prompt
        else:
            shared = common_beginning(self._tokens, tokens)
            if shared < self._verifier.length:
                self._verifier.rewind(shared)
        if self._verifier.length < len(tokens):
            self._verifier.prefill(tokens)
        self._tokens = tokens
        return self._verifier


def verifying_model(folder: EvidenceFolder, model: Any, reporter: Reporter) -> VerifyingModel:
    """Load a record's model, a name or a LanguageModel.

    Raises UsageError for another one, or without tree verification.
    """
    dtype = folder.plan.get("dtype")
    options = DecodeOptions(
        model,
        budget=RECORDED_BUDGET,
        dtype=dtype if dtype in DTYPES else "auto",
        max_new_tokens=folder.plan.get("max_new_tokens", 1),
        reporter=reporter,
    )
    loaded = open_pending_model(options).load()
    recorded = folder.plan.get("model")
    if loaded.name != recorded:
        raise UsageError(
            f"model must be that of {folder.path}, {recorded!s:.80}, got {loaded.name}",
            f"Give model={recorded!s:.80}, or leave it out.",
            option="model",
        )
    folder.tokenizer.require(loaded.tokenizer.record, str(folder.path))
    from ngramkit.decode.decoder import Decoder

    decoder = Decoder.settle(loaded, options)
    if decoder.verify == "chain":
        raise UsageError(
            f"cannot use {loaded.name}: it verifies no trees", "Leave out model.", option="model"
        )
    return VerifyingModel(decoder)


def _top_k(logits: torch.Tensor) -> TopK:
    tops = best_and_tops(logits, KEPT_TOKENS)[1]
    return tops.ids, tops.log_probs
