"""`ngramkit.record`: a model's answers, and what it held likely at every node that was verified.

Judging a drafter that listens to the model needs the model; with this record it needs it once. What
is kept, ngramkit.formats.evidence says; `ngramkit.replay` reads it with `oracle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ngramkit.choose import DrafterChoice, asked_drafters, distinct
from ngramkit.decode.base import Verifier
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.pass_options import PassOptions
from ngramkit.decode.sampling import GREEDY
from ngramkit.decode.tops import best_and_tops
from ngramkit.drafters.base import NOTHING, Drafter, DraftTree, TokenArray
from ngramkit.errors import UsageError
from ngramkit.evaluate.bench import Bench
from ngramkit.evaluate.benchmark import NEW_TOKENS, questions_for
from ngramkit.evaluate.known import UNKNOWN, Known
from ngramkit.evaluate.questions import Question
from ngramkit.evaluate.runs import TurnRun
from ngramkit.formats.evidence import KEPT, About, EvidenceFolder
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result
from ngramkit.sources import Given, Sources
from ngramkit.templates import find_template

BUDGET = 64


@dataclass
class Recording(Result):
    """What one call added to a folder."""

    path: Path
    questions: int = 0
    answers: int = 0  # one per question, turn and drafter
    tokens: int = 0  # of the answers
    rows: int = 0  # contexts that were new
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<Recording {self.path}: {self.answers:,} answers, {self.rows:,} contexts>"


class RecordingVerifier:
    """A verifier whose every pass is added to `known`."""

    def __init__(self, verifier: Verifier, known: Known) -> None:
        self._verifier, self._known = verifier, known
        self._above = UNKNOWN  # the row of all that the model has read
        self._rows: list[int] = []  # of the last pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    @property
    def length(self) -> int:
        return self._verifier.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        logits = self._verifier.prefill(prompt)
        tops = best_and_tops(logits, KEPT)[1]
        self._above = self._known.add(UNKNOWN, int(prompt[-1]), tops.ids[0], tops.log_probs[0])
        return logits

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        logits = self._verifier.verify(root, tree)
        tops = best_and_tops(logits, KEPT)[1]
        self._rows = self._known.put(self._above, root, tree, tops.ids, tops.log_probs)
        return logits

    def keep(self, nodes: list[int]) -> None:
        self._verifier.keep(nodes)
        self._above = self._rows[nodes[-1] + 1 if nodes else 0]


def record(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | LanguageModel | None = None,
    *,
    out: str | Path,
    drafters: Sequence[str | Callable[[], Drafter]] | str = (),
    artifacts: Sources | Sequence[Given] | Given = (),
    template: str = "auto",
    max_new_tokens: int = NEW_TOKENS,
    passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
    limit: int | None = None,
    reporter: Reporter = SILENT,
) -> Recording:
    """Answers `questions` greedily, with each of `drafters` (default: blend), and adds what the
    model held likely at every verified node to the folder `out`.

    `questions`, `template` as in `bench`, `drafters` and `artifacts` as in `choose_drafter`;
    drafter `none` keeps the answers' own positions alone. `passes`: budget None is 64 draft nodes.
    Every question begins with a new drafter. `limit`: only the first questions. What the folder
    holds already is not asked again, so that an interrupted call goes on. Ctrl-C is raised.

    Raises UsageError for what makes no sense, and where `out` holds another model's record or one
    of other answers.
    """
    asked = asked_drafters(drafters)
    if passes.budget == "auto":
        raise UsageError("a record needs passes of one size", "give a budget", option="budget")
    passes.require_full_cache("a record")
    prepared = replace(passes, budget=passes.budget or BUDGET).prepare(model, reporter)
    wanted = questions_for(questions, prepared.tokenizer.record.id)[:limit]
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    given = Sources.of(artifacts).recorded()
    choices = distinct(prepared.choose(each, given, reporter) for each in asked or ("blend",))
    task, choices = prepared.task(choices, max_new_tokens, GREEDY, (), reporter)
    plan = {
        "model": task.model.name,
        "dtype": str(task.model.model.dtype).removeprefix("torch."),
        "template": form.name,
        "max_new_tokens": max_new_tokens,
    }
    folder = EvidenceFolder.at(out, plan, task.model.tokenizer.record)
    return _Recorder(Bench(task, [], wanted, form), folder).record(choices, reporter)


class _Recorder:
    """Asks `bench`'s questions and adds what comes to `folder`."""

    def __init__(self, bench: Bench, folder: EvidenceFolder) -> None:
        self._bench, self._folder = bench, folder
        told = list(folder.requests())
        self._done = {(each.about.question, each.about.drafter) for each in told}

    def record(self, choices: Sequence[DrafterChoice], reporter: Reporter) -> Recording:
        bench, found = self._bench, Recording(self._folder.path, len(self._bench.questions))
        if bench.too_long:
            reporter.note(
                f"{bench.too_long} questions are longer than the model's context: left out"
            )
        if self._done:
            reporter.note(f"going on: {len(self._done):,} answers are in {self._folder.path}")
        reporter.stage("recording", len(bench.questions) * len(choices), "answers")
        begun = time.perf_counter()
        for question in bench.questions:
            shared: dict[bytes, Known] = {}
            for choice in choices:
                if (str(question.id), self._named(choice)) not in self._done:
                    self._answer(question, choice, shared, found)
                reporter.advance(1, contexts=found.rows)
        found.seconds = time.perf_counter() - begun
        return found

    def _named(self, choice: DrafterChoice) -> str:
        return f"{choice.label}, {self._bench.task.runner.budget} nodes"

    def _answer(
        self,
        question: Question,
        choice: DrafterChoice,
        shared: dict[bytes, Known],
        found: Recording,
    ) -> None:
        """Every turn of it; added to the folder at once. `shared`: the question's rows so far."""
        task, drafter = self._bench.task, choice.load(forgetful=True)
        turns: list[TurnRun] = []
        heard: list[Known] = []
        for prompt in self._bench.conversation(question, turns):
            longest = task.request(prompt).longest
            about = About(
                str(question.id), question.category, len(turns), self._named(choice), longest
            )
            known = shared.setdefault(prompt.tobytes(), Known(about, prompt, NOTHING))
            known.about = about
            verifier = RecordingVerifier(task.open(prompt), known)
            decoded = task.complete(prompt, drafter, verifier=verifier)
            if decoded.ended_by == "interrupt":
                raise KeyboardInterrupt
            known.answer = decoded.token_ids
            turns.append(self._bench.turn_run(decoded))
            heard.append(known)
            found.tokens += len(decoded.token_ids)
        self._folder.add([known.unsaved() for known in heard])
        for known in heard:
            found.answers += 1
            found.rows += len(known) - known.saved
            known.saved = len(known)
