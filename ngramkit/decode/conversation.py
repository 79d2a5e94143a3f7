"""A conversation with a chat model: the context stays in the model's memory from turn to turn.

Of every prompt only what follows the part that is held already is read. The drafter lives as long
as the conversation, so it drafts from all that was said. What is written is what the model would
have written alone after the same prompt. Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngramkit.corpus.chat import AUTO, Message
from ngramkit.decode.answer import (
    Model,
    Reference,
    Show,
    chat_template,
    open_references,
    require_use,
    written,
)
from ngramkit.decode.base import ResumableVerifier
from ngramkit.decode.result import Decoded
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.session import PassOptions, chat_ids, warm_up
from ngramkit.drafters.base import Drafter, TokenArray, common_beginning
from ngramkit.drafters.registry import DrafterSpec
from ngramkit.drafters.sources import Given, Sources
from ngramkit.errors import InputError
from ngramkit.progress import SILENT, Reporter

NEW_TOKENS = 1024  # of an answer


@dataclass(frozen=True, repr=False)
class Reply:
    """One answer; `held` of the prompt's tokens were in the model's memory already."""

    text: str
    run: Decoded
    held: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        run = self.run
        return {
            "text": self.text,
            "token_ids": run.token_ids.tolist(),
            "prompt_tokens": run.prompt_tokens,
            "held_tokens": self.held,
            "new_tokens": len(run.token_ids),
            "passes": run.passes,
            "tokens_per_step": round(run.tokens_per_step, 4),
            "tokens_per_second": round(run.tokens_per_second, 3),
            "ended_by": run.ended_by,
        }

    def __repr__(self) -> str:
        return f"<Reply of {len(self.run.token_ids)} tokens, {self.run.tokens_per_step:.2f} a step>"


class Conversation:
    """
    talk = ngramkit.Conversation("qwen3-8b", system="Be brief.")
    talk.ask("What is an n-gram?").text
    talk.ask("And a suffix array?").text  # reads this question alone

    `model`, `drafter`, `artifacts`, `stop`, `references`, `sampling` and `passes` are those of
    `ngramkit.decode`; `template` as there, but always one. `messages` holds what was said,
    `drafter` what was chosen.

    Raises what `ngramkit.decode` raises.
    """

    def __init__(
        self,
        model: Model = None,
        *,
        drafter: str | Drafter | Callable[[], Drafter] | None = None,
        artifacts: Sources | Sequence[Given] | Given = (),
        template: str = AUTO,
        system: str | None = None,
        max_new_tokens: int = NEW_TOKENS,
        stop: Sequence[str] = (),
        references: Sequence[Reference] = (),
        sampling: Sampling = GREEDY,
        passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
        reporter: Reporter = SILENT,
    ) -> None:
        if isinstance(drafter, str):
            DrafterSpec.parse(drafter)
        passes.require_full_cache("a conversation")
        require_use(references, drafter)
        prepared = passes.prepare(model, reporter)
        texts = open_references(references, prepared.tokenizer, reporter)
        self.template = chat_template(template, prepared.tokenizer, reporter)
        chosen = prepared.choose(drafter, artifacts, reporter)
        task, (self.drafter,) = prepared.task([chosen], max_new_tokens, sampling, stop, reporter)
        self._task = replace(task, references=texts)
        self.model = self._task.model
        self.system = system
        self.messages: list[Message] = self._beginning()
        self._drafter: Drafter | None = None
        self._verifier: ResumableVerifier | None = None
        self._held = np.empty(0, np.int32)  # the tokens that the verifier holds
        self._asked = 0

    def ask(self, text: str, show: Show | None = None) -> Reply:
        """The model's answer; `show` sees its text as it comes, and which of it was drafted.

        After Ctrl-C the reply is what was written until then, and part of the conversation.
        Raises InputError where the conversation no longer fits the model's context; nothing is
        added to it then.
        """
        messages = [*self.messages, Message("user", text)]
        prompt = chat_ids(self.model.tokenizer, self.template, messages)
        self._require_room(prompt)
        task = self._task.numbered(self._asked)
        self._asked += 1
        drafter = self._warm_drafter(prompt)
        verifier, held = self._resumed(prompt)
        text, run = written(task, prompt, drafter, show, verifier)
        whole = np.concatenate([prompt, run.token_ids])
        # The last token is read with the next pass; of an accepted path that ended early, more is
        # held than was written.
        self._held = whole[: min(verifier.length, len(whole) - 1)]
        if len(run.token_ids):
            self.messages = [*messages, Message("assistant", text)]
        return Reply(text, run, held)

    def clear(self) -> None:
        """Forgets what was said, the system message apart; what drafts have learnt stays."""
        self.messages = self._beginning()

    @property
    def facts(self) -> dict[str, Any]:
        """What answers are written with, as plain values."""
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

    def _warm_drafter(self, prompt: TokenArray) -> Drafter:
        if self._drafter is None:
            warm_up(self._task, prompt, self.drafter.load(forgetful=True))
            self._drafter = self.drafter.load()
        return self._drafter

    def _resumed(self, prompt: TokenArray) -> tuple[ResumableVerifier, int]:
        """The verifier, rewound to where the prompt and what it holds part (or further, where
        recurrent layers cannot go back so little), and how many tokens it holds then.

        At least one token is left to be read: its logits are what an answer begins with.
        """
        if self._verifier is None:
            self._verifier = self._task.open(prompt)
        self._verifier.rewind(common_beginning(self._held, prompt[:-1]))
        held = self._verifier.length
        self._held = self._held[:held]
        return self._verifier, held
