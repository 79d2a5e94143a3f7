"""A conversation with a chat model: the context stays in the model's cache from turn to turn.

Of every prompt only the part that the cache does not hold is read. The drafter lives as long as the
conversation, so it drafts from all its turns. The text is what the model would have written alone
after the same prompt. Knows no terminal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import Message
from ngramkit.decode.answer import require_prompt, set_up, write
from ngramkit.decode.options import DecodeOptions, Show, takes_words
from ngramkit.decode.text import chat_ids
from ngramkit.drafters.base import Drafter, TokenArray, common_beginning

if TYPE_CHECKING:
    from ngramkit.decode.base import ResumableVerifier
    from ngramkit.decode.result import Decoded

NEW_TOKENS = 1024  # of an answer


@dataclass(frozen=True, repr=False)
class Reply:
    """One answer; `held` of the prompt's tokens were in the model's memory already."""

    text: str
    run: Decoded
    held: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"text": self.text, "held_tokens": self.held, **self.run.to_dict()}

    def __repr__(self) -> str:
        return f"<Reply of {len(self.run.token_ids)} tokens, {self.run.tokens_per_step:.2f} a step>"


class Conversation:
    """A conversation, of which the model reads each turn once.

        talk = ngramkit.Conversation("qwen3-8b", system="Be brief.")
        talk.ask("What is an n-gram?").text
        talk.ask("And a suffix array?").text  # reads this question alone

    The keywords are those of `ngramkit.decode`; prompts are always turns of a conversation, and an
    answer has 1,024 tokens at most where `max_new_tokens` is left out. `messages` holds what was
    said, `drafter` what was chosen.

    Raises what `ngramkit.decode` raises.
    """

    @takes_words(DecodeOptions, chat=True, max_new_tokens=NEW_TOKENS)
    def __init__(self, options: DecodeOptions) -> None:
        if options.cache is not None:
            raise UsageError(
                "a conversation keeps its full cache; a SpeCache is for one prompt at a time",
                "leave out the cache, or give a prompt",
                option=("cache", "prompt"),
            )
        if options.compare:
            raise UsageError(
                "a conversation is not decoded without drafts too",
                "leave out compare, or give a prompt",
                option=("compare", "prompt"),
            )
        self._session, self.drafter, template, _ = set_up(replace(options, chat=True))
        assert template is not None
        self.template = template
        self.model = self._session.model
        self.system = options.system
        self.messages: list[Message] = self._beginning()
        self._drafter: Drafter | None = None
        self._verifier: ResumableVerifier | None = None
        self._held = np.empty(0, np.int32)  # the tokens that the verifier holds
        self._turns = 0

    def ask(self, text: str, show: Show | None = None) -> Reply:
        """Return the model's answer; `show` sees its text as it comes, and which of it was drafted.

        After Ctrl-C the reply is what was written until then, and part of the conversation.
        Raises InputError where the conversation no longer fits the model's context; nothing is
        added to it then.
        """
        require_prompt(text)
        messages = [*self.messages, Message("user", text)]
        prompt = chat_ids(self.model.tokenizer, self.template, messages)
        self._require_room(prompt)
        session = self._session.numbered(self._turns)
        self._turns += 1
        if self._drafter is None:
            from ngramkit.decode.compare import warm_up

            warm_up(self._session, prompt, self.drafter.load(forgetful=True))
            self._drafter = self.drafter.load()
        verifier, held = self._rewind(prompt)
        text, run = write(session, prompt, self._drafter, show, verifier)
        whole = np.concatenate([prompt, run.token_ids])
        # The last token is read with the next pass; of an accepted path that ended early, more is
        # held than was written.
        self._held = whole[: min(verifier.length, len(whole) - 1)]
        if len(run.token_ids):
            self.messages = [*messages, Message("assistant", text)]
        return Reply(text, run, held)

    def clear(self) -> None:
        """Forget what was said, the system message apart; what drafts have learnt stays."""
        self.messages = self._beginning()

    @property
    def facts(self) -> dict[str, Any]:
        """The options of the answers, as plain values."""
        return {
            "model": self.model.name,
            "drafter": self.drafter.label,
            "artifacts": list(self.drafter.names),
            "template": self.template.name,
        }

    def _beginning(self) -> list[Message]:
        return [Message("system", self.system)] if self.system else []

    def _require_room(self, prompt: TokenArray) -> None:
        context = self.model.context
        if context is not None and len(prompt) >= context:
            raise InputError(
                f"the conversation has {len(prompt):,} tokens, the context of {self.model.name} "
                f"{context:,}",
                "begin another one",
            )

    def _rewind(self, prompt: TokenArray) -> tuple[ResumableVerifier, int]:
        """Rewind the verifier to where the prompt parts from the tokens that it holds, or further
        where recurrent states cannot go back there; return it and how many tokens it holds then.

        At least the prompt's last token is left to be read: an answer begins with its logits.
        """
        if self._verifier is None:
            self._verifier = self._session.open(prompt)
        self._verifier.rewind(common_beginning(self._held, prompt[:-1]))
        expect = getattr(self._verifier, "expect", None)
        if expect is not None:
            expect(len(prompt))
        held = self._verifier.length
        self._held = self._held[:held]
        return self._verifier, held
