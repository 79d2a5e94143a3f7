"""What can go wrong, said in one or two lines: what happened, and what to do about it.

The exit codes are an interface: 0 done, 1 failed or would change, 2 usage, 3 bad input or artifact,
4 network or Hub.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator


class NgramkitError(Exception):
    """`str(error)` is what happened; `error.hint` is what to do, and may be empty.

    Both speak of the library's parameters, by name: top_p, force=True. `error.option` lists those
    that they name, so that another front end can put its own words there: --top-p, --force.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, option: str | tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.option = (option,) if isinstance(option, str) else option


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


def reason(error: Exception) -> str:
    """Why, without the number and the path that an OSError's own text repeats.

    >>> reason(FileNotFoundError(2, "No such file or directory", "notes.txt"))
    'No such file or directory'
    """
    return getattr(error, "strerror", None) or str(error)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, outermost first."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def meant(given: str, known: Iterable[str]) -> str:
    """A hint for a name that is none: the nearest, and all that there are.

    >>> meant("resst", ["rest", "blend"])
    'did you mean rest? There are: rest, blend'
    >>> meant("x", [])
    'there are none'
    """
    names = list(known)
    if not names:
        return "there are none"
    near = difflib.get_close_matches(given, names, n=1)
    asked = f"did you mean {near[0]}? " if near else ""
    return f"{asked}There are: {', '.join(names)}"


def require_between(
    name: str, value: float, least: float, most: float | None = None, hint: str = ""
) -> None:
    """Raises UsageError where the parameter `name` is outside least..most, both included.

    >>> require_between("scan", 2000, 1, 1024)
    Traceback (most recent call last):
    ngramkit.errors.UsageError: scan must be 1 to 1024, is 2000
    """
    if not (value >= least and (most is None or value <= most)):  # so that NaN is refused too
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{name} must be {wanted}, is {value}", hint, option=name)
