"""`ngramkit.decode`: prompts in, the model's own text out, several tokens a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, overload

from ngramkit.choose import DrafterChoice
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.asked import Asked, Model, Options, Show
from ngramkit.decode.base import Verifier
from ngramkit.decode.foreign import generated
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.prompt import chat_ids, prompt_ids
from ngramkit.decode.references import open_references
from ngramkit.decode.result import Decoded
from ngramkit.decode.task import Comparison, Task, compare, warm_up
from ngramkit.decode.text import TextStream
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.errors import UsageError
from ngramkit.progress import Reporter
from ngramkit.templates import AUTO, Message, Template, find_template


@dataclass(frozen=True, repr=False)
class Answer:
    """What the model wrote after one prompt, with what, and in which time."""

    text: str
    run: Decoded
    model: str
    drafter: DrafterChoice
    template: str | None  # None: the prompt as it stands
    engine: str
    budget: int | str  # draft nodes per pass, or "auto"
    again: Callable[[], Comparison]  # decodes the prompt with and without drafts, and by generate
    comparison: Comparison | None = None

    def compared(self) -> Answer:
        """The same with what drafts brought: decoded with and without them, in turns, and by
        transformers' own `generate` where it is greedy and without stop strings.

        Raises UsageError where a SpeCache was used, which takes no drafts.
        """
        if self.run.cache is not None:
            raise UsageError("compare is for drafts, a SpeCache takes none", option="compare")
        comparison = self.again()
        return replace(self, run=comparison.drafted, comparison=comparison)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit decode --json` prints them."""
        run, compared = self.run, self.comparison
        found: dict[str, Any] = {
            "text": self.text,
            "token_ids": run.token_ids.tolist(),
            "prompt_tokens": run.prompt_tokens,
            "new_tokens": len(run.token_ids),
            "passes": run.passes,
            "tokens_per_step": round(run.tokens_per_step, 4),
            "tokens_per_second": round(run.tokens_per_second, 3),
            "draft_seconds": round(run.draft_seconds, 6),
            "verify_seconds": round(run.verify_seconds, 6),
            "accepted_per_pass": run.accepted_per_pass,
            "nodes_per_pass": run.nodes_per_pass,
            "declined_passes": run.declined_passes,
            "ended_by": run.ended_by,
            "model": self.model,
            "drafter": self.drafter.label,
            "artifacts": list(self.drafter.names),
            "template": self.template,
            "engine": self.engine,
            "budget": self.budget,
            "lossless": run.lossless,
            **({} if run.cache is None else run.cache.to_dict()),
        }
        if compared is not None:
            found["baseline_seconds"] = round(compared.baseline.seconds, 6)
            found["speedup"] = round(compared.speedup, 4)
            found["identical"] = compared.identical
            if compared.generate is not None:
                found["generate_seconds"] = round(compared.generate.seconds, 6)
                found["over_generate"] = round(compared.over_generate or 0.0, 4)
        return found

    def __repr__(self) -> str:
        run = self.run
        return (
            f"<Answer of {self.model} with {self.drafter.label}: {len(run.token_ids)} tokens, "
            f"{run.tokens_per_step:.2f} tokens/step, {run.tokens_per_second:,.1f} tokens/s>"
        )


@overload
def decode(prompts: str, model: Model = ..., **options: Unpack[Options]) -> Answer: ...
@overload
def decode(
    prompts: list[str] | tuple[str, ...], model: Model = ..., **options: Unpack[Options]
) -> list[Answer]: ...
def decode(
    prompts: str | list[str] | tuple[str, ...], model: Model = None, **options: Unpack[Options]
) -> Answer | list[Answer]:
    """What the model would have written alone, in fewer passes: one Answer per prompt.

    `model`: a name, a folder, a loaded one; None: as `ngramkit.models.chosen_model`. `drafter`: as
    in `choose_drafter`, or an object or function of yours. `artifacts`: what to draft from, else
    what is found. `template`: None takes prompts as they stand, "auto" makes each a user's turn in
    the model's own template, or name one; `system` is said before it. `show` is called with
    every piece of text, and with an empty one after each answer. `references`, texts, paths of
    files or token ids, are what answers are likely to repeat. After Ctrl-C the last Answer is what
    was written until then.

    Raises UsageError for what makes no sense, InputError for a prompt that is too long, else what
    loading the model and opening the artifacts raise.
    """
    asked = Asked(**options)
    asked.require_sense()
    prepared = asked.passes.prepare(model, asked.reporter)
    texts = open_references(asked.references, prepared.tokenizer, asked.reporter)
    named = asked.template
    form = None if named is None else chat_template(named, prepared.tokenizer, asked.reporter)
    drafter = asked.drafter or (None if asked.passes.cache is None else "none")
    choice = prepared.choose(drafter, asked.artifacts, asked.reporter)
    task, (choice,) = prepared.task(
        [choice], asked.max_new_tokens, asked.sampling, asked.stop, asked.reporter
    )
    answering = _Answering(replace(task, references=texts), choice, form)
    several = [prompts] if isinstance(prompts, str) else prompts
    ids = [_ids(task.model, each, form, asked.system) for each in several]
    answers = list(answering.answers(ids, asked.show))
    return answers[0] if isinstance(prompts, str) else answers


@dataclass(frozen=True)
class _Answering:
    task: Task
    drafter: DrafterChoice
    template: Template | None

    def answers(self, prompts: Sequence[TokenArray], show: Show | None) -> Iterator[Answer]:
        """One drafter for all, so that it learns on the way. Ctrl-C ends the last one."""
        if prompts and self.task.runner.cache is None:
            warm_up(self.task, prompts[0], self.drafter.load(forgetful=True))
        drafter = self.drafter.load()
        for prompt in prompts:
            answer = self._answer(prompt, drafter, show)
            yield answer
            if answer.run.ended_by == "interrupt":
                return

    def _answer(self, prompt: TokenArray, drafter: Drafter, show: Show | None) -> Answer:
        text, run = written(self.task, prompt, drafter, show)
        if show is not None:
            show("", False)
        runner = self.task.runner
        return Answer(
            text,
            run,
            model=self.task.model.name,
            drafter=self.drafter,
            template=None if self.template is None else self.template.name,
            engine=runner.engine,
            budget=runner.shown_budget,
            again=lambda: self._compared(prompt),
        )

    def _compared(self, prompt: TokenArray) -> Comparison:
        found = compare(self.task, prompt, lambda: self.drafter.load(forgetful=True))
        return replace(found, generate=generated(self.task, prompt))


def chat_template(name: str, tokenizer: TextTokenizer, reporter: Reporter) -> Template:
    """Says which. Raises UsageError where a model that is known for none was to be asked."""
    template = find_template(name, tokenizer)
    if name == AUTO and template.name == "none":
        raise UsageError(
            f"{tokenizer.record.id} goes on with a text; it was not made for conversations",
            "leave out chat, or use another model",
            option="chat",
        )
    reporter.note(str(template))
    return template


def _ids(
    model: LanguageModel, text: str, template: Template | None, system: str | None
) -> TokenArray:
    if template is None:
        return prompt_ids(model.tokenizer, text)
    before = [Message("system", system)] if system else []
    return chat_ids(model.tokenizer, template, [*before, Message("user", text)])


def written(
    task: Task,
    prompt: TokenArray,
    drafter: Drafter,
    show: Show | None,
    verifier: Verifier | None = None,
) -> tuple[str, Decoded]:
    """The text and the run; `show` sees the text as it comes. `verifier` as in `Task.complete`."""
    stream = TextStream(task.model.tokenizer.backend, prompt)
    pieces: list[str] = []

    def put(piece: str, drafted: bool) -> None:
        if piece:
            pieces.append(piece)
            if show is not None:
                show(piece, drafted)

    def sink(token: int, drafted: bool) -> None:
        put(stream.push(token), drafted)

    run = task.complete(prompt, drafter, sink, verifier)
    put(stream.rest(), False)
    return "".join(pieces), run
