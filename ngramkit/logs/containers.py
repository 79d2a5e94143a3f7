"""Lines as a container's runtime wraps them: Kubernetes' (CRI) and Docker's json-file.

    2026-11-24T12:00:00.0Z stderr P the beginning of a line that was cut
    2026-11-24T12:00:00.0Z stderr F the rest of it
    {"log": "a line, or a part of 16 KiB without a line end\\n", "stream": "stderr", "time": "..."}

The parts of a line are joined, per stream. Read from: kubernetes/kubernetes
pkg/kubelet/kuberuntime/logs/logs.go (ParseCRILog, ParseJSONLog); moby/moby
daemon/logger/jsonfilelog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain

from ngramkit.corpus.unpacking import MAX_DOCUMENT

CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::\w+)* ")
DOCKER = {"log", "stream", "time", "attrs"}
JOINED = "a line joined of the parts that a container's runtime made of it"
CUT = "a line whose other parts the file does not hold"
TOO_LONG = f"a line of more than {MAX_DOCUMENT:,} bytes"

Numbered = tuple[int, bytes]  # a line and its number
Parsed = tuple[bytes, bytes, bool]  # a stream, a part of a line, whether it ends the line


def unwrapped(lines: Iterator[Numbered], lose: Callable[[str], None]) -> Iterator[Numbered]:
    """Yield the lines that a program wrote, each with the number of its last part.

    Lines that no runtime wrapped are yielded as they stand. `lose` counts what was joined or cut.
    """
    first = next(lines, None)
    if first is None:
        return iter(())
    parse = next((p for p in (_cri, _docker) if p(first[1]) is not None), None)
    whole = chain([first], lines)
    return whole if parse is None else _joined(whole, parse, lose)


def _joined(
    lines: Iterator[Numbered], parse: Callable[[bytes], Parsed | None], lose: Callable[[str], None]
) -> Iterator[Numbered]:
    begun: dict[bytes, list[bytes]] = {}  # stream: parts of its line
    sizes: dict[bytes, int] = {}
    for number, line in lines:
        parsed = parse(line)
        if parsed is None:
            lose("a line that a container's runtime did not write")
            continue
        stream, text, ends = parsed
        sizes[stream] = sizes.get(stream, 0) + len(text)
        parts = begun.setdefault(stream, [])
        if sizes[stream] <= MAX_DOCUMENT:
            parts.append(text)
        else:
            parts.clear()
        if not ends:
            continue
        if sizes.pop(stream) > MAX_DOCUMENT:
            lose(TOO_LONG)
        elif whole := b"".join(begun[stream]):
            if len(parts) > 1:
                lose(JOINED)
            yield number, whole
        del begun[stream]
    for _ in begun:
        lose(CUT)


def _cri(line: bytes) -> Parsed | None:
    match = CRI.match(line)
    return None if match is None else (match[1], line[match.end() :], match[2] == b"F")


def _docker(line: bytes) -> Parsed | None:
    if not line.startswith(b'{"log":'):
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not body.keys() <= DOCKER or "stream" not in body:
        return None
    text = body["log"]
    if not isinstance(text, str):
        return None
    part = text.rstrip("\r\n").encode("utf-8", "replace")
    return str(body["stream"]).encode(), part, text.endswith("\n")
