"""`ngramkit.decode`: prompts in, the model's own text out, several tokens a pass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Protocol, overload

from ngramkit.choose import DrafterChoice
from ngramkit.corpus.chat import Message, Template
from ngramkit.decode.base import Verifier
from ngramkit.decode.compare import Comparison, compare, warm_up
from ngramkit.decode.options import DecodeOptions, Show, takes_words
from ngramkit.decode.result import Decoded
from ngramkit.decode.session import Session, prepare
from ngramkit.decode.text import (
    TextStream,
    chat_ids,
    chat_template,
    open_references,
    prompt_ids,
)
from ngramkit.decode.transformers_ways import measure_generate
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.errors import UsageError

P = ParamSpec("P")


@dataclass(frozen=True, repr=False)
class Answer:
    """One answer: what the model wrote after a prompt, with what, and in which time."""

    text: str
    run: Decoded
    model: str
    drafter: DrafterChoice
    template: str | None  # None: the prompt as it stands
    budget: int | str  # draft nodes per pass, or "auto"
    again: Callable[[], Comparison]  # decodes the prompt with and without drafts, and by generate
    comparison: Comparison | None = None

    def compared(self) -> Answer:
        """Decode again with and without drafts, in turns, and by transformers' own `generate` where
        decoding is greedy and without stop strings; return the answer with what drafts brought.

        Raises UsageError where a SpeCache was used, which takes no drafts.
        """
        if self.run.cache is not None:
            raise UsageError("compare is for drafts, a SpeCache takes none", option="compare")
        comparison = self.again()
        return replace(self, run=comparison.drafted, comparison=comparison)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `ngramkit decode --json` prints them."""
        run, comparison = self.run, self.comparison
        values: dict[str, Any] = {
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
            "budget": self.budget,
            "lossless": run.lossless,
            **({} if run.cache is None else run.cache.to_dict()),
        }
        if comparison is not None:
            values["baseline_seconds"] = round(comparison.baseline.seconds, 6)
            values["speedup"] = round(comparison.speedup, 4)
            values["identical"] = comparison.identical
            if comparison.generate is not None:
                values["generate_seconds"] = round(comparison.generate.seconds, 6)
                values["over_generate"] = round(comparison.over_generate or 0.0, 4)
        return values

    def __repr__(self) -> str:
        run = self.run
        return (
            f"<Answer of {self.model} with {self.drafter.label}: {len(run.token_ids)} tokens, "
            f"{run.tokens_per_step:.2f} tokens/step, {run.tokens_per_second:,.1f} tokens/s>"
        )


class _Decode(Protocol[P]):
    """A function of one prompt or several, and the words of DecodeOptions."""

    @overload
    def __call__(self, prompts: str, *args: P.args, **words: P.kwargs) -> Answer: ...
    @overload
    def __call__(
        self, prompts: list[str] | tuple[str, ...], *args: P.args, **words: P.kwargs
    ) -> list[Answer]: ...


def _of_one_or_several(
    options: Callable[P, DecodeOptions],
) -> Callable[[Callable[[Sequence[str], DecodeOptions], list[Answer]]], _Decode[P]]:
    """Let a function of several prompts and DecodeOptions be called with one prompt too, and with
    the options' words."""

    def decorate(
        function: Callable[[Sequence[str], DecodeOptions], list[Answer]],
    ) -> _Decode[P]:
        answer_all = takes_words(options)(function)

        @functools.wraps(function)
        def call(prompts: Any, *args: P.args, **words: P.kwargs) -> Any:
            if isinstance(prompts, str):
                return answer_all([prompts], *args, **words)[0]
            return answer_all(prompts, *args, **words)

        call.__signature__ = inspect.signature(answer_all)  # type: ignore[attr-defined]
        return call

    return decorate


@_of_one_or_several(DecodeOptions)
def decode(prompts: Sequence[str], options: DecodeOptions) -> list[Answer]:
    """Write what the model would have written alone, in fewer passes: one Answer per prompt.

    answer = ngramkit.decode("def main(", drafter="rest", datastores=["artifacts/mine"])
    answers = ngramkit.decode(["What is an n-gram?", "And a suffix array?"], chat=True)

    `prompts` is a text or a list of them; the keywords are those of DecodeOptions, in the command
    line's words. One drafter serves all prompts, so that it learns on the way. After Ctrl-C the
    last Answer is what was written until then.

    Raises TypeError for an unknown keyword, UsageError for what makes no sense, InputError for a
    prompt that is too long, else what loading the model and opening the artifacts raise.
    """
    pending = prepare(options)
    references = open_references(options.references, pending.tokenizer, options.reporter)
    template = None
    if options.chat_template is not None:
        template = chat_template(options.chat_template, pending.tokenizer, options.reporter)
    drafter = options.drafter or (None if options.cache is None else "none")
    choice = pending.choose(drafter, options, options.sources())
    session, (choice,) = pending.session(options, [choice])
    answering = _Answering(replace(session, references=references), choice, template)
    ids = [answering.ids(prompt) for prompt in prompts]
    answers = list(answering.answers(ids))
    if options.compare and answers and answers[-1].run.ended_by != "interrupt":
        return [answer.compared() for answer in answers]
    return answers


@dataclass(frozen=True)
class _Answering:
    session: Session
    drafter: DrafterChoice
    template: Template | None

    def ids(self, prompt: str) -> TokenArray:
        """Encode a prompt, as a user's turn where there is a template."""
        tokenizer, system = self.session.model.tokenizer, self.session.options.system
        if self.template is None:
            return prompt_ids(tokenizer, prompt)
        before = [Message("system", system)] if system else []
        return chat_ids(tokenizer, self.template, [*before, Message("user", prompt)])

    def answers(self, prompts: Sequence[TokenArray]) -> Iterator[Answer]:
        """Answer the prompts with one drafter. Ctrl-C ends the last one."""
        if prompts and self.session.options.cache is None:
            warm_up(self.session, prompts[0], self.drafter.load(forgetful=True))
        drafter = self.drafter.load()
        for prompt in prompts:
            answer = self._answer(prompt, drafter)
            yield answer
            if answer.run.ended_by == "interrupt":
                return

    def _answer(self, prompt: TokenArray, drafter: Drafter) -> Answer:
        session, show = self.session, self.session.options.show
        text, run = write(session, prompt, drafter, show)
        if show is not None:
            show("", False)
        return Answer(
            text,
            run,
            model=session.model.name,
            drafter=self.drafter,
            template=None if self.template is None else self.template.name,
            budget=session.shown_budget,
            again=lambda: self._compare(prompt),
        )

    def _compare(self, prompt: TokenArray) -> Comparison:
        comparison = compare(self.session, prompt, lambda: self.drafter.load(forgetful=True))
        return replace(comparison, generate=measure_generate(self.session, prompt))


def write(
    session: Session,
    prompt: TokenArray,
    drafter: Drafter,
    show: Show | None,
    verifier: Verifier | None = None,
) -> tuple[str, Decoded]:
    """Answer a prompt, int32[n]; return the text and the run.

    `show` sees the text as it comes. `verifier` as in `Session.complete`.
    """
    stream = TextStream(session.model.tokenizer.backend, prompt)
    pieces: list[str] = []

    def put(piece: str, drafted: bool) -> None:
        if piece:
            pieces.append(piece)
            if show is not None:
                show(piece, drafted)

    def sink(token: int, drafted: bool) -> None:
        put(stream.push(token), drafted)

    run = session.complete(prompt, drafter, sink, verifier)
    put(stream.rest(), False)
    return "".join(pieces), run
