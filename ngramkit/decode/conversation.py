"""Conversations with a chat model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import Message
from ngramkit.decode.answer import write
from ngramkit.decode.options import DecodeOptions, Show
from ngramkit.decode.pending import load_decoder, open_pending_model
from ngramkit.decode.prompts import (
    chat_ids,
    choose_chat_template,
    first_messages,
    require_prompt,
    require_prompt_fits,
)
from ngramkit.drafters.base import Drafter, TokenArray, common_beginning
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.sources import Given, Sources

if TYPE_CHECKING:
    from ngramkit.decode.base import ResumableVerifier
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.options import Budget
    from ngramkit.decode.reference_files import Reference
    from ngramkit.decode.result import Decoded

DEFAULT_NEW_TOKENS = 1024  # maximum tokens of an answer


@dataclass(frozen=True, repr=False)
class Reply:
    """An answer; `held` tokens of the prompt were cached."""

    text: str
    run: Decoded
    held: int

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "held_tokens": self.held, **self.run.to_dict()}

    def __repr__(self) -> str:
        count, per_step = len(self.run.token_ids), self.run.tokens_per_step
        return f"<Reply of {count} tokens, {per_step:.2f} tokens/step>"


class Conversation:
    """A conversation in which the model reads each turn once.

        talk = ngramkit.Conversation("qwen3-8b", system="Be brief.")
        talk.ask("What is an n-gram?").text
        talk.ask("And a suffix array?").text  # reads only this question

    The parameters are fields of `DecodeOptions`. `messages` holds the turns, `drafter` the chosen
    drafter. Raises as `ngramkit.decode`.
    """

    def __init__(
        self,
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
        template: str | None = None,
        system: str | None = None,
        max_new_tokens: int = DEFAULT_NEW_TOKENS,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        device_map: str | None = None,
        trust_remote_code: bool = False,
        reporter: Reporter = NOTEBOOK_BARS,
    ) -> None:
        fields = {name: value for name, value in locals().items() if name != "self"}
        self._open(DecodeOptions(**fields, chat=True))

    @classmethod
    def of(cls, options: DecodeOptions) -> Self:
        talk = cls.__new__(cls)
        talk._open(replace(options, chat=True))
        return talk

    def _open(self, options: DecodeOptions) -> None:
        for name in ("cache", "compare"):
            if getattr(options, name):
                raise UsageError(
                    f"cannot use {name} in a conversation",
                    f"Leave out {name}, or give a prompt.",
                    option=(name, "prompt"),
                )
        pending = open_pending_model(options)
        self.template = choose_chat_template(options, pending.tokenizer)
        self._decoder, self.drafter = load_decoder(pending)
        self.model = self._decoder.model
        self.system = options.system
        self.messages = first_messages(self.system)
        self._drafter: Drafter | None = None
        self._verifier: ResumableVerifier | None = None
        self._held = np.empty(0, np.int32)  # the tokens that the verifier holds
        self._turns = 0

    def ask(self, text: str, show: Show | None = None) -> Reply:
        """Return the model's answer. `show` gets each piece of text and whether it was drafted.

        After Ctrl-C the text so far is the reply. Raises InputError, and adds nothing, if the
        conversation no longer fits the model's context.
        """
        require_prompt(text)
        for each in self.messages:
            if not isinstance(each, Message):
                raise UsageError(
                    f"messages must be Messages, got {each!r:.60}",
                    "Keep some of the conversation's own, or ask() each text.",
                    option="messages",
                )
        messages = [*self.messages, Message("user", text)]
        prompt = chat_ids(self.model.tokenizer, self.template, messages)
        require_prompt_fits(
            prompt, self.model.name, self.model.context,
            what="the conversation", hint="Begin another one.",
        )  # fmt: skip
        decoder = self._decoder.with_seed_offset(self._turns)
        self._turns += 1
        if self._drafter is None:
            from ngramkit.decode.compare import warm_up

            warm_up(self._decoder, prompt, self.drafter.load(forgetful=True))
            self._drafter = self.drafter.load()
        verifier, held = self._rewind(prompt)
        text, run = write(decoder, prompt, self._drafter, show, verifier)
        whole = np.concatenate([prompt, run.token_ids])
        # The next pass reads the last token. The verifier may hold tokens of an accepted path that
        # was cut at its end.
        self._held = whole[: min(verifier.length, len(whole) - 1)]
        if len(run.token_ids):
            self.messages = [*messages, Message("assistant", text)]
        return Reply(text, run, held)

    def clear(self) -> None:
        """Delete all turns; keep the system message and the drafter's state."""
        self.messages = first_messages(self.system)

    @property
    def facts(self) -> dict[str, Any]:
        """The settings, as plain values."""
        return {
            "model": self.model.name,
            "drafter": self.drafter.label,
            "artifacts": list(self.drafter.names),
            "template": self.template.name,
        }

    def _rewind(self, prompt: TokenArray) -> tuple[ResumableVerifier, int]:
        """Return the verifier, rewound to its common beginning with the prompt, and its length.

        The prompt's last token is never held: its logits begin the answer.
        """
        if self._verifier is None:
            self._verifier = self._decoder.open(prompt)
        self._verifier.rewind(common_beginning(self._held, prompt[:-1]))
        expect = getattr(self._verifier, "expect", None)
        if expect is not None:
            expect(len(prompt))
        held = self._verifier.length
        self._held = self._held[:held]
        return self._verifier, held
