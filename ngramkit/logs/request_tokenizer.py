"""Token ids of logged requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.chat import ANSWER, OWN, Message, Template, find_template
from ngramkit.corpus.encoding import replace_surrogates
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.corpus.turns import ASSISTANT, SYSTEM, USER
from ngramkit.drafters.base import TokenArray, common_beginning
from ngramkit.logs.request import NO_TEXT, FilePlace, LoggedRequest, SkippedRecord
from ngramkit.logs.shared_prompts import Borders, SharedPrompts
from ngramkit.logs.skipped import SkipReport

PROMPT_END_CHARS = 1024  # may influence how the output is tokenized
PROMPT_END_MESSAGES = 64
MAX_TEXT_CHARS = 1 << 22  # a tokenizer needs about 200 bytes of memory per character
THINK = "<think>"
MENDED_TEXT = "a request with half a surrogate pair, which became U+FFFD"


class RequestTokens(NamedTuple):
    """A request's token ids, int32[n] each."""

    prompt: TokenArray  # with BOS if the tokenizer adds one
    output: TokenArray  # with EOS if the answer ended and the tokenizer has one
    references: tuple[TokenArray, ...]


class RequestTokenizer:
    """An encoder of requests. `template` is a name for `find_template`.

    With `prompts=False` only the end of each prompt is encoded, as much as may influence the
    output's first token.
    """

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
        self._ids_reported = False
        self._ids_checked = False  # compared with a text of the log
        self._mended = False  # a text of this request had a lone surrogate

    def encoded(
        self, requests: Iterable[LoggedRequest]
    ) -> Iterator[tuple[LoggedRequest, RequestTokens]]:
        """Yield requests with their ids; skip and report those that cannot be encoded.

        Raises UsageError and InputError as `__call__`, and InputError if no request remains.
        """
        skips, count = SkipReport(), 0
        for request in requests:
            self._mended = False
            try:
                tokens = self(request)
            except BadRecordError as error:
                where = request.where or FilePlace(Path(request.name))
                skips.add(SkippedRecord(where, str(error), error.hint))
                continue
            count += 1
            if self._mended:
                skips.parts[MENDED_TEXT] += 1
            yield request, tokens
        skips.print(self._reporter, count)
        if skips.first and not count:
            raise skips.no_request()

    def __call__(self, request: LoggedRequest) -> RequestTokens:
        """Return a request's ids.

        Raises UsageError for an unknown template, BadRecordError for a rejected conversation or a
        text that is too long, InputError for ids of another tokenizer.
        """
        references = tuple(map(self._encode, filter(None, request.references)))
        if not isinstance(request.output, str):
            prompt = request.prompt
            if not isinstance(prompt, np.ndarray):
                prompt = self._encode(self._prompt_text(request)[0])
            elif not self._prompts:
                prompt = prompt[-PROMPT_END_CHARS:]
            self._require_own(prompt, request.output, request)
            return RequestTokens(prompt, request.output, references)
        if request.agent and (tokens := self._of_session(request)) is not None:
            return tokens
        text, joint, has_bos = self._prompt_text(request)
        output = request.output.removesuffix(self._eos)
        if not output:
            raise BadRecordError(NO_TEXT)
        output = _without_opened_thought(text, output)
        text = text if self._prompts else text[-PROMPT_END_CHARS:]
        ended = request.finished or request.output.endswith(self._eos or "\0")
        prompt, ids = self._encode_both(text, joint + output, has_bos=has_bos, ended=ended)
        return RequestTokens(prompt, ids, references)

    @cached_property
    def _shared(self) -> SharedPrompts | None:
        template = self._find_template()
        borders = Borders.of(template)
        if borders is None:
            self._reporter.note("each prompt is rendered alone: the template has no fixed borders")
            return None
        begin = [id for id in self._begin if id is not None and template.name != OWN]
        return SharedPrompts(borders, self._encode, begin)

    def _of_session(self, request: LoggedRequest) -> RequestTokens | None:
        """Return a request's ids, whose prompt is a view; None if the template must render it."""
        prompt = request.prompt
        if not isinstance(prompt, MessagePrefix) or not isinstance(request.output, str):
            return None
        shared = self._shared
        end = None if shared is None else shared.borders.end(prompt, PROMPT_END_CHARS)
        if shared is None or end is None:
            return None
        end = end[-PROMPT_END_CHARS:]
        joint = self._find_template().joint
        output = joint + _without_opened_thought(end, request.output)
        before, ids = self._encode_both(end, output, has_bos=True, ended=request.finished)
        if not self._prompts:
            return RequestTokens(before, ids, ())
        whole = shared.tokens(prompt)
        if whole is None:
            return None
        # The output may begin with a token that the prompt's end is part of.
        return RequestTokens(whole[: len(whole) + len(before) - len(self._encode(end))], ids, ())

    def _encode(self, text: str) -> TokenArray:
        if len(text) > MAX_TEXT_CHARS:
            raise BadRecordError(f"a text must have at most {MAX_TEXT_CHARS:,} characters")
        try:
            return self._tokenizer.encode(text)
        except BadRecordError:
            self._mended = True
            return self._tokenizer.encode(*replace_surrogates([text]))

    def _prompt_text(self, request: LoggedRequest) -> tuple[str, str, bool]:
        """Return the prompt, the white space before the answer, and whether it has a BOS."""
        prompt = request.prompt
        if isinstance(prompt, str):
            # Some recorders keep EOS in the text.
            return prompt.removesuffix(self._eos), "", False
        if isinstance(prompt, np.ndarray):
            return self._tokenizer.decode(prompt), "", False
        template = self._find_template()
        messages = [
            Message(role, content.removesuffix(self._eos))
            for role, content in (prompt if self._prompts else _prompt_end(prompt))
        ]
        own = template.name == OWN
        if request.continued:
            unfinished = Message(ASSISTANT, messages.pop().content + ANSWER)
            text, found, _ = template.prompt([*messages, unfinished]).rpartition(ANSWER)
            if not found:
                raise BadRecordError("cannot continue an answer: the chat template ends it")
            return text, "", own
        return template.prompt(messages), template.joint, own

    def _find_template(self) -> Template:
        if self.template is None:
            self.template = find_template(self._name, self._tokenizer)
            self._reporter.note(str(self.template))
        return self.template

    def _require_own(self, prompt: TokenArray, output: TokenArray, request: LoggedRequest) -> None:
        """Raise InputError for ids outside the vocabulary, or that do not decode to its text."""
        highest = max(prompt.max(initial=0), output.max(initial=0))
        wanted = "" if self._ids_checked else letters_and_digits(request.text)[:64]
        if highest >= self._tokenizer.record.vocabulary or (
            wanted and wanted not in letters_and_digits(self._tokenizer.decode(output))
        ):
            raise InputError(
                f"cannot use {self._tokenizer.record.id}: the token ids in "
                f"{request.where or 'the log'} are not its own",
                "Give the model that wrote them.",
                option="model",
            )
        self._ids_checked = self._ids_checked or bool(wanted)
        if not self._ids_reported:
            self._ids_reported = True
            self._reporter.note(
                f"the log's token ids are read as those of {self._tokenizer.record.id}"
            )

    def _encode_both(
        self, prompt: str, output: str, *, has_bos: bool, ended: bool
    ) -> tuple[TokenArray, TokenArray]:
        """Encode both together, so that the output begins at a token border."""
        tokenizer = self._tokenizer
        begin = [] if has_bos else self._begin
        end = [] if tokenizer.record.eos is None or not ended else [tokenizer.record.eos]
        both = self._encode(prompt + output)
        cut = common_beginning(self._encode(prompt), both)
        if cut == len(both) and not end:
            raise BadRecordError(NO_TEXT)
        if len(begin) and len(both) and both[0] == begin[0]:
            begin = []
        return (
            np.array([*begin, *both[:cut]], np.int32),
            np.array([*both[cut:], *end], np.int32),
        )


def _prompt_end(messages: Sequence[Message]) -> list[Message]:
    at, size = len(messages), 0
    while at and not (
        size >= PROMPT_END_CHARS
        and (messages[at].role == USER or len(messages) - at > PROMPT_END_MESSAGES)
    ):
        at -= 1
        size += len(messages[at].content)
    head = [messages[0]] if at and messages[0].role == SYSTEM else []
    return [*head, *(messages[i] for i in range(at, len(messages)))]


def _without_opened_thought(prompt: str, output: str) -> str:
    """Drop the mark of a thought that the prompt has opened."""
    if not prompt.rstrip().endswith(THINK) or not output.startswith(THINK):
        return output
    return output.removeprefix(THINK).removeprefix(prompt[len(prompt.rstrip()) :])


def letters_and_digits(text: str) -> str:
    """Return the letters and digits; decoders differ in white space."""
    return "".join(filter(str.isalnum, text))
