"""Drafters against each other and against none, on a model, question by question.

All contestants answer a question before any sees the next, in an order that rotates, so a machine
that drifts favours none. A drafter lives through the whole benchmark: those that learn from past
requests do. When a benchmark goes on after an interruption, they are told again what was written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngramkit.decode.prompt import chat_ids
from ngramkit.decode.result import Decoded
from ngramkit.decode.task import WARM_UP, Task, warm_up
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.errors import InputError
from ngramkit.evaluate.contestants import BASELINE, NOBODY, Contestant
from ngramkit.evaluate.questions import Question
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.runs import Run, Runs, TurnRun
from ngramkit.progress import SILENT, Reporter
from ngramkit.templates import Message, Template


class Bench:
    """`task` says how every answer is written, `template` turns a conversation into text.

    Sampling gets a seed per question, the same for every contestant. Questions whose first turn
    leaves no room in the model's context are left out; raises InputError where that leaves none.
    """

    def __init__(
        self,
        task: Task,
        contestants: Sequence[Contestant],
        questions: Sequence[Question],
        template: Template,
    ) -> None:
        self.contestants = [NOBODY, *contestants]
        self.task = task
        self.model = task.model
        self.template = template
        self.questions = [q for q in questions if self._fits(q)]
        self.too_long = len(questions) - len(self.questions)
        if not self.questions:
            raise InputError(
                f"every question is longer than the context of {self.model.name}",
                f"{self.model.context} tokens; use another model or other questions",
            )

    def run(self, runs: Runs, reporter: Reporter = SILENT) -> None:
        """Answers what `runs` does not hold yet, and adds it there. Ctrl-C is raised."""
        reporter.stage("answers", len(self.questions) * len(self.contestants), "answers")
        drafters = {c.name: c.make(True) for c in self.contestants}
        if any((c.name, str(q.id)) not in runs.found for c, q in self._pairs()):
            first = self._first_prompt(self.questions[0])
            for contestant in self.contestants:
                self._warm_up(contestant, first)
        for index, question in enumerate(self.questions):
            for contestant in self._rotated(index):
                known = runs.found.get((contestant.name, str(question.id)))
                drafter = drafters[contestant.name]
                if known is None:
                    runs.add(self._answer(contestant, drafter, index, question))
                else:
                    self._tell(drafter, question, known)
                reporter.advance(1, **running(runs, self.contestants))

    def records(self, runs: Runs, drafter: str) -> list[Record]:
        """What was written with `drafter`, to be replayed with others."""
        found = []
        for question in self.questions:
            run = runs.found[drafter, str(question.id)]
            turns = [
                Turn(prompt, np.array(turn.token_ids, np.int32))
                for prompt, turn in zip(self._prompts(question, run), run.turns, strict=False)
            ]
            found.append(Record(str(question.id), question.category, turns))
        return found

    def _pairs(self) -> Iterator[tuple[Contestant, Question]]:
        return ((c, q) for q in self.questions for c in self.contestants)

    def _rotated(self, index: int) -> list[Contestant]:
        first = index % len(self.contestants)
        return self.contestants[first:] + self.contestants[:first]

    def _warm_up(self, contestant: Contestant, prompt: TokenArray) -> None:
        if contestant.answer is None:
            warm_up(contestant.task(self.task), prompt, contestant.make(False))
        else:
            contestant.answer(replace(self.task, max_new_tokens=WARM_UP), prompt)

    def _answer(
        self, contestant: Contestant, drafter: Drafter, index: int, question: Question
    ) -> Run:
        turns: list[TurnRun] = []
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0
        task = contestant.task(self.task.numbered(index))
        for prompt in self.conversation(question, turns):
            if contestant.answer is None:
                decoded = task.complete(prompt, drafter)
            else:
                decoded = contestant.answer(task, prompt)
            if decoded.ended_by == "interrupt":
                raise KeyboardInterrupt
            turns.append(self.turn_run(decoded))
        return Run(contestant.name, question.id, question.category, turns, load)

    def conversation(self, question: Question, turns: list[TurnRun]) -> Iterator[TokenArray]:
        """Every turn's prompt; ends early where the model's context is full.

        `turns` are the answers so far: they grow while this goes on.
        """
        messages: list[Message] = []
        for number, text in enumerate(question.turns):
            if number:
                messages.append(Message("assistant", turns[number - 1].text))
            messages.append(Message("user", text))
            prompt = self._prompt(messages)
            if number and self.model.context is not None and len(prompt) >= self.model.context:
                return
            yield prompt

    def _prompt(self, messages: Sequence[Message]) -> TokenArray:
        return chat_ids(self.model.tokenizer, self.template, messages)

    def _prompts(self, question: Question, run: Run) -> list[TokenArray]:
        return list(self.conversation(question, run.turns))[: len(run.turns)]

    def _first_prompt(self, question: Question) -> TokenArray:
        return next(self.conversation(question, []))

    def _fits(self, question: Question) -> bool:
        room = self.model.context
        return room is None or len(self._first_prompt(question)) < room - 1

    def turn_run(self, decoded: Decoded) -> TurnRun:
        """What a request wrote, and its figures."""
        written = decoded.token_ids.tolist()
        text = self.model.tokenizer.backend.decode(written, skip_special_tokens=True)
        return TurnRun(
            text=text if self.template.name == "none" else text.strip(),
            token_ids=written,
            tokens_per_pass=tokens_per_pass(decoded),
            seconds=decoded.seconds,
            prefill_seconds=decoded.prefill_seconds,
            draft_seconds=decoded.draft_seconds,
            verify_seconds=decoded.verify_seconds,
        )

    def _tell(self, drafter: Drafter, question: Question, run: Run) -> None:
        """A drafter that learns from finished requests learns from this one."""
        for prompt, turn in zip(self._prompts(question, run), run.turns, strict=False):
            drafter.start(prompt)
            drafter.accept(np.array(turn.token_ids, np.int32))
            drafter.finish()


def tokens_per_pass(decoded: Decoded) -> list[int]:
    """As Spec-Bench counts: accepted draft tokens and the model's own; the mean is tokens/step.

    An end inside an accepted path leaves the last pass without the model's own token.
    """
    lengths = [accepted + 1 for accepted in decoded.accepted_per_pass]
    if lengths:
        lengths[-1] = len(decoded.token_ids) - 1 - sum(lengths[:-1])
    return lengths


def running(runs: Runs, contestants: Sequence[Contestant]) -> Mapping[str, Any]:
    """tokens/step and speed-up so far of every drafter, over the questions it shares with none."""
    shown: dict[str, Any] = {}
    for contestant in contestants[1:]:
        mine = [run for run in runs.found.values() if run.drafter == contestant.name]
        pairs = [(run, runs.found.get((BASELINE, run.key[1]))) for run in mine]
        both = [(run, base) for run, base in pairs if base is not None]
        passes = sum(run.passes for run, _ in both)
        if passes:
            steps = sum(run.tokens for run, _ in both) / passes
            speedup = sum(base.seconds for _, base in both) / sum(run.seconds for run, _ in both)
            shown[f"tokens/step {contestant.name}"] = round(steps, 2)
            shown[f"x {contestant.name}"] = round(speedup, 2)
    return shown
