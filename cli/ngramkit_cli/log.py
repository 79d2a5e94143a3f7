"""The library's log on the screen: warnings; with -v all of it, with -vv other libraries' too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIBRARY = "ngramkit"
NOTICE = 25  # between INFO and WARNING: why something takes long
logging.addLevelName(NOTICE, "NOTICE")


class Notes(logging.Handler):
    """A handler that writes records as lines for people."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(NOTICE)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        self._note(prefix + record.getMessage())


@contextmanager
def log_to(note: Callable[[str], None], verbosity: int) -> Iterator[None]:
    """Send warnings to `note`; with a verbosity above 0 everything to stderr, with times."""
    logger = logging.getLogger("" if verbosity > 1 else LIBRARY)
    level = logger.level
    handler: logging.Handler = Notes(note)
    if verbosity == 0:
        logger.setLevel(NOTICE)
    if verbosity > 0:
        from rich.console import Console
        from rich.logging import RichHandler

        console = Console(stderr=True)
        handler = RichHandler(console=console, show_path=False, highlighter=None, markup=False)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
