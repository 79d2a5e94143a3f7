"""vLLM's own log, where it holds the texts: `--enable-log-requests --enable-log-outputs`.

    ... Request ID details: prompt: 'TEXT', prompt_token_ids: [1, 2], prompt_embeds shape: None.
    ... Received request ID: prompt: 'TEXT', params: ..., prompt_token_ids: ...    (before 0.11)
    ... Generated response ID: output: 'TEXT', output_token_ids: [3], finish_reason: stop

The prompts stand there with VLLM_LOGGING_LEVEL=DEBUG only; outputs are kept without them. Texts are
Python's repr. --max-log-len cuts both and leaves no mark: do without it.

Read from: vllm-project/vllm vllm/entrypoints/logger.py at 63c2b7a, and at 01ff126 (before 0.11).
"""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from ngramkit.logs.request import Found, Line, LoggedRequest, Prompt

TEXT = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""  # of Python
IDS = r"\[[\d, ]*+\]"
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


def marks(line: str) -> bool:
    """Return whether the line is one of a request in this log."""
    return "Generated response " in line and ANSWERED.search(line) is not None


def read(lines: Iterator[Line]) -> Iterator[Found]:
    """Yield a request for each answer; with an empty prompt where the log has none."""
    asked: OrderedDict[str, Prompt] = OrderedDict()
    for _, line in lines:
        if "prompt: " in line and (found := ASKED.search(line)):
            asked[found[1]] = _text(found[2]) or _ids(found[3]) or ""
            if len(asked) > OPEN:
                asked.popitem(last=False)
        elif "Generated response " in line and (found := ANSWERED.search(line)):
            if found[2] == DELTA:
                continue
            prompt = asked.get(found[1], asked.get(f"{found[1]}-0"))
            output: Any = _text(found[3])
            if isinstance(prompt, list):  # ids of both, or the border is not the model's
                output = _ids(found[4]) or output
            if not output:
                yield "the answer has no text"
            elif isinstance(prompt, list) and isinstance(output, str):
                yield LoggedRequest("", output, found[1])
            else:
                yield LoggedRequest(prompt or "", output, found[1])


def _text(literal: str) -> str:
    """Return the text of a Python literal, which was matched as one."""
    return "" if literal == "None" else str(ast.literal_eval(literal))


def _ids(literal: str | None) -> list[int]:
    digits = re.findall(r"\d+", literal or "")
    return [int(n[:10]) for n in digits]
