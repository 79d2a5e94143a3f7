"""What can go wrong, said in one or two lines: what happened, and what to do about it.

The exit codes are an interface: 0 done, 1 failed or would change, 2 usage, 3 bad input or artifact,
4 network or Hub.
"""

from __future__ import annotations


class NgramkitError(Exception):
    """`str(error)` is what happened; `error.hint` is what to do, and may be empty."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(NgramkitError):
    """The request makes no sense as put: an unknown name, options that exclude each other."""

    exit_code = 2


class InputError(NgramkitError):
    """A corpus, model or file that was asked for cannot be used."""

    exit_code = 3


class ArtifactError(InputError):
    """An artifact is damaged, foreign, of a newer format or of another tokenizer."""


class NetworkError(NgramkitError):
    """The Hub could not be reached, or refused."""

    exit_code = 4
