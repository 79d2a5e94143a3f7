"""A real server as a process of its own: started, waited for, asked, counted, ended."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

UNSET = ("PYTHONPATH", "NGRAMKIT_DRAFT")  # variables of this process that a server must not see
STARTS = 600  # seconds that a start may take


class ServerProcess:
    """A server that `command` starts, as a context that is entered when it answers /health.

    Its output goes to `log`. `draft`: its NGRAMKIT_DRAFT; an object also gets a `metrics_file` that
    is written every `log_steps` rows. Raises RuntimeError with the log's last lines where the
    server does not start.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        port: int,
        log: Path,
        draft: Mapping[str, Any] | str | None = None,
        log_steps: int = 1,
    ) -> None:
        self.port, self.log = port, log
        self.metrics_file = log.resolve().with_name("draft.prom")
        self.metrics_file.unlink(missing_ok=True)
        environment = {name: text for name, text in environment.items() if name not in UNSET}
        if isinstance(draft, str):
            environment["NGRAMKIT_DRAFT"] = draft
        elif draft is not None:
            counted = {"log_steps": log_steps, "metrics": str(self.metrics_file)}
            environment["NGRAMKIT_DRAFT"] = json.dumps({**counted, **draft})
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def __enter__(self) -> Self:
        try:
            self._wait_for_health()
        except BaseException:  # an interrupt too: nothing else ends it
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def _wait_for_health(self) -> None:
        until = time.monotonic() + STARTS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(self.tail())
            try:
                self.get("health", timeout=5)
                return
            except OSError:
                time.sleep(1)
        raise RuntimeError(f"not ready within {STARTS} s: {self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-30:])

    def get(self, path: str, timeout: float = 60) -> str:
        url = f"http://127.0.0.1:{self.port}/{path}"
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON that answers `body`; None where the answer is empty."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def events(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of a streamed answer; the client leaves where no more are taken."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            whole = json.dumps({"stream": True, **body})
            connection.request("POST", f"/{path}", whole, {"Content-Type": "application/json"})
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def counters(self, metrics: Mapping[str, str]) -> Counter[str]:
        """Return the sums of `metrics` by name, and the seconds of its processors and of drafting.

        Drafting is counted if the server was given an object to draft by.
        """
        sums = prometheus_sums(self.get("metrics"))
        counts: Any = Counter({name: sums.get(metric, 0.0) for name, metric in metrics.items()})
        counts["processor"] = self.processor_seconds()
        if self.metrics_file.exists():
            ours = prometheus_sums(self.metrics_file.read_text("utf-8"))
            counts["drafting"] = ours["ngramkit_draft_seconds_total"]
        found: Counter[str] = counts
        return found

    def is_idle_within(self, seconds: float, metrics: Mapping[str, str]) -> bool:
        """Wait until no request is running or waiting, by these names of `metrics`."""
        until = time.monotonic() + seconds
        while (counts := self.counters(metrics))["running"] or counts["waiting"]:
            if time.monotonic() > until:
                return False
            time.sleep(1)
        return True

    def processor_seconds(self) -> float:
        """Return the processor time of all of the server's processes."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[3]) == self._process.pid:  # its session
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def prometheus_sums(text: str) -> dict[str, float]:
    """Return each metric's sum over its labels."""
    sums: dict[str, float] = {}
    for name, value in re.findall(r"^([\w:]+)(?:\{[^}]*\})? (\S+)$", text, re.M):
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def try_wrong_configurations(serve: Callable[[str], ServerProcess]) -> Iterator[str]:
    """Start servers (`serve`) with a wrong NGRAMKIT_DRAFT: each has to end, with the cause last.

    Yield each failure.
    """
    wrong = {
        "bad JSON": ("{", "not JSON"),
        "no artifact": ('{"datastores": ["/nowhere"]}', "no such artifact: /nowhere"),
        "an unknown key": ('{"drafer": "rest"}', "Did you mean drafter?"),
    }
    for name, (draft, cause) in wrong.items():
        started = time.monotonic()
        try:
            with serve(draft):
                yield f"{name}: it serves"
        except RuntimeError as error:
            last = str(error).strip().rpartition("\n")[2]
            print(f"{name}: told after {time.monotonic() - started:.0f} s: {last}")
            if cause not in last:
                yield f"{name}: its last line is {last!r}"
