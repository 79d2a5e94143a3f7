"""Logs that serving engines print: vLLM, SGLang. Texts stand there as Python's repr."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.logs.request import NO_TEXT, Found, Line, LoggedRequest, Prompt, is_ids, seconds

TEXT = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""  # of Python
IDS = r"\[[\d, ]*+\]"


def _text(literal: str | None) -> str | None:
    """Return the text of a literal of Python's, which was matched as one; None of None."""
    try:
        return None if literal in (None, "", "None") else str(ast.literal_eval(literal))
    except (ValueError, SyntaxError) as error:
        raise InputError("a text of the log is none of Python's", "copy the log again") from error


def _ids(literal: str | None) -> list[int]:
    return [int(n[:10]) for n in re.findall(r"\d+", literal or "")]


# vLLM.

ASKED = re.compile(
    rf"(?:Request|Received request) (\S+?)(?: details)?: prompt: (None|{TEXT}), "
    rf"(?:.*?prompt_token_ids: (None|{IDS}))?"
)
ANSWERED = re.compile(
    rf"Generated response (\S+?)( \(streaming \w+\))?: output: (None|{TEXT})"
    rf"(?:, output_token_ids: (None|{IDS}))?"
)
DELTA = " (streaming delta)"
OPEN = 1 << 16  # requests whose answer is waited for


def is_vllm(line: str) -> bool:
    """Return whether the line is one of an answer in vLLM's log."""
    text = not line.startswith("{") and "Generated response " in line
    return text and ANSWERED.search(line) is not None


def read_vllm(lines: Iterator[Line]) -> Iterator[Found]:
    """Read vLLM's own log, where it holds the texts: `--enable-log-requests --enable-log-outputs`.

        ... Request ID details: prompt: 'TEXT', prompt_token_ids: [1, 2], prompt_embeds shape: None.
        ... Received request ID: prompt: 'TEXT', params: ..., prompt_token_ids: ...   (before 0.11)
        ... Generated response ID: output: 'TEXT', output_token_ids: [3], finish_reason: stop

    The prompts stand there with VLLM_LOGGING_LEVEL=DEBUG only: an answer without one has an empty
    prompt. --max-log-len cuts both and leaves no mark: do without it.

    Read from: vllm-project/vllm vllm/entrypoints/logger.py at 63c2b7a, and at 01ff126 (before
    0.11).
    """
    asked: OrderedDict[str, Prompt] = OrderedDict()
    for _, line in lines:
        if "prompt: " in line and (match := ASKED.search(line)):
            asked[match[1]] = _text(match[2]) or _ids(match[3]) or ""
            if len(asked) > OPEN:
                asked.popitem(last=False)
        elif "Generated response " in line and (match := ANSWERED.search(line)):
            if match[2] == DELTA:
                continue
            prompt = asked.get(match[1], asked.get(f"{match[1]}-0"))
            output: Any = _text(match[3])
            if isinstance(prompt, list):  # ids of both, or the border is not the model's
                output = _ids(match[4]) or output
            if not output:
                yield NO_TEXT
            elif isinstance(prompt, list) and isinstance(output, str):
                yield LoggedRequest("", output, match[1])
            else:
                yield LoggedRequest(prompt or "", output, match[1])


# SGLang.

FINISHED = '"event": "request.finished"'
BEGIN = re.compile(rf"Finish: obj=GenerateReqInput\((?:rid=(None|{TEXT}|\[))?")
INPUT = re.compile(rf"[(, ]text=(None|{TEXT})( \.\.\. )?")
INPUT_IDS = re.compile(rf"[(, ]input_ids=({IDS})")
OUTPUT = re.compile(rf"\), out=\{{'text': (None|{TEXT})( \.\.\. )?(?:, 'output_ids': ({IDS}))?")
HALF = 1024  # characters of each end that level 2 keeps
CUT = "the log cut its text (--log-requests-level 3 keeps it)"
NO_TEXTS = "the log has no texts (--log-requests-level 3)"


def is_sglang(line: str) -> bool:
    """Return whether the line is one of a request in SGLang's log."""
    return "Finish: obj=" in line or (line.startswith("{") and '"event": "request.' in line)


def read_sglang(lines: Iterator[Line]) -> Iterator[Found]:
    """Read SGLang's request log, where it holds whole texts: `--log-requests
    --log-requests-level 3`.

        ... Finish: obj=GenerateReqInput(rid='...', text='PROMPT', ...), out={'text': 'OUTPUT', ...}

    or, with `--log-requests-format json` (and `--log-requests-target FOLDER`), among other lines

        {"timestamp": "...", "event": "request.finished", "rid": "...", "obj": {"text": "PROMPT",
         "input_ids": null, ...}, "out": {"text": "OUTPUT", "output_ids": [1, 2], ...}}

    Level 2 cuts texts in their middle: those requests are left out.

    Read from: sgl-project/sglang python/sglang/srt/utils/request_logger.py at 01bb912.
    """
    for where, line in lines:
        if line.startswith("{") and FINISHED in line:
            yield _sglang_json(parse_json(line, str(where)))
        elif begin := BEGIN.search(line):
            yield _sglang_text(line, begin)


def _sglang_json(body: Any) -> Found:
    asked, answered = body.get("obj"), body.get("out")
    if not isinstance(asked, dict) or not isinstance(answered, dict):
        return NO_TEXTS
    prompt: Any = asked.get("text")
    output: Any = answered.get("text")
    if _is_cut(prompt) or _is_cut(output):
        return CUT
    if not isinstance(prompt, str):  # ids of both
        prompt, output = asked.get("input_ids"), answered.get("output_ids")
    fits = isinstance(prompt, str) and isinstance(output, str)
    if not output or not (fits or (is_ids(prompt) and is_ids(output))):
        return NO_TEXTS
    time = seconds(body.get("timestamp"))
    return LoggedRequest(prompt, output, str(body.get("rid", "")), time=time)


def _is_cut(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 2 * HALF + 3 and text[HALF:-HALF] == "..."


def _sglang_text(line: str, begin: re.Match[str]) -> Found:
    name = begin[1] or ""
    asked = INPUT.search(line, begin.end(0) - 1 if not begin[1] else begin.end(1))
    answered = OUTPUT.search(line, asked.end() if asked else begin.end())
    if not answered:
        return NO_TEXTS
    if answered[2] or (asked and asked[2]):
        return CUT
    prompt: Any = _text(asked[1]) if asked else None
    output: Any = _text(answered[1])
    if prompt is None:  # ids of both
        ids = INPUT_IDS.search(line, begin.end(), answered.start())
        if ids is None:
            return NO_TEXTS
        prompt, output = _ids(ids[1]), _ids(answered[3])
    if not output:
        return NO_TEXT
    return LoggedRequest(prompt, output, (_text(name) or "") if name[:1] in "'\"" else "")
