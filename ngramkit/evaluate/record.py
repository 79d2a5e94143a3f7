"""`ngramkit.record`: a model's answers, and what it held likely at every node that was verified.

Judging a drafter that listens to the model needs the model; with this record it needs it once. What
is kept, ngramkit.formats.evidence says; `ngramkit.replay` reads it with `oracle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngramkit.choose import DrafterChoice, asked_drafters, distinct
from ngramkit.corpus.chat import find_template
from ngramkit.decode.accept import best_and_tops
from ngramkit.decode.base import ResumableVerifier, Verifier
from ngramkit.decode.load import DTYPES, LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.session import Session, load, prepare
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import NOTHING, Drafter, DraftTree, TokenArray, common_beginning
from ngramkit.drafters.sources import Given, Sources
from ngramkit.errors import UsageError
from ngramkit.evaluate.bench import NEW_TOKENS, Bench, questions_for
from ngramkit.evaluate.oracle import (
    UNKNOWN,
    Branches,
    Forest,
    Known,
    Likeliest,
    Model,
    Oracle,
    Witness,
    by_place,
    in_parts,
)
from ngramkit.evaluate.records import Question, Record, Turn
from ngramkit.evaluate.runs import TurnRun
from ngramkit.evaluate.simulation import Tally, drafts_of
from ngramkit.formats.evidence import KEPT, About, EvidenceFolder
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result

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
    passes: DecodeOptions = DecodeOptions(),  # noqa: B008 (frozen)
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
    options = replace(
        passes,
        model=model,
        budget=passes.budget or BUDGET,
        max_new_tokens=max_new_tokens,
        reporter=reporter,
    )
    prepared = prepare(options)
    wanted = questions_for(questions, prepared.tokenizer.record.id)[:limit]
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    given = Sources.of(artifacts).recorded()
    choices = distinct(prepared.choose(each, options, given) for each in asked or ("blend",))
    task, choices = prepared.session(options, choices)
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
        return f"{choice.label}, {self._bench.task.budget} nodes"

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


# A loaded model as an oracle's: asked for what is not on record, a pass at a time.

MOST_ROWS = 512  # of a pass: logits of a large vocabulary take 100 MB


class AskedModel:
    """Texts that begin alike are read once as far as they do; a draft's rows take one pass, and so
    do branches of many drafts."""

    def __init__(self, task: Session) -> None:
        self._task = task
        self._verifier: ResumableVerifier | None = None
        self._prompt = self._held = NOTHING

    def begin(self, prompt: TokenArray) -> None:
        self._prompt = prompt

    def after_prompt(self) -> Likeliest:
        with torch.inference_mode():
            self._verifier, self._held = self._task.open(self._prompt), self._prompt
            return _likeliest(self._verifier.prefill(self._prompt))

    def after_draft(self, written: TokenArray, tree: DraftTree) -> Likeliest:
        with torch.inference_mode():
            read = np.concatenate([self._prompt, written[:-1]])
            return _likeliest(self._having_read(read).verify(int(written[-1]), tree))

    def after_branches(self, written: TokenArray, branches: Branches) -> Likeliest:
        with torch.inference_mode():
            held = np.concatenate([self._prompt, written])
            if isinstance(self._having_read(held), TreeVerifier):
                parts = [self._of_branches(held, part) for part in in_parts(branches, MOST_ROWS)]
            else:
                parts = [self._one_place(written, part) for part in by_place(branches)]
        ids, log_probs = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(log_probs)

    def _of_branches(self, held: TokenArray, branches: Branches) -> Likeliest:
        verifier = self._having_read(held)
        assert isinstance(verifier, TreeVerifier)
        after = branches.after + np.int32(len(self._prompt))
        wanted = np.flatnonzero(branches.wanted)
        return _likeliest(
            verifier.verify_branches(branches.tokens, branches.parents, after, wanted)
        )

    def _one_place(self, written: TokenArray, branches: Branches) -> Likeliest:
        """Of branches that hang in one place: a draft's nodes, as any verifier knows them."""
        nothing = np.zeros(len(branches.tokens), np.float32)
        tree = DraftTree(branches.tokens, branches.parents, nothing, nothing.astype(np.uint8))
        ids, log_probs = self.after_draft(written[: branches.after[0]], tree)
        return ids[1:][branches.wanted], log_probs[1:][branches.wanted]

    def _having_read(self, tokens: TokenArray) -> ResumableVerifier:
        shared = common_beginning(self._held, tokens)
        if self._verifier is None or shared == 0:
            self._verifier = self._task.open(self._prompt)
        elif shared < self._verifier.length:
            self._verifier.rewind(shared)
        if self._verifier.length < len(tokens):
            self._verifier.prefill(tokens)
        self._held = tokens
        return self._verifier


def _likeliest(logits: torch.Tensor) -> Likeliest:
    tops = best_and_tops(logits, KEPT)[1]
    return tops.ids, tops.log_probs


def asked_model(
    folder: EvidenceFolder, model: str | LanguageModel, reporter: Reporter
) -> AskedModel:
    """The model that `folder` was recorded of, loaded as it was then.

    Raises UsageError where it is another, or one whose passes verify no trees.
    """
    dtype = folder.plan.get("dtype")
    options = DecodeOptions(
        model,
        budget=BUDGET,
        dtype=dtype if dtype in DTYPES else "auto",
        max_new_tokens=folder.plan.get("max_new_tokens", 1),
        reporter=reporter,
    )
    loaded = load(options)
    named = folder.plan.get("model")
    if loaded.name != named:
        raise UsageError(
            f"{folder.path} was recorded of {named!s:.80}, not of {loaded.name}",
            f"give model={named!s:.80}, or none",
            option="model",
        )
    folder.tokenizer.require(loaded.tokenizer.record, str(folder.path))
    session = Session.settle(loaded, options)
    if session.verify == "chain":
        raise UsageError(f"{loaded.name} verifies no trees", "leave out model", option="model")
    return AskedModel(session)


# A model asked for all that several drafters will have it verify, in few large passes.
#
# A drafter that is told nothing for want of a row drafts otherwise from there on, so nothing can
# be asked ahead of the drafts. But drafters do not wait for one another: each goes on until a row
# is missing, what all of them lack then is one pass, and so on. Contexts are asked once, and only
# nodes beside the answer are read: the answer itself is held.


@dataclass
class _Replay:
    """One drafter at one budget: `lacking` is the draft that it waits with, None when done."""

    drafter: Drafter
    budget: int
    lacking: tuple[int, DraftTree, list[int]] | None = None

    def begin(self, turn: Turn, oracle: Oracle) -> None:
        self._witness = oracle.witness(turn)
        self._drafts = drafts_of(self.drafter, turn, self.budget, Tally(), None, self._witness)

    def go_on(self) -> None:
        self.lacking = None
        for tree in self._drafts:
            self.lacking = self._witness.missing(tree)
            if self.lacking is not None:
                return


def ask(
    oracle: Oracle,
    records: Sequence[Record],
    makers: Sequence[Callable[[], Drafter]],
    budgets: Sequence[int],
) -> Iterator[int]:
    """Asks `oracle.model` for what is not on record of replays of `records`, with a new drafter of
    each of `makers` at each of `budgets`; the rows added, record by record."""
    model = oracle.model
    if model is None:
        raise ValueError("the oracle has no model to ask")
    for record in records:
        made = [(make(), budget) for make in makers for budget in budgets]
        listening = [each for each in made if getattr(each[0], "wants_evidence", False)]
        replays = [_Replay(drafter, budget) for drafter, budget in listening]
        yield sum(_turn(oracle, model, turn, replays) for turn in record.turns if len(turn.answer))


def _turn(oracle: Oracle, model: Model, turn: Turn, replays: Sequence[_Replay]) -> int:
    known, before = oracle.witness(turn).known, oracle.rows
    spine = _spine(Witness(known, model), turn.answer)
    for each in replays:
        each.begin(turn, oracle)
        each.go_on()
    while waiting := [each for each in replays if each.lacking is not None]:
        forest = Forest(known, turn.answer, spine)
        for each in waiting:
            assert each.lacking is not None
            forest.add(*each.lacking)
        branches, order = forest.ordered()
        model.begin(known.prompt)
        forest.put(order, *model.after_branches(turn.answer, branches))
        for each in waiting:
            each.go_on()
    return oracle.rows - before


def _spine(witness: Witness, answer: TokenArray) -> list[int]:
    """The row after each number of tokens of the answer; the model is asked where there is none."""
    witness.of_prompt()
    witness.write(answer[:1])
    count = len(answer) - 1
    chain = np.arange(-1, count - 1, dtype=np.int32)
    zeros = np.zeros(count, np.float32)
    witness.of(DraftTree(answer[1:], chain, zeros, zeros.astype(np.uint8)))
    return _rows_along(witness.known, answer)


def _rows_along(known: Known, answer: TokenArray) -> list[int]:
    rows = [known.root]
    for token in answer.tolist():
        rows.append(known.child(rows[-1], token))
    return rows
