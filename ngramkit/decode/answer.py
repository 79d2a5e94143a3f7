"""`ngramkit.decode`: prompts in, the model's own text out, several tokens a pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

from ngramkit.basics.errors import UsageError, require_list
from ngramkit.choose import DrafterChoice
from ngramkit.corpus.chat import Message, Template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.options import DecodeOptions, Show, takes_words
from ngramkit.decode.pending import prepare
from ngramkit.decode.text import (
    TextStream,
    chat_ids,
    chat_template,
    open_references,
    require_fits,
)
from ngramkit.drafters.base import Drafter, TokenArray

if TYPE_CHECKING:
    from ngramkit.decode.base import Verifier
    from ngramkit.decode.compare import Comparison
    from ngramkit.decode.result import Decoded
    from ngramkit.decode.session import Session

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
            **run.to_dict(),
            "model": self.model,
            "drafter": self.drafter.label,
            "artifacts": list(self.drafter.names),
            "template": self.template,
            "budget": self.budget,
            "lossless": run.lossless and (comparison is None or comparison.identical),
            **({} if run.cache is None else run.cache.to_dict()),
        }
        if comparison is not None:
            parting = comparison.parting
            values |= {
                "baseline_seconds": round(comparison.baseline.seconds, 6),
                "speedup": _rounded(comparison.speedup),
                "identical": comparison.identical,
                "parting": None if parting is None else asdict(parting),
                "busy_cores": _rounded(comparison.others),
            }
            if comparison.generate is not None:
                values["generate_seconds"] = round(comparison.generate.seconds, 6)
                values["over_generate"] = _rounded(comparison.over_generate)
                values["undrafted_over_generate"] = _rounded(comparison.undrafted_over_generate)
        return values

    def __repr__(self) -> str:
        run = self.run
        return (
            f"<Answer of {self.model} with {self.drafter.label}: {len(run.token_ids)} tokens, "
            f"{run.tokens_per_step:.2f} tokens/step, {run.tokens_per_second:,.1f} tokens/s>"
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


class _Decode(Protocol[P]):
    """A function of one prompt or several, and the words of DecodeOptions."""

    @overload
    def __call__(self, prompts: str, *args: P.args, **words: P.kwargs) -> Answer: ...
    @overload
    def __call__(
        self, prompts: list[str] | tuple[str, ...], *args: P.args, **words: P.kwargs
    ) -> list[Answer]: ...


def _takes_words(
    options: Callable[P, DecodeOptions],
) -> Callable[[Callable[[Any, DecodeOptions], Any]], _Decode[P]]:
    """Return `takes_words`, with the types of a function of one prompt or several."""
    return takes_words(options)  # type: ignore[return-value]


@_takes_words(DecodeOptions)
def decode(prompts: str | Iterable[str], options: DecodeOptions) -> Answer | list[Answer]:
    """Write what the model would have written alone, in fewer passes: one Answer per prompt.

        answer = ngramkit.decode("def main(", drafter="rest", datastores=["artifacts/mine"])
        answers = ngramkit.decode(["What is an n-gram?", "And a suffix array?"], chat=True)

    `prompts` is a text or a list of them, or what gives texts one after another; the keywords are
    those of DecodeOptions, in the command line's words. One drafter serves all prompts, so that it
    learns on the way. After Ctrl-C the last Answer is what was written until then.

    Raises TypeError for an unknown keyword, UsageError for what makes no sense, InputError for a
    prompt that is too long, else what loading the model and opening the artifacts raise.
    """
    if isinstance(prompts, str):
        return _answers([prompts], options)[0]
    require_list("prompts", prompts, "give a text, or a list of texts")
    texts = list(prompts)
    for text in texts:
        require_prompt(text)
    return _answers(texts, options)


def require_prompt(text: Any) -> None:
    """Raise UsageError where a prompt is no text."""
    if not isinstance(text, str):
        raise UsageError(
            f"a prompt must be a text, is {text!r:.60}",
            "give texts; a conversation is ngramkit.Conversation",
            option="prompts",
        )


def _answers(prompts: Sequence[str], options: DecodeOptions) -> list[Answer]:
    """Answer the prompts with one drafter. Ctrl-C ends the last one, and nothing is compared."""
    session, choice, template, prompt_tokens = set_up(options, prompts)
    if prompt_tokens and options.cache is None:
        from ngramkit.decode.compare import warm_up

        warm_up(session, prompt_tokens[0], choice.load(forgetful=True))
    drafter = choice.load()
    answers = []
    for prompt in prompt_tokens:
        text, run = write(session, prompt, drafter, options.show)
        if options.show is not None:
            options.show("", False)
        answer = Answer(
            text,
            run,
            model=session.model.name,
            drafter=choice,
            template=None if template is None else template.name,
            budget=session.shown_budget,
            again=functools.partial(_compare, session, prompt, choice),
        )
        answers.append(answer)
        if run.ended_by == "interrupt":
            return answers
    return [answer.compared() for answer in answers] if options.compare else answers


def set_up(
    options: DecodeOptions, prompts: Sequence[str] = ()
) -> tuple[Session, DrafterChoice, Template | None, list[TokenArray]]:
    """Return the session, the drafter and the template that the options ask for, and the prompts
    encoded; no template where prompts are taken as they stand.

    Raises as `require_fits` for a prompt, before the model is loaded.
    """
    pending = prepare(options)
    references = open_references(options.references, pending.tokenizer, options.reporter)
    template = None
    if options.chat_template is not None:
        template = chat_template(options.chat_template, pending.tokenizer, options.reporter)
    encoded = [_encode(each, pending.tokenizer, options.system, template) for each in prompts]
    for tokens in encoded:
        require_fits(tokens, pending.name, pending.context)
    drafter = options.drafter or (None if options.cache is None else "none")
    choice = pending.choose(drafter, options, options.sources())
    session, (choice,) = pending.session(options, [choice])
    return replace(session, references=references), choice, template, encoded


def _encode(
    prompt: str, tokenizer: TextTokenizer, system: str | None, template: Template | None
) -> TokenArray:
    """Encode a prompt, as a user's turn where there is a template."""
    if template is None:
        return tokenizer.encode_prompt(prompt)
    before = [Message("system", system)] if system else []
    return chat_ids(tokenizer, template, [*before, Message("user", prompt)])


def _compare(session: Session, prompt: TokenArray, choice: DrafterChoice) -> Comparison:
    from ngramkit.decode.compare import compare, plain_model

    make = functools.partial(choice.load, forgetful=True)
    return compare(session, prompt, make, plain=plain_model(session))


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
