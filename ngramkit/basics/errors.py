"""Errors with a hint, and the translation of errors of the Hub's clients and of storages.

Those libraries wrap exceptions, so all causes are searched. A storage's error is shown only by
status and code, never by its text.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

from ngramkit.basics.terminal_text import visible, without_secrets


class NgramkitError(Exception):
    """The base of all errors. `str(error)` is the message, `error.hint` the hint or "".

    `error.option` lists the parameters that they name (top_p, force), so that a front end can show
    its own names (--top-p, --force). User, password and query are removed from URLs.
    """

    def __init__(self, message: str, hint: str = "", *, option: str | tuple[str, ...] = ()) -> None:
        super().__init__(without_secrets(message))
        self.hint = hint
        self.option = (option,) if isinstance(option, str) else option

    @property
    def hint(self) -> str:
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        self._hint = without_secrets(text)
        self.__notes__ = [self._hint] if text else []


class UsageError(NgramkitError):
    """A wrong request: an unknown name, an invalid value, options that exclude each other."""


class InputError(NgramkitError):
    """A corpus, model or file that cannot be used."""


class BadRecordError(InputError):
    """An unusable record of a file; the records after it can still be used."""


class ArtifactError(InputError):
    """An artifact that is damaged, foreign, of a newer format or of another tokenizer."""


class WrongKindError(ArtifactError, UsageError):
    """An artifact of a kind that cannot be used here."""


class NetworkError(NgramkitError):
    """The Hub or a storage that is unreachable or refuses access."""


def reason(error: Exception) -> str:
    """Return an error's text, without the number and path of an OSError."""
    return getattr(error, "strerror", None) or str(error)


def one_line(error: NgramkitError) -> str:
    return f"{error}. {error.hint}" if error.hint else str(error)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [repr(error)])[0]


def causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def hint_for_unknown(given: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name.

    >>> hint_for_unknown("resst", ["rest", "blend"])
    'Did you mean rest? Choose one of: rest, blend.'
    """
    names = list(known)
    if not names:
        return "Leave it out: there are none."
    near = difflib.get_close_matches(given, names, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return f"{meant}Choose one of: {', '.join(names)}."


def require_between(
    name: str, value: float, least: float, most: float | None = None, hint: str = ""
) -> None:
    """Raise UsageError unless `value` is in [least, most], TypeError unless it is a number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (value >= least and (most is None or value <= most)):  # also for NaN
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{name} must be {wanted}, got {value}", hint, option=name)


def require_list(name: str, value: Any, hint: str = "") -> None:
    one = isinstance(value, str | bytes | PathLike | Mapping) or hasattr(value, "columns")
    if one or not isinstance(value, Iterable):
        shown = visible(reprlib.repr(value))
        raise UsageError(
            f"{name} must be a list, got {shown}", hint or f"Write {name}=[...].", option=name
        )


def is_utf8(value: Any) -> bool:
    """Return False for a text with a lone surrogate, as from an argument of invalid bytes."""
    try:
        return not isinstance(value, str) or value.encode() is not None
    except UnicodeEncodeError:
        return False


def require_texts(name: str, value: Any) -> None:
    require_list(name, value)
    for each in value:
        if not isinstance(each, str):
            raise UsageError(f"{name} must be texts, got {each!r:.60}", option=name)
        if not is_utf8(each):
            raise UsageError(f"{name} must be UTF-8, got {each!a:.60}", option=name)


def given_paths(name: str, value: Any) -> list[Path]:
    listed = [value] if isinstance(value, str | PathLike) else value
    require_list(name, listed, "Give a path, or a list of them.")
    paths = list(listed)
    for each in paths:
        if not isinstance(each, str | PathLike):
            raise UsageError(f"{name} must be paths, got {each!r:.60}", "Name files.", option=name)
    return [Path(each) for each in paths]


# Errors of the Hub's clients: huggingface_hub, datasets, fsspec, transformers.

TRY_AGAIN = "Check the network, then run the same command again."
TRY_AGAIN_FOR = {"model": "Check the network, or give a model that is on this machine."}
RETRIED_LATER = {429: "too many requests", 500: "an internal error", 503: "it is unavailable"}


@contextmanager
def hub_errors(name: str, what: str = "dataset") -> Iterator[None]:
    """Turn errors of the Hub's clients into NetworkError or InputError; others pass unchanged."""
    try:
        yield
    except NgramkitError:
        raise
    except Exception as error:
        hub_error = translate_hub_error(error, name, what)
        if hub_error is None:
            raise
        raise hub_error from error


def translate_hub_error(
    error: BaseException, name: str, what: str = "dataset"
) -> NgramkitError | None:
    """Return our error for the Hub's; None if `error` is another."""
    from huggingface_hub import errors as hub
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    def caused(*kinds: type[BaseException]) -> BaseException | None:
        return next((cause for cause in causes(error) if isinstance(cause, kinds)), None)

    page = f"hf.co/{'datasets/' if what == 'dataset' else ''}{name}"
    if caused(hub.OfflineModeIsEnabled):
        return NetworkError(
            f"cannot fetch {name}: the Hub is switched off", "Unset HF_HUB_OFFLINE."
        )
    if caused(hub.GatedRepoError):
        return NetworkError(
            f"cannot read {name}: it is gated",
            f"Accept its terms at {page}, then run: hf auth login",
        )
    if caused(hub.RevisionNotFoundError):
        return InputError(f"cannot read {name}: no such revision", f"See {page}/tree/main.")
    if caused(hub.RepositoryNotFoundError):
        return InputError(
            f"cannot find the {what} {name} on the Hub, or it is private",
            "Check the id; for a private one run: hf auth login",
        )
    if caused(hub.HFValidationError):
        return InputError(f"a Hub id must be owner/name, got {name}", "Check the id.")
    refused = caused(hub.HfHubHTTPError, httpx.HTTPStatusError)
    if refused is not None:
        return _hub_refusal(refused, name, what)
    if caused(httpx.TransportError, ConnectionError, TimeoutError):
        return NetworkError(f"cannot reach the Hub for {name}", TRY_AGAIN_FOR.get(what, TRY_AGAIN))
    return None


def _hub_refusal(error: BaseException, name: str, what: str) -> NgramkitError:
    response = getattr(error, "response", None)
    status = response.status_code if response is not None else 0
    if status == 404:
        return InputError(f"cannot find {name} on the Hub", "Check the id: owner/name.")
    if status in (401, 403):
        return NetworkError(f"cannot access {name}: the Hub refuses it", _log_in_hint(name, status))
    answer = f"the Hub answers {status} for {name}: {RETRIED_LATER.get(status, 'an error')}"
    return NetworkError(answer, TRY_AGAIN_FOR.get(what, TRY_AGAIN))


def _log_in_hint(name: str, status: int) -> str:
    from huggingface_hub import get_token

    if status == 401 or get_token() is None:
        return "Run: hf auth login"
    owner = name.partition("/")[0]
    return f"Log in as somebody who may use {owner}'s repositories, or choose your own namespace."


# Errors of storages: s3fs, gcsfs, aiohttp, the Hub's file system.

CODE = re.compile(r"[A-Za-z]{3,60}")  # such as SlowDown, NoSuchBucket
LOG_IN = (
    "Log in to the storage: s3:// takes AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " gs:// GOOGLE_APPLICATION_CREDENTIALS, hf:// HF_TOKEN; a public bucket FSSPEC_S3_ANON=true."
)
DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
NOT_LOGGED_IN = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"}


@contextmanager
def storage_errors(what: str, action: str = "read") -> Iterator[None]:
    """Turn errors about `what`, a label, into InputError or NetworkError.

    `action` is "read" or "write".
    """
    try:
        yield
    except NgramkitError:
        raise
    except Exception as error:
        raise translate_storage_error(error, what, action) from error


def translate_storage_error(error: BaseException, what: str, action: str) -> NgramkitError:
    chain = list(causes(error))
    names = {kind.__name__ for each in chain for kind in type(each).__mro__}
    status, code = _status_and_code(chain)
    if names & NOT_LOGGED_IN:
        return NetworkError(f"cannot access {what}: not logged in to its storage", LOG_IN)
    if code in DENIED or status in (401, 403) or "PermissionError" in names:
        return NetworkError(
            f"cannot {action} {what}: no permission{_answer_text(status, code)}", LOG_IN
        )
    late = {"TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"} & names
    cut_off = any("Connect" in name or name in ("ClientPayloadError", "gaierror") for name in names)
    # fsspec's web client raises FileNotFoundError from a failed connection.
    if status == 404 or ("FileNotFoundError" in names and not (late or cut_off)):
        return InputError(
            f"cannot {action} {what}: it does not exist{_answer_text(None, code)}", "Check the URL."
        )
    if status is not None or code:
        answer = f"the storage answers{_answer_text(status, code, ' ')}"
        return NetworkError(f"cannot {action} {what}: {answer}", TRY_AGAIN)
    if any("Checksum" in name for name in names):
        return NetworkError(f"cannot {action} {what}: its checksum differs", TRY_AGAIN)
    if late:
        return NetworkError(f"cannot {action} {what}: no answer in time", TRY_AGAIN)
    if cut_off:
        return NetworkError(f"cannot {action} {what}: the connection failed", TRY_AGAIN)
    if isinstance(error, OSError) and error.filename is not None:  # a local file
        raise error
    kind = visible(type(error).__name__)
    return NetworkError(f"cannot {action} {what}: {kind}", "Try again, or fetch the files.")


def _answer_text(status: int | None, code: str, before: str = ": ") -> str:
    text = " ".join(part for part in (str(status or ""), code) if part)
    return f"{before}{text}" if text else ""


def _status_and_code(chain: list[BaseException]) -> tuple[int | None, str]:
    for error in chain:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = str(response.get("Error", {}).get("Code", ""))
        else:  # huggingface_hub; aiohttp; gcsfs
            answer = getattr(response, "status_code", None) or getattr(error, "status", None)
            status, code = answer or getattr(error, "code", None), ""
        status = status if type(status) is int and 400 <= status < 600 else None
        if status or CODE.fullmatch(code):
            return status, code if CODE.fullmatch(code) else ""
    return None, ""
