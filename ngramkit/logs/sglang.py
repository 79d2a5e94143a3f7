"""SGLang's request log, where it holds whole texts: `--log-requests --log-requests-level 3`.

    ... Finish: obj=GenerateReqInput(rid='...', text='PROMPT', ...), out={'text': 'OUTPUT', ...}

or, with `--log-requests-format json` (and `--log-requests-target FOLDER`), among other lines

    {"timestamp": "...", "event": "request.finished", "rid": "...", "obj": {"text": "PROMPT",
     "input_ids": null, ...}, "out": {"text": "OUTPUT", "output_ids": [1, 2], ...}}

Level 2 cuts texts in their middle: those requests are left out.

Read from: sgl-project/sglang python/sglang/srt/utils/request_logger.py at 01bb912.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ngramkit.errors import InputError
from ngramkit.logs.request import Found, Line, LoggedRequest, is_ids, seconds
from ngramkit.logs.vllm import IDS, TEXT
from ngramkit.untrusted import parse_json

FINISHED = '"event": "request.finished"'
BEGIN = re.compile(rf"Finish: obj=GenerateReqInput\((?:rid=(None|{TEXT}|\[))?")
ASKED = re.compile(rf"[(, ]text=(None|{TEXT})( \.\.\. )?")
ASKED_IDS = re.compile(rf"[(, ]input_ids=({IDS})")
ANSWERED = re.compile(rf"\), out=\{{'text': (None|{TEXT})( \.\.\. )?(?:, 'output_ids': ({IDS}))?")
HALF = 1024  # characters of each end that level 2 keeps
CUT = "the log cut its text (--log-requests-level 3 keeps it)"


def marks(line: str) -> bool:
    """Return whether the line is one of a request in this log."""
    return "Finish: obj=" in line or (line.startswith("{") and '"event": "request.' in line)


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, line in lines:
        if line.startswith("{") and FINISHED in line:
            yield _of_json(where, line)
        elif begin := BEGIN.search(line):
            yield _of_text(line, begin)


def _of_json(where: str, line: str) -> Found:
    body = parse_json(line, where)
    asked, answered = body.get("obj"), body.get("out")
    if not isinstance(asked, dict) or not isinstance(answered, dict):
        return "the log has no texts (--log-requests-level 3)"
    prompt: Any = asked.get("text")
    output: Any = answered.get("text")
    if _is_cut(prompt) or _is_cut(output):
        return CUT
    if not isinstance(prompt, str):  # ids of both
        prompt, output = asked.get("input_ids"), answered.get("output_ids")
    fits = isinstance(prompt, str) and isinstance(output, str)
    if not output or not (fits or (is_ids(prompt) and is_ids(output))):
        return "the log has no texts (--log-requests-level 3)"
    time = seconds(body.get("timestamp"))
    return LoggedRequest(prompt, output, str(body.get("rid", "")), time=time)


def _of_text(line: str, begin: re.Match[str]) -> Found:
    name = begin[1] or ""
    asked = ASKED.search(line, begin.end(0) - 1 if not begin[1] else begin.end(1))
    answered = ANSWERED.search(line, asked.end() if asked else begin.end())
    if not answered:
        return "the log has no texts (--log-requests-level 3)"
    if answered[2] or (asked and asked[2]):
        return CUT
    prompt: Any = _text(asked[1]) if asked else None
    output: Any = _text(answered[1])
    if prompt is None:  # ids of both
        ids = ASKED_IDS.search(line, begin.end(), answered.start())
        if ids is None:
            return "the log has no texts (--log-requests-level 3)"
        prompt, output = _ids(ids[1]), _ids(answered[3])
    if not output:
        return "the answer has no text"
    return LoggedRequest(prompt, output, (_text(name) or "") if name[:1] in "'\"" else "")


def _is_cut(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 2 * HALF + 3 and text[HALF:-HALF] == "..."


def _text(literal: str) -> str | None:
    try:
        return None if literal in ("None", "") else str(ast.literal_eval(literal))
    except (ValueError, SyntaxError) as error:
        raise InputError("a text of the log is none of Python's", "copy the log again") from error


def _ids(literal: str | None) -> list[int]:
    return [int(n[:10]) for n in re.findall(r"\d+", literal or "")]
