"""Texts that come with a request to draft from, such as the old version of a file that it edits.

A parameter's value is a text, a list of token ids, or a list of any of these. In a flat list -1
separates the ids of two texts, since vLLM's `vllm_xargs` hold no lists of lists. Nothing is opened
as a path, remembered, or shared between requests.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngramkit.basics.errors import UsageError, one_line, reason
from ngramkit.drafters.references import NO_REFERENCES, REFERENCE_KEY, ReferenceTexts
from ngramkit.engines.metrics import Statistics

LOG = logging.getLogger("ngramkit")
IDS_KEY = "ngramkit_reference_ids"  # all texts' ids, as vLLM's front end adds them
TEMPLATE_KEY = "ngramkit_templates"  # texts of its tools, as front ends add them
TEMPLATE_IDS_KEY = "ngramkit_template_ids"
PREDICTION_KEY = "ngramkit_prediction"  # OpenAI's `prediction`: its text, in workers its ids
MAX_REQUEST_TEXT_BYTES = 1 << 18  # of a request's texts; an id counts as ID_BYTES
ID_BYTES = 4
MAX_RUNNING_TEXT_TOKENS = 1 << 22  # tokens in the texts of all running requests
KEPT_TEMPLATES = 32  # sorted templates, since an agent's requests have the same tools
SEPARATOR = -1  # between the ids of two texts in a flat list

Encode = Callable[[str], Sequence[int]]


def given_texts(*values: Any, id_bytes: int = ID_BYTES) -> list[str | list[int]]:
    """Return the texts and the lists of ids that parameters' values hold, without empty ones.

    `id_bytes`: bytes that an id counts as; 1 for ids of texts whose bytes were counted before.

    Raises UsageError for other values and for more than MAX_REQUEST_TEXT_BYTES.
    """
    texts = [part for value in values for part in _reference_parts(value) if len(part)]
    size = sum(len(t.encode()) if isinstance(t, str) else id_bytes * len(t) for t in texts)
    if size > MAX_REQUEST_TEXT_BYTES:
        raise UsageError(
            f"a request's texts must have at most {MAX_REQUEST_TEXT_BYTES:,} bytes, got {size:,}",
            "Give the parts that matter.",
            option=REFERENCE_KEY,
        )
    return texts


def _reference_parts(value: Any) -> Iterable[str | list[int]]:
    if value is None:
        return
    if not isinstance(value, str | list | tuple):
        raise _wrong_references(value)
    ids: list[int] = []
    for each in [value] if isinstance(value, str) else value:
        if type(each) is int and each >= 0:
            ids.append(each)
            continue
        yield ids
        ids = []
        if isinstance(each, str):
            yield each.encode(errors="replace").decode()  # JSON may hold half a character
        elif isinstance(each, list | tuple) and all(type(i) is int and i >= 0 for i in each):
            yield list(each)
        elif type(each) is not int:
            raise _wrong_references(each)
    yield ids


def _wrong_references(value: Any) -> UsageError:
    return UsageError(
        f"{REFERENCE_KEY} must be texts or lists of token ids, got {type(value).__name__}",
        "Give a text, a list of texts or a list of ids.",
        option=REFERENCE_KEY,
    )


def text_encoder(tokenizer: Any) -> Encode | None:
    """Return a function from a text to its ids; None without a tokenizer."""
    encode = getattr(tokenizer, "encode", None)
    return encode and partial(encode, add_special_tokens=False)


def token_ids(
    texts: Iterable[str | list[int]],
    encode: Encode | None,
    vocabulary: int,
    *,
    strict: bool = True,
) -> list[list[int]]:
    """Return the ids of each text; `vocabulary` in place of ids that are not below it.

    If it is `strict`, raises UsageError for such ids in lists.
    """
    found = []
    for text in texts:
        if isinstance(text, str):
            if encode is None:
                raise UsageError(
                    f"cannot use the texts of {REFERENCE_KEY}: the engine gives no tokenizer",
                    "Give token ids.",
                    option=REFERENCE_KEY,
                )
            found.append([min(int(token), vocabulary) for token in encode(text)])
        elif not strict:
            found.append([min(token, vocabulary) for token in text])
        elif max(text) >= vocabulary:
            raise UsageError(
                f"ids of {REFERENCE_KEY} must be below {vocabulary:,}, got {max(text):,}",
                "Encode the text by the model's own tokenizer.",
                option=REFERENCE_KEY,
            )
        else:
            found.append(text)
    return [ids for ids in found if len(ids)]


def join_with_separator(lists: Iterable[Sequence[int]]) -> list[int]:
    """Return lists of ids as one list, with SEPARATOR between them."""
    joined: list[int] = []
    for ids in lists:
        joined += [SEPARATOR, *ids] if joined else ids
    return joined


class RequestTexts:
    """The references of an engine's running requests, by name; all ranks hold the same."""

    def __init__(self, vocabulary: int, statistics: Statistics, *, able: bool) -> None:
        self._vocabulary, self._statistics, self._able = vocabulary, statistics, able
        self._held: dict[str, ReferenceTexts] = {}
        self._logged: set[str] = set()
        # Those with templates only, by tenant and ids, the oldest first.
        self._kept: dict[tuple[str, str], ReferenceTexts] = {}

    @property
    def tokens(self) -> int:
        return sum(texts.tokens for texts in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def get(self, name: str) -> ReferenceTexts:
        return self._held.get(name, NO_REFERENCES)

    def read(
        self,
        name: str,
        value: Any,
        encode: Encode | None = None,
        *,
        templates: Any = None,
        tenant: str = "",
    ) -> ReferenceTexts:
        """Return what a request drafts from until `drop`.

        A value that cannot be used is counted and logged once, and nothing is drafted from it.
        `templates`: texts or their ids that an answer does not begin with.
        """
        self.drop(name)
        if value is None and (templates is None or not self._able):
            return NO_REFERENCES
        texts = NO_REFERENCES
        try:
            texts = self._texts(value, templates, encode, tenant)
        except UsageError as error:
            self._count_and_warn_once(one_line(error))
        except Exception as error:  # whatever a tokenizer raises
            self._count_and_warn_once(f"cannot use {REFERENCE_KEY}: {reason(error)}")
        self._held[name] = texts
        return texts

    def drop(self, name: str) -> None:
        self._held.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Drop the texts of all other requests."""
        self._held = {name: texts for name, texts in self._held.items() if name in names}

    def _texts(
        self, value: Any, templates: Any, encode: Encode | None, tenant: str
    ) -> ReferenceTexts:
        # The front end has counted bytes and refused ids that the model does not have. Artifacts
        # may know fewer ids, and a text may have as many ids as bytes.
        as_ids = partial(token_ids, encode=encode, vocabulary=self._vocabulary, strict=False)
        own = as_ids(given_texts(value, id_bytes=1))
        if own and not self._able:
            raise UsageError(f"cannot use {REFERENCE_KEY}: the drafter takes no references")
        lists = [*own, *as_ids(given_texts(templates, id_bytes=1))]
        held, new = self.tokens, sum(map(len, lists))
        if held + new > MAX_RUNNING_TEXT_TOKENS:
            raise UsageError(
                "the texts of running requests must have at most "
                f"{MAX_RUNNING_TEXT_TOKENS:,} tokens, got {held + new:,}"
            )
        key = tenant, json.dumps(lists)
        if not lists or key in self._kept:
            return self._kept.get(key, NO_REFERENCES)
        texts = ReferenceTexts([np.array(ids, np.int32) for ids in lists], begins=len(own))
        if not own:
            self._kept[key] = texts
            if len(self._kept) > KEPT_TEMPLATES:
                del self._kept[next(iter(self._kept))]
        return texts

    def _count_and_warn_once(self, what: str) -> None:
        self._statistics.unused_references += 1
        kind = what.partition(", got")[0]
        if kind not in self._logged:
            self._logged.add(kind)
            LOG.warning("%s; the request is not drafted for from it", what)
