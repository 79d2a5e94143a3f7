"""The contestants of a benchmark and their answers.

Contestants answer each question in rotating order, so machine drift favours none. After an
interruption drafters relearn the earlier answers; one that learns from evidence starts over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.machine import OtherPrograms
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.chat import Template
from ngramkit.decode.pending import PendingModel
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER, QuestionRun, Runs, TurnRun
from ngramkit.evaluate.records import Question, Record, Turn, answer_text, prompts_of_conversation

if TYPE_CHECKING:
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.result import Decoded

TOO_LONG = "left out, longer than the model's context: {}"


@dataclass(frozen=True)
class Contestant:
    """One contestant of a benchmark.

    `make(remember)` creates a drafter; with False it adds no past requests. `decoder`: one with
    another budget. `answer` replaces our decoding, for transformers' own methods.
    """

    name: str
    make: Callable[[bool], Drafter] = lambda remember: NoDraft()
    learns: bool = False
    decoder: Decoder | None = None
    answer: Callable[[Decoder, TokenArray], Decoded] | None = None
    wants_evidence: bool = False

    def decoder_of(self, common: Decoder) -> Decoder:
        if self.name == BASELINE_DRAFTER:
            return common.undrafted()
        return common if self.decoder is None else replace(self.decoder, options=common.options)


class Bench:
    """A benchmark, with a seed per question."""

    def __init__(
        self,
        decoder: Decoder,
        contestants: Sequence[Contestant],
        questions: Sequence[Question],
        template: Template,
    ) -> None:
        self.contestants = [Contestant(BASELINE_DRAFTER), *contestants]
        self.decoder = decoder
        self.model = decoder.model
        self.template = template
        self.questions = questions_that_fit(questions, self.model, template)
        self.too_long = len(questions) - len(self.questions)

    def run(self, runs: Runs, reporter: Reporter = SILENT) -> None:
        reporter.stage("answers", len(self.questions) * len(self.contestants), "answers")
        for each in self.contestants:
            done = sum(runs.answered(each.name, q.id) is not None for q in self.questions)
            if each.learns and each.wants_evidence and 0 < done < len(self.questions):
                runs.forget(each.name)
                reporter.note(f"{each.name} starts over: what it learnt from is not on record")
        drafters = {c.name: c.make(True) for c in self.contestants}
        pairs = ((c, q) for q in self.questions for c in self.contestants)
        if any(runs.answered(c.name, q.id) is None for c, q in pairs):
            prompt = next(self.conversation(self.questions[0], []))
            for contestant in self.contestants:
                self._warm_up(contestant, prompt)
        for index, question in enumerate(self.questions):
            first = index % len(self.contestants)
            for contestant in self.contestants[first:] + self.contestants[:first]:
                run = runs.answered(contestant.name, question.id)
                drafter = drafters[contestant.name]
                if run is None:
                    runs.add(self._answer(contestant, drafter, index, question))
                else:
                    self._relearn(drafter, question, run)
                shown = figures_so_far(runs, self.contestants) if run is None else {}
                reporter.advance(1, **shown)

    def records(self, runs: Runs, drafter: str) -> list[Record]:
        records = []
        for question in self.questions:
            run = runs.found[drafter, str(question.id)]
            prompts = self.conversation(question, run.turns)
            turns = [
                Turn(prompt, np.array(turn.token_ids, np.int32))
                for prompt, turn in zip(prompts, run.turns, strict=False)
            ]
            records.append(Record(str(question.id), question.category, turns))
        return records

    def _warm_up(self, contestant: Contestant, prompt: TokenArray) -> None:
        from ngramkit.decode.compare import WARM_UP_TOKENS, warm_up

        if contestant.answer is None:
            warm_up(contestant.decoder_of(self.decoder), prompt, contestant.make(False))
        else:
            short = replace(self.decoder.options, max_new_tokens=WARM_UP_TOKENS)
            contestant.answer(replace(self.decoder, options=short), prompt)

    def _answer(
        self, contestant: Contestant, drafter: Drafter, index: int, question: Question
    ) -> QuestionRun:
        turns: list[TurnRun] = []
        load, others = round(os.getloadavg()[0], 2), OtherPrograms()
        decoder = contestant.decoder_of(self.decoder.with_seed_offset(index))
        for prompt in self.conversation(question, turns):
            if contestant.answer is None:
                decoded = decoder.decode(decoder.request(prompt), drafter)
            else:
                decoded = contestant.answer(decoder, prompt)
            if decoded.ended_by == "interrupt":
                raise KeyboardInterrupt
            turns.append(self.turn_run(decoded))
        return QuestionRun(
            contestant.name, question.id, question.category, turns, load, others.cores
        )

    def conversation(self, question: Question, turns: list[TurnRun]) -> Iterator[TokenArray]:
        return prompts_of_conversation(self.model, self.template, question, turns)

    def turn_run(self, decoded: Decoded) -> TurnRun:
        written = decoded.token_ids.tolist()
        return TurnRun(
            text=answer_text(self.model.tokenizer, self.template, written),
            token_ids=written,
            tokens_per_pass=tokens_as_spec_bench_counts(decoded),
            seconds=decoded.seconds,
            prefill_seconds=decoded.prefill_seconds,
            draft_seconds=decoded.draft_seconds,
            verify_seconds=decoded.verify_seconds,
            drafted=sum(decoded.nodes_per_pass),
        )

    def _relearn(self, drafter: Drafter, question: Question, run: QuestionRun) -> None:
        prompts = self.conversation(question, run.turns)
        for prompt, turn in zip(prompts, run.turns, strict=False):
            drafter.start(prompt)
            drafter.accept(np.array(turn.token_ids, np.int32))
            drafter.finish()


def tokens_as_spec_bench_counts(decoded: Decoded) -> list[int]:
    """Return each pass's tokens as Spec-Bench counts them; their mean is tokens/step."""
    lengths = [accepted + 1 for accepted in decoded.accepted_per_pass]
    if lengths:
        lengths[-1] = len(decoded.token_ids) - 1 - sum(lengths[:-1])
    return lengths


def figures_so_far(runs: Runs, contestants: Sequence[Contestant]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {}
    for contestant in contestants[1:]:
        mine = [run for run in runs.found.values() if run.drafter == contestant.name]
        pairs = [(run, runs.found.get((BASELINE_DRAFTER, run.key[1]))) for run in mine]
        shared = [(run, base) for run, base in pairs if base is not None]
        passes = sum(run.passes for run, _ in shared)
        if passes:
            steps = sum(run.tokens for run, _ in shared) / passes
            seconds = sum(run.seconds for run, _ in shared)
            speedup = sum(base.seconds for _, base in shared) / seconds
            shown[f"tokens/step {contestant.name}"] = round(steps, 2)
            shown[f"x {contestant.name}"] = round(speedup, 2)
    return shown


def questions_that_fit(
    questions: Sequence[Question], model: LanguageModel | PendingModel, template: Template
) -> list[Question]:
    fit = [
        q
        for q in questions
        if next(prompts_of_conversation(model, template, q, (), room=2), None) is not None
    ]
    if not fit:
        raise InputError(
            f"a question must be shorter than the {model.context} tokens of the context of "
            f"{model.name}, got only longer ones",
            "Use another model or other questions.",
        )
    return fit


def question_facts(questions: Sequence[Question]) -> dict[str, Any]:
    texts = json.dumps([asdict(question) for question in questions])
    return {"count": len(questions), "questions_sha256": hashlib.sha256(texts.encode()).hexdigest()}


def plan_of(bench: Bench, settings: Mapping[str, Any]) -> dict[str, Any]:
    from ngramkit.decode.generation import applied_facts
    from ngramkit.decode.load import device_facts

    return {
        **settings,
        **applied_facts(bench.model, bench.decoder.options.sampling),
        **question_facts(bench.questions),
        "budget": bench.decoder.shown_budget,
        "engine": "eager",  # so that runs of earlier versions can be continued
        **device_facts(bench.model.model),
    }
