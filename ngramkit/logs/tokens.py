"""Requests of a log as token ids: what a model read, and what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.chat import OWN, PLACEHOLDER, Message, Template, find_template
from ngramkit.corpus.shapes import ASSISTANT, SYSTEM, USER
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray, common_beginning
from ngramkit.logs.losses import Losses
from ngramkit.logs.request import NO_TEXT, FilePlace, LeftOut, LoggedRequest

COMPARED = 64  # letters of a text
NEAR = 1024  # characters of a prompt that may decide how its output is cut into tokens
NEAR_MESSAGES = 64
LONGEST = 1 << 22  # characters of a text; a tokenizer takes some 200 bytes of memory for each
THINK = "<think>"


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

    def encoded(
        self, requests: Iterable[LoggedRequest]
    ) -> Iterator[tuple[LoggedRequest, RequestTokens]]:
        """Yield requests with their ids. Those that cannot have any are left out, and counted in
        one line at the end.

        Raises as a call, and InputError if no request is left.
        """
        losses, count = Losses(), 0
        for request in requests:
            try:
                tokens = self(request)
            except BadRecordError as error:
                where = request.where or FilePlace(Path(request.name))
                losses.add(LeftOut(where, str(error), error.hint))
                continue
            count += 1
            yield request, tokens
        losses.report(self._reporter, count)
        if losses.first and not count:
            raise losses.error()

    def __call__(self, request: LoggedRequest) -> RequestTokens:
        """Return a request's ids.

        Raises UsageError where no template is known, BadRecordError if a template refuses the
        conversation or a text is too long, InputError where the log's own ids are not this
        tokenizer's.
        """
        references = tuple(map(self._encode, filter(None, request.references)))
        if not isinstance(request.output, str):
            prompt = request.prompt
            if not isinstance(prompt, np.ndarray):
                prompt = self._encode(self._text(request)[0])
            elif not self._prompts:
                prompt = prompt[-NEAR:]
            self._require_own(prompt, request.output, request.text)
            return RequestTokens(prompt, request.output, references)
        text, joint, whole = self._text(request)
        output = request.output.removesuffix(self._eos)
        if not output:
            raise BadRecordError(NO_TEXT)
        if text.rstrip().endswith(THINK) and output.startswith(THINK):
            output = output.removeprefix(THINK).removeprefix(text[len(text.rstrip()) :])
        text = text if self._prompts else text[-NEAR:]
        ended = request.finished or request.output.endswith(self._eos or "\0")
        prompt, ids = self._encoded(text, joint + output, whole=whole, ended=ended)
        return RequestTokens(prompt, ids, references)

    def _encode(self, text: str) -> TokenArray:
        if len(text) > LONGEST:
            raise BadRecordError(f"a text of more than {LONGEST:,} characters")
        return self._tokenizer.encode(text)

    def _text(self, request: LoggedRequest) -> tuple[str, str, bool]:
        """Return the text that the model read, the white space before its answer, and whether the
        text has its own BOS."""
        prompt = request.prompt
        if isinstance(prompt, str):
            # Some recorders leave EOS in the text; templates add their own.
            return prompt.removesuffix(self._eos), "", False
        if isinstance(prompt, np.ndarray):
            return self._tokenizer.decode(prompt), "", False
        if self.template is None:
            self.template = find_template(self._name, self._tokenizer)
            self._reporter.note(str(self.template))
        messages = prompt if self._prompts else _end(prompt)
        spoken = [Message(m.role, m.content.removesuffix(self._eos)) for m in messages]
        own = self.template.name == OWN
        if request.continued:
            last = spoken.pop()
            open_one = Message(ASSISTANT, last.content + PLACEHOLDER)
            text, found, _ = self.template.prompt([*spoken, open_one]).rpartition(PLACEHOLDER)
            if not found:
                raise BadRecordError("the chat template keeps no answer open")
            return text, "", own
        return self.template.prompt(spoken), self.template.joint, own

    def _require_own(self, prompt: TokenArray, output: TokenArray, text: str) -> None:
        """Raise InputError where ids are above this tokenizer's, or where the first output with a
        `text` does not decode to the letters of that."""
        most = max(prompt.max(initial=0), output.max(initial=0))
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

    def _encoded(
        self, prompt: str, output: str, *, whole: bool, ended: bool
    ) -> tuple[TokenArray, TokenArray]:
        """Tokenise prompt and output together, so that their border falls as the model had it."""
        tokenizer = self._tokenizer
        begin = [] if whole else self._begin
        end = [] if tokenizer.record.eos is None or not ended else [tokenizer.record.eos]
        alone, both = self._encode(prompt), self._encode(prompt + output)
        cut = common_beginning(alone, both)
        if cut == len(both) and not end:
            raise BadRecordError(NO_TEXT)
        if len(begin) and len(both) and both[0] == begin[0]:
            begin = []
        return (
            np.array([*begin, *both[:cut]], np.int32),
            np.array([*both[cut:], *end], np.int32),
        )


def _end(messages: Sequence[Message]) -> list[Message]:
    """Return the system's message and the last ones, which decide how a prompt ends."""
    at, size = len(messages), 0
    while at and not (
        size >= NEAR and (messages[at].role == USER or len(messages) - at > NEAR_MESSAGES)
    ):
        at -= 1
        size += len(messages[at].content)
    head = [messages[0]] if at and messages[0].role == SYSTEM else []
    return [*head, *(messages[i] for i in range(at, len(messages)))]


def letters(text: str) -> str:
    """Return the letters and digits of a text: decoders differ in white space and the like.

    >>> letters("It 's 2 .")
    'Its2'
    """
    return "".join(filter(str.isalnum, text))
