"""A process that kills itself at its n-th file-system event, for every n; forked from one driver.

Events are what a program asks of the file system below one folder: to open for writing, to make,
rename, exchange or delete a name, to sync. Each is tried twice where there is something between:
killed before a file is opened, and when it is there but empty; before a file is synced, and with
half of its bytes gone, as a power cut or a full disk leaves it. What other requests the command
makes (of the Hub) count as events, too; what the Hub's own client does in its cache does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import stat
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVENTS = 1000  # more than any command has
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
AUDITED = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink"}


@dataclass
class Outcome:
    """The report of one command: `kills` by what was then at the name, `failures` in words."""

    kills: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def files_below(folder: Path) -> dict[str, str]:
    """Return {name: sha256} of every file below; folders too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


@dataclass(frozen=True)
class Command:
    """`run()` in a folder that `prepare()` has filled; both have it as their working directory.

    What it writes is at `target`: after a kill that must be what it was, or what it shall be, by
    `state()`. `settled()` is what the whole folder holds in the end, however often it was killed.
    `before()` is called ahead of every kill, undisturbed.
    """

    target: str
    prepare: Callable[[], None]
    run: Callable[[], None]
    before: Callable[[], None] = lambda: None
    state: Callable[[], Any] | None = None
    settled: Callable[[], Any] = lambda: files_below(Path())

    def standing(self) -> Any:
        if self.state is not None:
            return self.state()
        found = files_below(Path())
        return {k: v for k, v in found.items() if f"{k}/".startswith(f"{self.target}/")}


class Killer:
    """Count the events below `folder`, and send SIGKILL at the n-th."""

    def __init__(self, folder: Path, nth: int) -> None:
        self.folder = str(folder)
        self.left = nth
        self._inside = False

    def install(self) -> None:
        from ngramkit.formats import replacing

        sys.addaudithook(self._audit)
        os.fsync = self._fsync
        exchange = replacing.exchange_names
        replacing.exchange_names = lambda *paths: self._event(paths[0]) or exchange(*paths)
        for name in ("send", "sendall"):
            send = getattr(socket.socket, name)
            sent = lambda *args, send=send: self._event(self.folder) or send(*args)  # noqa: E731
            setattr(socket.socket, name, sent)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._inside:
            return
        if event == "open" and isinstance(args[0], (str, bytes)) and (args[2] or 0) & WRITING:
            self._event(args[0])
            self._event(args[0], lambda: os.open(args[0], args[2], 0o666))
        elif event in AUDITED:
            self._event(args[0])

    def _fsync(self, descriptor: int) -> None:
        """Nothing is synced: a killed process loses no pages."""
        state = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._event(path)
        if stat.S_ISREG(state.st_mode) and state.st_size:
            self._event(path, lambda: os.truncate(path, state.st_size // 2))

    def _event(self, path: str | bytes | os.PathLike[str], do: Any = None) -> None:
        name = str(Path(os.fsdecode(path)).absolute())
        if not name.startswith(self.folder) or "/home/hub/" in name:
            return
        self.left -= 1
        if self.left:
            return
        self._inside = True
        if do is not None:
            do()
        os.kill(os.getpid(), signal.SIGKILL)


def kill_everywhere(command: Command, scratch: Path) -> Outcome:
    """Run the command undisturbed, then killed at every event, and again after each kill."""
    os.fsync = lambda descriptor: None
    _warm_up(command, scratch / "warm")
    outcome = Outcome()
    start, undisturbed = scratch / "start", scratch / "undisturbed"
    start.mkdir()
    _in(start, command.prepare)
    shutil.copytree(start, undisturbed)
    _in(undisturbed, command.before)
    before = _in(undisturbed, command.standing)
    _in(undisturbed, command.run)
    states = {"the new one, whole": _in(undisturbed, command.standing)}
    states["the old one, whole" if before else "nothing yet"] = before
    expected = _in(undisturbed, command.settled)
    for nth in range(1, EVENTS):
        place = scratch / f"killed-{nth}"
        shutil.copytree(start, place)
        _in(place, command.before)
        if not _killed(command.run, place, nth):
            break
        try:
            outcome.kills[_found(command, place, states)] += 1
            _in(place, command.run)
            again = _in(place, command.settled)
            if again != expected:
                raise AssertionError(f"run again, there is {_difference(again, expected)}")
        except Exception as error:
            outcome.failures.append(f"event {nth}: {type(error).__name__} {error}")
        shutil.rmtree(place)
    return outcome


def _warm_up(command: Command, place: Path) -> None:
    """Import and compile here, for every fork."""
    place.mkdir()
    os.chdir(place)
    for step in (command.prepare, command.before, command.run, command.settled):
        step()


def _found(command: Command, place: Path, states: dict[str, Any]) -> str:
    standing = _in(place, command.standing)
    for name, state in states.items():
        if standing == state:
            return name
    raise AssertionError(f"neither old nor new: {standing} in {sorted(files_below(place))}")


def _in(place: Path, do: Callable[[], Any]) -> Any:
    os.chdir(place)
    return do()


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)]
        return f"another {sorted(keys)}"
    return f"{found}, not {expected}"


def _killed(run: Callable[[], None], place: Path, nth: int) -> bool:
    """Return whether it reached its n-th event and ended there. Raises where it failed by
    itself."""
    errors = place.with_name("errors")
    child = os.fork()
    if child == 0:
        try:
            os.chdir(place)
            killer = Killer(place, nth)
            killer.install()
            run()
            os._exit(0)
        except BaseException:
            errors.write_text(traceback.format_exc())
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise RuntimeError(errors.read_text() if os.WIFEXITED(status) else f"status {status}")
    return False
