"""`ngramkit.self_corpus`: a model's own answers as a corpus, in a jsonl file with a plan.

    answers.jsonl         {"text": ANSWER, "prompt": QUESTION, "question": ID, "turn": 0, ...}
    answers.jsonl.plan    {"plan": {"model": ..., "max_new_tokens": ..., ...}, "done": N, ...}

A batch is appended, then the plan gets the new length. Bytes beyond it are from a killed process
and are dropped, so the same call continues.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.machine import expand_home
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.untrusted import not_linked, read_json, whole_number
from ngramkit.corpus.chat import Template, find_template, require_template
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import open_pending_model
from ngramkit.decode.sampling import Sampling
from ngramkit.evaluate.bench_runs import plan_difference
from ngramkit.evaluate.records import (
    Question,
    answer_text,
    prompts_of_conversation,
    questions_for,
    require_questions,
)
from ngramkit.formats.replacing import hold_lock, replace_text, require_writable
from ngramkit.logs.files import LogFile

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel

HOW_TO_REPEAT = "Start over with force=True or another out."


@dataclass
class SelfCorpus(Result):
    """The answers so far, with those of earlier calls; repeated ones are written once."""

    path: Path
    answers: int = 0
    tokens: int = 0
    repeated: int = 0  # in this call
    left_out: int = 0
    seconds: float = 0.0  # of this call
    new_tokens: int = 0  # likewise

    def __repr__(self) -> str:
        return f"<SelfCorpus {self.path}: {self.answers:,} answers, {self.tokens:,} tokens>"


def self_corpus(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | Path | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    template: str = "auto",
    max_new_tokens: int = 256,
    batch: int = 16,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> SelfCorpus:
    """Ask `model` every turn of all `questions`, `batch` at a time, and write its answers.

    `questions`, `template`: as in `bench`. Others: as in `DecodeOptions`. `out`: a jsonl file
    (default: self-corpus/QUESTIONS-MODEL.jsonl). The same call continues after an interruption;
    `force` starts over.

    Raises UsageError for options that cannot work, and if `out` holds anything else.
    """
    max_new_tokens, batch = check_types(int, max_new_tokens=max_new_tokens, batch=batch)
    require_between("max_new_tokens", max_new_tokens, 1)
    require_between("batch", batch, 1, 4096)
    check_types(bool, force=force)
    require_template(template)
    require_questions(questions)
    if out is not None:
        out = expand_home(out)
        require_own(out)
        require_writable(out)
    options = DecodeOptions(
        model, reporter=reporter, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        device=device, dtype=dtype, device_map=device_map, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    prepared = open_pending_model(options)
    questions = questions_for(questions, prepared.tokenizer.record.id, reporter=reporter)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    loaded = prepared.load()
    from ngramkit.decode.generation import (
        applied_facts,
        refuse_unsupported_settings,
        report_applied,
    )

    refuse_unsupported_settings(loaded)
    report_applied(loaded, options.sampling, reporter)
    asked_texts = json.dumps([[question.id, question.turns] for question in questions])
    plan = {
        "model": loaded.name,
        "tokenizer": loaded.tokenizer.record.fingerprint,
        "template": hashlib.sha256(form.source.encode()).hexdigest(),
        "max_new_tokens": max_new_tokens,
        "batch": batch,
        "sampling": asdict(options.sampling),
        "dtype": str(loaded.model.dtype),
        "questions": hashlib.sha256(asked_texts.encode()).hexdigest(),
        **applied_facts(loaded, options.sampling),
    }
    name = f"{questions.name}-{Path(loaded.name).name}.jsonl"
    path = Path(out or Path("self-corpus") / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(path.with_name(f"{path.name}.lock"), busy=f"another process writes {path}"):
        answers = AnswerFile(path, plan, force=force)
        if answers.done:
            reporter.note(
                f"resuming: {answers.done:,} of {len(questions):,} questions are answered"
            )
        reporter.stage("answering", len(questions), "questions")
        reporter.advance(answers.done)
        begun = time.perf_counter()
        try:
            for first in range(answers.done, len(questions), batch):
                asked = questions[first : first + batch]
                written = answer_batch(
                    loaded,
                    form,
                    asked,
                    first // batch,
                    max_new_tokens=max_new_tokens,
                    sampling=options.sampling,
                )
                answers.add(
                    chain.from_iterable(written),
                    questions=len(asked),
                    left_out=sum(
                        len(own) < len(question.turns)
                        for own, question in zip(written, asked, strict=True)
                    ),
                )
                reporter.advance(len(asked), tokens=answers.result.tokens)
        except KeyboardInterrupt as stop:
            done = f"{answers.done:,} of {len(questions):,} questions"
            stop.add_note(f"kept in {path}: {done}; the same command goes on there")
            raise
        answers.result.seconds = time.perf_counter() - begun
    return answers.result


@dataclass(frozen=True)
class WrittenAnswer:
    text: str
    prompt: str  # the user's last message
    question: int | str
    turn: int
    tokens: int
    ended_by: str  # eos or length


def answer_batch(
    model: LanguageModel,
    template: Template,
    questions: Sequence[Question],
    index: int,
    *,
    max_new_tokens: int,
    sampling: Sampling,
) -> list[list[WrittenAnswer]]:
    """Ask every turn of the `index`-th batch together; return each question's answers."""
    from ngramkit.decode.plain_batch import with_own_seed, write_batch

    answers: list[list[WrittenAnswer]] = [[] for _ in questions]
    talks = [
        (
            question,
            own,
            prompts_of_conversation(model, template, question, own, room=max_new_tokens),
        )
        for question, own in zip(questions, answers, strict=True)
    ]
    for turn in count():
        asked = [(q, own, prompt) for q, own, prompts in talks for prompt in islice(prompts, 1)]
        if not asked:
            break
        written = write_batch(
            model,
            [prompt for *_, prompt in asked],
            max_new_tokens=max_new_tokens,
            sampling=with_own_seed(sampling, (index << 8) + turn),
        )
        for (question, own, _), ids in zip(asked, written, strict=True):
            text = answer_text(model.tokenizer, template, ids.tolist())
            ended_by = "eos" if int(ids[-1]) in model.eos else "length"
            own.append(
                WrittenAnswer(text, question.turns[turn], question.id, turn, len(ids), ended_by)
            )
    return answers


def plan_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.plan")


def require_own(path: Path) -> None:
    if path.exists() and not plan_path(path).exists():
        raise UsageError(
            f"cannot replace {path}: it has no plan of a self-corpus",
            "Choose another out.",
            option="out",
        )


class AnswerFile:
    """The answers on disk and their progress.

    Raises UsageError for another plan or a foreign file, InputError for damage.
    """

    def __init__(self, path: Path, plan: dict[str, Any], *, force: bool) -> None:
        self.result = SelfCorpus(path)
        self.done = 0  # questions
        self._path, self._plan_path = path, plan_path(path)
        self._plan: dict[str, Any] = json.loads(json.dumps(plan))  # as read back from JSON
        self._digests: set[str] = set()
        state = self._read_plan()
        if state is not None and not force:
            self._read(state)
            return
        self._save(0)
        with open(path, "wb", opener=not_linked):
            pass

    def add(self, answers: Iterable[WrittenAnswer], *, questions: int, left_out: int) -> None:
        lines = []
        for answer in answers:
            self.result.new_tokens += answer.tokens
            if answer.text.strip() and self._is_new(answer.text):
                lines.append(json.dumps(asdict(answer)) + "\n")
                self._count(answer.tokens)
            else:
                self.result.repeated += 1
        with open(self._path, "ab", opener=not_linked) as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self.done += questions
        self.result.left_out += left_out
        self._save(size)

    def _save(self, size: int) -> None:
        state = {"done": self.done, "bytes": size, "left_out": self.result.left_out}
        replace_text(self._plan_path, json.dumps({"plan": self._plan, **state}, indent=1) + "\n")

    def _read_plan(self) -> Any:
        if self._plan_path.exists():
            return read_json(self._plan_path, error=InputError, hint=HOW_TO_REPEAT) or {}
        require_own(self._path)
        return None

    def _read(self, state: Any) -> None:
        state = state if isinstance(state, dict) else {}
        if state.get("plan") != self._plan:
            other = plan_difference(state.get("plan"), self._plan)
            raise UsageError(
                f"cannot continue {self._path}, other answers: {other}",
                "Choose another out, or replace it with force=True.",
                option=("out", "force"),
            )
        there = self._path.stat().st_size if self._path.exists() else 0
        done, size, left_out = (state.get(name) for name in ("done", "bytes", "left_out"))
        if not all(map(whole_number, (done, size, left_out))) or there < size:
            raise self._damaged(f"{self._path} is shorter than it was")
        if there > size:
            os.truncate(self._path, size)
        self.done, self.result.left_out = done, left_out
        for where, body in LogFile(self._path).objects() if size else ():
            text, tokens = body.get("text"), body.get("tokens")
            if not isinstance(text, str) or not isinstance(tokens, int):
                raise self._damaged(f"{where}: no answer")
            self._is_new(text)
            self._count(tokens)

    def _damaged(self, what: str) -> InputError:
        return InputError(what, HOW_TO_REPEAT, option=("out", "force"))

    def _is_new(self, text: str) -> bool:
        key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        new = key not in self._digests
        self._digests.add(key)
        return new

    def _count(self, tokens: int) -> None:
        self.result.answers += 1
        self.result.tokens += tokens
