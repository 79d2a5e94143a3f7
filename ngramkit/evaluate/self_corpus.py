"""`ngramkit.self_corpus`: a model's own answers as a corpus.

No text is nearer to what a model will write than what it wrote: a little of it is worth as much as
many times more of anybody else's. The answers are lines of a jsonl file that every builder takes
as a corpus; beside it stands the plan, all that decides them:

    answers.jsonl         {"text": ANSWER, "prompt": QUESTION, "question": ID, "turn": 0, ...}
    answers.jsonl.plan    {"plan": {"model": ..., "max_new_tokens": ..., ...}, "done": N, ...}

Questions are asked in their order, `batch` at a time, and a batch's lines are written at once when
all of it is answered. Interrupted, the same call goes on behind the last whole batch.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ngramkit.decode.batched import seeded, write_batch
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.pass_options import PassOptions
from ngramkit.decode.prompt import chat_ids
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.drafters.base import TokenArray
from ngramkit.errors import require_between
from ngramkit.evaluate.answer_file import Answer, AnswerFile, SelfCorpus, beside
from ngramkit.evaluate.benchmark import questions_for
from ngramkit.evaluate.questions import Question
from ngramkit.formats.locks import locked
from ngramkit.progress import SILENT, Reporter
from ngramkit.templates import Message, Template, find_template


def self_corpus(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    template: str = "auto",
    max_new_tokens: int = 256,
    batch: int = 16,
    sampling: Sampling = GREEDY,
    passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
    force: bool = False,
    reporter: Reporter = SILENT,
) -> SelfCorpus:
    """Asks `model` all `questions`, every turn of them, `batch` at once, and writes its answers.

    `questions`: a file, see ngramkit.evaluate.questions; None: the embedded model's own prompts.
    `template` as in `bench`. Of `passes` the device and the dtype count. `out`: a jsonl file, by
    default self-corpus/QUESTIONS-MODEL.jsonl; begun by the same call, it is continued, `force`
    begins anew. Ctrl-C is raised.

    Raises UsageError for what makes no sense and where `out` was written by anything else.
    """
    require_between("max_new_tokens", max_new_tokens, 1)
    require_between("batch", batch, 1, 4096)
    prepared = passes.prepare(model, reporter)
    asked = questions_for(questions, prepared.tokenizer.record.id)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    loaded = prepared.load()
    plan = {
        "model": loaded.name,
        "tokenizer": loaded.tokenizer.record.fingerprint,
        "template": hashlib.sha256(form.source.encode()).hexdigest(),
        "max_new_tokens": max_new_tokens,
        "batch": batch,
        "sampling": asdict(sampling),
        "dtype": str(loaded.model.dtype),
        "questions": _digest(asked),
    }
    name = f"{asked.name}-{Path(loaded.name).name}.jsonl"
    path = Path(out or Path("self-corpus") / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(beside(path, ".lock"), busy=f"another process writes {path}"):
        answers = AnswerFile(path, plan, force=force)
        writer = _Writer(loaded, form, max_new_tokens, sampling)
        if answers.done:
            reporter.note(f"going on: {answers.done:,} of {len(asked):,} questions are answered")
        reporter.stage("answering", len(asked), "questions")
        reporter.advance(answers.done)
        begun = time.perf_counter()
        for first in range(answers.done, len(asked), batch):
            talks = writer.talks(asked[first : first + batch], first // batch)
            answers.add(
                [answer for talk in talks for answer in talk.answers],
                questions=len(talks),
                left_out=sum(talk.full for talk in talks),
            )
            reporter.advance(len(talks), tokens=answers.found.tokens)
        answers.found.seconds = time.perf_counter() - begun
    return answers.found


@dataclass
class _Talk:
    """One question, and the conversation about it so far."""

    question: Question
    messages: list[Message] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    full: bool = False  # the next turn does not fit into the model's context


@dataclass(frozen=True)
class _Writer:
    model: LanguageModel
    template: Template
    max_new_tokens: int
    sampling: Sampling

    def talks(self, questions: Sequence[Question], index: int) -> list[_Talk]:
        """Every turn of the questions of the `index`-th batch, asked side by side."""
        talks = [_Talk(question) for question in questions]
        for turn in range(max(len(question.turns) for question in questions)):
            going = [t for t in talks if not t.full and turn < len(t.question.turns)]
            prompts = [self._prompt(talk, turn) for talk in going]
            for talk, prompt in zip(going, prompts, strict=True):
                talk.full = not self._fits(prompt)
            asked = [(t, p) for t, p in zip(going, prompts, strict=True) if not t.full]
            if not asked:
                break
            written = write_batch(
                self.model,
                [prompt for _, prompt in asked],
                max_new_tokens=self.max_new_tokens,
                sampling=seeded(self.sampling, (index << 8) + turn),
            )
            for (talk, _), ids in zip(asked, written, strict=True):
                self._take(talk, turn, ids)
        return talks

    def _prompt(self, talk: _Talk, turn: int) -> TokenArray:
        talk.messages.append(Message("user", talk.question.turns[turn]))
        return chat_ids(self.model.tokenizer, self.template, talk.messages)

    def _fits(self, prompt: TokenArray) -> bool:
        room = self.model.context
        return len(prompt) > 0 and (room is None or len(prompt) + self.max_new_tokens <= room)

    def _take(self, talk: _Talk, turn: int, ids: TokenArray) -> None:
        text = self.model.tokenizer.backend.decode(ids.tolist(), skip_special_tokens=True)
        text = text if self.template.name == "none" else text.strip()
        ended_by = "eos" if int(ids[-1]) in self.model.eos else "length"
        question = talk.question
        talk.messages.append(Message("assistant", text))
        talk.answers.append(
            Answer(text, question.turns[turn], question.id, turn, len(ids), ended_by)
        )


def _digest(questions: Sequence[Question]) -> str:
    body = json.dumps([[q.id, q.turns] for q in questions])
    return hashlib.sha256(body.encode()).hexdigest()
