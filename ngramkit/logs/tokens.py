"""Requests of a log as token ids: what a model read, and what it wrote."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.chat import OWN, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray, common_beginning
from ngramkit.logs.request import LoggedRequest, Prompt, TokenIds

COMPARED = 64  # letters of a text
NEAR = 1024  # characters of a prompt that may decide how its output is cut into tokens


class RequestTokens(NamedTuple):
    """A request's ids; the last of the output is EOS where the tokenizer has one."""

    prompt: TokenArray  # int32[n], BOS included where the model reads one
    output: TokenArray  # int32[m]
    references: tuple[TokenArray, ...]  # int32[k] each


class RequestTokenizer:
    """Encoder of requests. `template` is how conversations became prompts, see `find_template`; it
    is looked for when the first conversation comes, and None until then. Without `prompts` only the
    ends of prompts are encoded, which decide how their outputs begin."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        template: str = "auto",
        reporter: Reporter = SILENT,
        *,
        prompts: bool = True,
    ) -> None:
        self.template: Template | None = None
        self._tokenizer, self._name, self._reporter = tokenizer, template, reporter
        self._eos = tokenizer.eos_token or ""
        self._begin = [tokenizer.bos] if tokenizer.adds_bos else []
        self._prompts = prompts
        self._noted = False  # that ids are taken as they are
        self._compared = False  # ids with a text

    def __call__(self, request: LoggedRequest) -> RequestTokens:
        """Return a request's ids.

        Raises UsageError where no template is known, InputError where one refuses the conversation,
        or where the log's own ids are not this tokenizer's.
        """
        references = tuple(map(self._tokenizer.encode, filter(None, request.references)))
        if isinstance(request.output, list):
            prompt: Any = request.prompt
            if len(prompt) and not _are_ids(prompt):
                prompt = self._tokenizer.encode(self._text(prompt)[0]).tolist()
            self._require_own(prompt, request.output, request.text)
            ids = np.array(prompt, np.int32), np.array(request.output, np.int32)
            return RequestTokens(*ids, references)
        text, joint, whole = self._text(request.prompt)
        output = joint + request.output.removesuffix(self._eos)
        text = text if self._prompts else text[-NEAR:]
        return RequestTokens(*self._encoded(text, output, whole=whole), references)

    def _text(self, prompt: Prompt) -> tuple[str, str, bool]:
        """Return the text that the model read, the white space before its answer, and whether the
        text has its own BOS."""
        if isinstance(prompt, str):
            # Some recorders leave EOS in the text; templates add their own.
            return prompt.removesuffix(self._eos), "", False
        if _are_ids(prompt):
            return self._tokenizer.decode(prompt), "", False
        if self.template is None:
            self.template = find_template(self._name, self._tokenizer)
            self._reporter.note(str(self.template))
        messages = [message for message in prompt if isinstance(message, Message)]
        spoken = [Message(m.role, m.content.removesuffix(self._eos)) for m in messages]
        return self.template.prompt(spoken), self.template.joint, self.template.name == OWN

    def _require_own(self, prompt: TokenIds, output: TokenIds, text: str) -> None:
        """Raise InputError where ids are above this tokenizer's, or where the first output with a
        `text` does not decode to the letters of that."""
        most = max(max(prompt, default=0), max(output, default=0))
        wanted = "" if self._compared else letters(text)[:COMPARED]
        if most >= self._tokenizer.record.vocabulary or (
            wanted and wanted not in letters(self._tokenizer.decode(output))
        ):
            raise InputError(
                f"the log's token ids are not those of {self._tokenizer.record.id}",
                "name the model that wrote them",
                option="model",
            )
        self._compared = self._compared or bool(wanted)
        if not self._noted:
            self._noted = True
            self._reporter.note(f"token ids of the log, as {self._tokenizer.record.id}'s")

    def _encoded(self, prompt: str, output: str, *, whole: bool) -> tuple[TokenArray, TokenArray]:
        """Tokenise prompt and output together, so that their border falls as the model had it."""
        tokenizer = self._tokenizer
        begin = [] if whole else self._begin
        end = [] if tokenizer.record.eos is None else [tokenizer.record.eos]
        alone, both = tokenizer.encode(prompt), tokenizer.encode(prompt + output)
        cut = common_beginning(alone, both)
        if len(begin) and len(both) and both[0] == begin[0]:
            begin = []
        return (
            np.array([*begin, *both[:cut]], np.int32),
            np.array([*both[cut:], *end], np.int32),
        )


def letters(text: str) -> str:
    """Return the letters and digits of a text: decoders differ in white space and the like.

    >>> letters("It 's 2 .")
    'Its2'
    """
    return "".join(filter(str.isalnum, text))


def _are_ids(prompt: Prompt) -> TypeGuard[TokenIds]:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int)
