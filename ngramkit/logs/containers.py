"""Log lines as container runtimes wrap them: Kubernetes' (CRI) and Docker's json-file.

    2026-11-24T12:00:00.0Z stderr P the first part
    2026-11-24T12:00:00.0Z stderr F the rest
    {"log": "a line, or a part of 16 KiB without a line end\\n", "stream": "stderr", "time": "..."}

Source: kubernetes pkg/kubelet/kuberuntime/logs/logs.go; moby daemon/logger/jsonfilelog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ngramkit.corpus.turns import Unread
from ngramkit.corpus.unpacking import MAX_DOCUMENT

CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::\w+)* ")
DOCKER_KEYS = {"log", "stream", "time", "attrs"}
JOINED = "a line that a container runtime had split"
INCOMPLETE = "a line whose other parts the file does not hold"

NumberedLine = tuple[int, bytes]


class Part(NamedTuple):
    stream: bytes
    text: bytes
    is_last: bool


def join_parts(
    lines: Iterator[NumberedLine], parse: Callable[[bytes], Part | None], unread: Unread
) -> Iterator[NumberedLine]:
    """Yield the program's lines, each with the number of its last part.

    `parse`: the one of PARSERS that parses the first line. `unread` counts joined and dropped lines
    by reason.
    """
    unfinished: dict[bytes, bytearray] = {}  # lines by stream
    for number, line in lines:
        part = parse(line)
        if part is None:
            unread["a line that the container runtime did not write"] += 1
            continue
        is_split = part.stream in unfinished
        whole = unfinished.setdefault(part.stream, bytearray())
        whole += part.text[: MAX_DOCUMENT + 1 - len(whole)]
        if not part.is_last:
            continue
        del unfinished[part.stream]
        if len(whole) > MAX_DOCUMENT:
            unread[f"a line of more than {MAX_DOCUMENT:,} bytes"] += 1
        elif whole:
            if is_split:
                unread[JOINED] += 1
            yield number, bytes(whole)
    if unfinished:
        unread[INCOMPLETE] += len(unfinished)


def _parse_cri(line: bytes) -> Part | None:
    match = CRI.match(line)
    return None if match is None else Part(match[1], line[match.end() :], match[2] == b"F")


def _parse_docker(line: bytes) -> Part | None:
    if not line.startswith(b'{"log":'):
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not body.keys() <= DOCKER_KEYS or "stream" not in body:
        return None
    text = body["log"]
    if not isinstance(text, str):
        return None
    part = text.rstrip("\r\n").encode("utf-8", "replace")
    return Part(str(body["stream"]).encode(), part, text.endswith("\n"))


PARSERS = (_parse_cri, _parse_docker)  # of a wrapped line; None for any other line
