"""What the answer is likely to repeat, as somebody names it: texts, files, token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from ngramkit.choose import DrafterChoice
from ngramkit.corpus.chat import AUTO, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.base import Verifier
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.result import Decoded, TextStream
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.session import (
    Comparison,
    PassOptions,
    Task,
    chat_ids,
    compare,
    prompt_ids,
    warm_up,
)
from ngramkit.decode.specache.decoding import require_no_drafts
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.references import NONE, ReferenceTexts, require_references
from ngramkit.drafters.registry import DrafterSpec
from ngramkit.drafters.sources import Given, Sources
from ngramkit.errors import InputError, UsageError
from ngramkit.progress import SILENT, Reporter
from ngramkit.text import many
from ngramkit.untrusted import read_given

MOST_BYTES = 4 << 20  # of a file; encoding takes thirty times as much memory

Reference = str | Path | Sequence[int]  # text, a file of it, or token ids


def open_references(
    given: Sequence[Reference], tokenizer: TextTokenizer, reporter: Reporter
) -> ReferenceTexts:
    """Encoded without special tokens, and sorted; says how many. Raises InputError where a file
    cannot be read or is no text, UsageError for an empty one or what is none of these."""
    if isinstance(given, str | Path):
        raise UsageError("references are several texts", "give a list", option="references")
    if not len(given):
        return NONE
    found = ReferenceTexts([_ids(each, tokenizer) for each in given])
    texts = many(len(found), "reference")
    reporter.note(f"drafting from {texts} too, {found.tokens:,} tokens")
    return found


def require_use(references: Sized, drafter: Any, cache: object = None) -> None:
    """Raises UsageError where references are given to a drafter that cannot use them (by name, or
    an object; None: not chosen yet), or with a SpeCache, which takes no drafts."""
    if not len(references):
        return
    if cache is not None:
        raise UsageError(
            "a SpeCache takes no drafts and no references", "leave them out", option="references"
        )
    if isinstance(drafter, str):
        require_references(DrafterSpec.parse(drafter).name)
    elif hasattr(drafter, "draft"):  # a class that makes one, or an object
        require_references(drafter)


def _ids(reference: Reference, tokenizer: TextTokenizer) -> Any:
    if isinstance(reference, Path):
        return tokenizer.encode(read_reference(reference))
    if isinstance(reference, str):
        if not reference:
            raise UsageError("a reference is empty", "leave it out", option="references")
        return tokenizer.encode(reference)
    return reference


def read_reference(file: Path) -> str:
    """The text of a file, of MOST_BYTES at most."""
    raw = read_given(file, MOST_BYTES, hint="give the part that the answer will repeat")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}", "convert it to UTF-8") from error
    if "\0" in text:
        raise InputError(f"{file} is binary, no text", "give a text", option="references")
    if not text:
        raise InputError(f"{file} is empty", "leave it out", option="references")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# The keywords of `ngramkit.decode`: their types, and what they are where they are left out.

Model = str | LanguageModel | None
Show = Callable[[str, bool], None]  # a piece of text, and whether a draft held it


class Options(TypedDict, total=False):
    """The keywords of `decode`."""

    drafter: str | Drafter | Callable[[], Drafter] | None
    artifacts: Sources | Sequence[Given] | Given
    template: str | None
    system: str | None
    max_new_tokens: int
    stop: Sequence[str]
    references: Sequence[Reference]
    sampling: Sampling
    passes: PassOptions
    show: Show | None
    reporter: Reporter


@dataclass(frozen=True)
class Asked:
    """The same, and what they are where they are left out."""

    drafter: str | Drafter | Callable[[], Drafter] | None = None
    artifacts: Sources | Sequence[Given] | Given = ()
    template: str | None = None
    system: str | None = None
    max_new_tokens: int = 128
    stop: Sequence[str] = ()
    references: Sequence[Reference] = ()
    sampling: Sampling = GREEDY
    passes: PassOptions = PassOptions()  # noqa: RUF009 (frozen)
    show: Show | None = None
    reporter: Reporter = SILENT

    def require_sense(self) -> None:
        """Raises UsageError for what makes none, before anything is loaded."""
        if isinstance(self.drafter, str):
            DrafterSpec.parse(self.drafter)
        if self.system and self.template is None:
            option = ("system", "chat")
            raise UsageError("system needs a conversation", "give chat too", option=option)
        if self.passes.cache is not None:
            require_no_drafts(self.passes.cache, self.drafter)
        require_use(self.references, self.drafter, self.passes.cache)


# `ngramkit.decode`: prompts in, the model's own text out, several tokens a pass.


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
    again: Callable[[], Comparison]  # decodes the prompt with and without drafts, in turns
    comparison: Comparison | None = None

    def compared(self) -> Answer:
        """The same with what drafts brought: decoded with and without them, in turns.

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
    ids = [_ids_answer(task.model, each, form, asked.system) for each in several]
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
            again=lambda: compare(self.task, prompt, lambda: self.drafter.load(forgetful=True)),
        )


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


def _ids_answer(
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
