"""What storages raise, as errors that say what to do. One place for all of them.

s3fs, gcsfs, aiohttp and the Hub's client wrap the errors of the clients below them, so the
whole chain of causes is looked through. What a server has written stays off the screen; its status
and the code of its answer are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ngramkit.errors import InputError, NetworkError, NgramkitError, causes
from ngramkit.visible import visible

CODE = re.compile(r"[A-Za-z]{3,60}")  # as SlowDown, NoSuchBucket
LOG_IN = (
    "log in to the storage: s3:// takes AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " gs:// GOOGLE_APPLICATION_CREDENTIALS, hf:// HF_TOKEN; a public bucket FSSPEC_S3_ANON=true"
)
AGAIN = "check the network, then run the same command again: what is finished is kept"
DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
NOBODY = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"}


@contextmanager
def storage_errors(what: str, doing: str = "read") -> Iterator[None]:
    """Inside, errors about `what` (a label, no URL) become InputError or NetworkError.

    The package behind a storage may raise anything, so whatever it is becomes one line.
    """
    try:
        yield
    except NgramkitError:
        raise
    except Exception as error:
        raise as_known(error, what, doing) from error


def as_known(error: BaseException, what: str, doing: str = "read") -> NgramkitError:
    """The error to show in place of `error`."""
    chain = list(causes(error))
    names = {kind.__name__ for each in chain for kind in type(each).__mro__}
    status, code = _answer(chain)
    if names & NOBODY:
        return NetworkError(f"{what}: nobody is logged in to its storage", LOG_IN)
    if code in DENIED or status in (401, 403) or "PermissionError" in names:
        return NetworkError(f"{what} may not be {_done(doing)}{_said(status, code)}", LOG_IN)
    if status == 404 or "FileNotFoundError" in names:
        return InputError(f"{what} is not there{_said(None, code)}", "check the URL")
    if status is not None or code:
        answer = f"{what} cannot be {_done(doing)}: the storage answers{_said(status, code, ' ')}"
        return NetworkError(answer, AGAIN)
    if any("Checksum" in name for name in names):
        return NetworkError(f"{what} arrived damaged: its checksum differs", AGAIN)
    if {"TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"} & names:
        return NetworkError(f"{what} cannot be {_done(doing)}: no answer in time", AGAIN)
    if any("Connect" in name or "Payload" in name for name in names):
        return NetworkError(f"{what} cannot be {_done(doing)}: the connection failed", AGAIN)
    if isinstance(error, OSError) and error.filename is not None:  # of this machine's own disk
        raise error
    kind = visible(type(error).__name__)
    return NetworkError(f"{what} cannot be {_done(doing)}: {kind}", "try again, or fetch the files")


def _done(doing: str) -> str:
    return {"read": "read", "write": "written"}[doing]


def _said(status: int | None, code: str, before: str = ": ") -> str:
    """As ": 503 SlowDown"; nothing where nothing is known."""
    said = " ".join(part for part in (str(status or ""), code) if part)
    return f"{before}{said}" if said else ""


def _answer(chain: list[BaseException]) -> tuple[int | None, str]:
    """The HTTP status and the storage's own code, of the first error that has them."""
    for error in chain:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = str(response.get("Error", {}).get("Code", ""))
        else:  # huggingface_hub; aiohttp; gcsfs
            found = getattr(response, "status_code", None) or getattr(error, "status", None)
            status, code = found or getattr(error, "code", None), ""
        status = status if type(status) is int and 400 <= status < 600 else None
        if status or CODE.fullmatch(code):
            return status, code if CODE.fullmatch(code) else ""
    return None, ""
