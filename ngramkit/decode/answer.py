"""`ngramkit.decode`: the model's own text, several tokens per pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ngramkit.basics.errors import UsageError, require_list
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.choose import DrafterChoice
from ngramkit.corpus.chat import Message
from ngramkit.decode.options import COMPARED, DecodeOptions, Show
from ngramkit.decode.pending import load_decoder, open_pending_model
from ngramkit.decode.prompts import (
    chat_ids,
    choose_chat_template,
    first_messages,
    require_prompt,
    require_prompt_fits,
)
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.text import TextStream
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.sources import Given, Sources
from ngramkit.drafters.spec import require_not_made

if TYPE_CHECKING:
    from ngramkit.decode.base import Verifier
    from ngramkit.decode.compare import Comparison
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.options import Budget
    from ngramkit.decode.reference_files import Reference
    from ngramkit.decode.result import Decoded


@dataclass(frozen=True, repr=False)
class Answer:
    """An answer to a prompt, with its settings and times."""

    text: str
    run: Decoded
    model: str
    drafter: DrafterChoice
    template: str | None  # None: the prompt is used as it is
    budget: int | str | None  # draft nodes per pass, or "auto"; None: it verified no drafts
    again: Callable[[], Comparison]  # decodes the prompt again in other ways
    comparison: Comparison | None = None

    def compared(self) -> Answer:
        """Return the answer with a Comparison to decoding without drafts.

        Raises UsageError if a SpeCache was used, or if a history or a drafter object remembers the
        answer.
        """
        if self.run.cache is not None:
            raise UsageError(
                "cannot use compare with a SpeCache: it verifies no drafts",
                "Leave out compare.",
                option="compare",
            )
        comparison = self.again()
        return replace(self, run=comparison.drafted, comparison=comparison)

    def to_dict(self) -> dict[str, Any]:
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


def decode(
    prompts: str | Iterable[str],
    model: str | Path | LanguageModel | None = None,
    *,
    drafter: str | Drafter | Callable[[], Drafter] | None = None,
    artifacts: Sources | Sequence[Given] | Given = (),
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    references: Sequence[Reference] = (),
    budget: Budget = None,
    verify: str | None = None,
    cache: SpeCache | Literal["full", "low-bit", "specache"] | None = None,
    chat: bool = False,
    template: str | None = None,
    system: str | None = None,
    max_new_tokens: int = 128,
    stop: Sequence[str] = (),
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    compare: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
    show: Show | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Any:
    """Write what the model would write without drafts, in fewer passes: one Answer per prompt.

        answer = ngramkit.decode("def main(", drafter="rest", datastores=["artifacts/mine"])
        answers = ngramkit.decode(["What is an n-gram?", "And a suffix array?"], chat=True)

    `prompts`, a text or a list of texts, give an Answer or a list of them. The other parameters are
    the fields of `DecodeOptions`. One drafter learns from all prompts. After Ctrl-C the last Answer
    holds the text so far.

    Raises UsageError for options that cannot work, InputError for a prompt that is too long, and
    the errors of loading the model and artifacts.
    """
    fields = {name: value for name, value in locals().items() if name != "prompts"}
    options = DecodeOptions(**fields)
    if isinstance(prompts, str):
        return answer([prompts], options)[0]
    require_list("prompts", prompts, "Give a text, or a list of texts.")
    return answer(list(prompts), options)


def answer(prompts: Sequence[str], options: DecodeOptions) -> list[Answer]:
    for prompt in prompts:
        require_prompt(prompt)
    pending = open_pending_model(options)
    tokenizer = pending.tokenizer
    if options.chat_template is None:
        template = None
        prompt_tokens = [tokenizer.encode_prompt(prompt) for prompt in prompts]
    else:
        template = choose_chat_template(options, tokenizer)
        turns = [[*first_messages(options.system), Message("user", prompt)] for prompt in prompts]
        prompt_tokens = [chat_ids(tokenizer, template, turn) for turn in turns]
    for tokens in prompt_tokens:  # fail before loading the model
        require_prompt_fits(tokens, pending.name, pending.context)
    decoder, choice = load_decoder(pending)
    if prompt_tokens and options.cache is None:
        from ngramkit.decode.compare import warm_up

        warm_up(decoder, prompt_tokens[0], choice.load(forgetful=True))
    # Comparisons must not know the answers, so these are remembered after all of them.
    drafter = choice.load(forgetful=options.compare)
    past = choice.past
    stores = past is not None and past.path is not None and past.store
    remembered = stores and not options.compare
    answers = []
    for tokens in prompt_tokens:
        text, run = write(decoder, tokens, drafter, options.show)
        if options.show is not None:
            options.show("", False)
        answers.append(
            Answer(
                text,
                run,
                model=decoder.model.name,
                drafter=choice,
                template=None if template is None else template.name,
                budget=decoder.shown_budget,
                again=functools.partial(_compare_prompt, decoder, tokens, choice, remembered),
            )
        )
        if run.ended_by == "interrupt":
            break
    if options.compare:
        if not any(each.run.ended_by == "interrupt" for each in answers):
            answers = [each.compared() for each in answers]
        if stores:
            remember_answers(choice.load(), prompt_tokens, answers)
    return answers


def remember_answers(
    drafter: Drafter, prompts: Sequence[TokenArray], answers: Sequence[Answer]
) -> None:
    for prompt, each in zip(prompts, answers, strict=False):  # fewer answers after Ctrl-C
        drafter.start(prompt)
        drafter.accept(np.array(each.run.token_ids, np.int32))
        drafter.finish()


def _compare_prompt(
    decoder: Decoder, prompt: TokenArray, choice: DrafterChoice, remembered: bool
) -> Comparison:
    from ngramkit.decode.compare import compare, plain_model

    if remembered:
        raise UsageError(
            "cannot compare an answer that the history remembers",
            "Decode with compare=True.",
            option="compare",
        )
    require_not_made(decoder.options.drafter, COMPARED)
    make = functools.partial(choice.load, forgetful=True)
    return compare(decoder, prompt, make, plain=plain_model(decoder))


def write(
    decoder: Decoder,
    prompt: TokenArray,
    drafter: Drafter,
    show: Show | None,
    verifier: Verifier | None = None,
) -> tuple[str, Decoded]:
    stream = TextStream(decoder.model.tokenizer.backend, prompt)
    pieces: list[str] = []

    def put(piece: str, drafted: bool) -> None:
        if piece:
            pieces.append(piece)
            if show is not None:
                show(piece, drafted)

    def sink(token: int, drafted: bool) -> None:
        put(stream.push(token), drafted)

    run = decoder.decode(decoder.request(prompt), drafter, sink, verifier)
    put(stream.flush(), False)
    return "".join(pieces), run
