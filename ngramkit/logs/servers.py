"""Logs that serving engines print: vLLM, SGLang. Texts stand there as Python's repr."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from ngramkit.basics.errors import BadRecordError
from ngramkit.basics.untrusted import parse_json
from ngramkit.drafters.base import TokenArray
from ngramkit.logs.files import stream_of
from ngramkit.logs.request import (
    NO_PROMPT,
    NO_TEXT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    attempt,
    by_record,
    is_cut,
    seconds,
    token_ids,
)

TEXT = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""  # of Python
IDS = r"\[[\d, ]*+\]"
BROKEN = "a line that was cut, or is not the server's own"


def _text(literal: str | None) -> str | None:
    """Return the text of a literal of Python's, which was matched as one; None of None."""
    try:
        return None if literal in (None, "", "None") else str(ast.literal_eval(literal))
    except (ValueError, SyntaxError) as error:
        raise BadRecordError(BROKEN, "Copy the log again.") from error


def _ids(literal: str | None) -> TokenArray | None:
    """Return the ids, int32[n], in a list of Python's; None if there are none."""
    numbers = [int(n[:10]) for n in re.findall(r"\d+", literal or "")]
    return token_ids(numbers) if numbers else None


# vLLM.

ASKED = re.compile(
    rf"(?:Request|Received request) (\S+?)(?: details)?: prompt: (None|{TEXT}), "
    rf"(?:.*?prompt_token_ids: (None|{IDS}))?"
)
ANSWERED = re.compile(
    rf"Generated response (\S+?)( \(streaming \w+\))?: output: (None|{TEXT})"
    rf"(?:, output_token_ids: (None|{IDS}))?(?:, finish_reason: (\w+))?"
)
ADAPTER = re.compile(r"\blora_name='([^']*)'")
ADAPTED = re.compile(r"Received request (\S+?): .*\blora_name='([^']*)'")
DELTA = " (streaming delta)"
OPEN = 1 << 16  # requests whose answer is waited for
Asked = OrderedDict[tuple[str, str], tuple[Prompt, str]]  # by log and id: the prompt, the adapter


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
    prompt, which is counted. An answer belongs to the request of its id in the same log, rotated
    files included. --max-log-len cuts both and leaves no mark: do without it.

    Read from: vllm-project/vllm vllm/entrypoints/logger.py at 63c2b7a, and at 01ff126 (before
    0.11).
    """
    asked: Asked = OrderedDict()
    for where, line in lines:
        if "prompt: " in line and ("Request " in line or "Received request " in line):
            yield from attempt(where, _vllm_asked(where, line, asked))
        elif "Received request " in line and (match := ADAPTED.search(line)):
            key = stream_of(where.path), match[1]
            asked[key] = asked.get(key, ("", ""))[0], match[2]
        elif "Generated response " in line:
            yield from attempt(where, _vllm_answer(where, line, asked))


def _vllm_asked(where: FilePlace, line: str, asked: Asked) -> Iterator[str]:
    match = ASKED.search(line)
    if match is None:
        if "Received request " in line or " details: prompt: " in line:
            yield BROKEN
        return
    prompt: Prompt | None = _text(match[2])
    if not prompt and (ids := _ids(match[3])) is not None:
        prompt = ids
    adapter = ADAPTER.search(line, match.end(2))
    asked[stream_of(where.path), match[1]] = (
        "" if prompt is None else prompt,
        adapter[1] if adapter else "",
    )
    if len(asked) > OPEN:
        asked.popitem(last=False)


def _vllm_answer(where: FilePlace, line: str, asked: Asked) -> Iterator[LoggedRequest | str]:
    match = ANSWERED.search(line)
    if match is None:
        yield BROKEN
        return
    if match[2] == DELTA:
        return
    log, name = stream_of(where.path), match[1]
    prompt, adapter = asked.get((log, name)) or asked.get((log, f"{name}-0")) or ("", "")
    output: Any = _text(match[3])
    if not isinstance(prompt, str):  # ids of both, or the border is not the model's
        ids = _ids(match[4])
        if ids is None:
            prompt = ""
        else:
            output = ids
    if output is None or not len(output):
        yield NO_TEXT
        return
    if not len(prompt):
        where.lose(NO_PROMPT)
    yield LoggedRequest(prompt, output, name, model=adapter, finished=not is_cut(match[5]))


# SGLang.

FINISHED = '"event": "request.finished"'
BEGIN = re.compile(rf"Finish: obj=GenerateReqInput\((?:rid=(None|{TEXT}|\[))?")
INPUT = re.compile(rf"[(, ]text=(None|{TEXT})( \.\.\. )?")
INPUT_IDS = re.compile(rf"[(, ]input_ids=({IDS})")
OUTPUT = re.compile(rf"\), out=\{{'text': (None|{TEXT})( \.\.\. )?(?:, 'output_ids': ({IDS}))?")
HALF = 1024  # characters of each end that level 2 keeps
SHORTENED = "the log cut its text (--log-requests-level 3 keeps it)"
REASON = re.compile(r"'finish_reason': (?:\{'type': )?'(\w+)'")
NO_TEXTS = "the log has no texts (--log-requests-level 3)"


def is_sglang(line: str) -> bool:
    """Return whether the line is one of a request in SGLang's log."""
    return "Finish: obj=" in line or (line.startswith("{") and '"event": "request.' in line)


@by_record
def read_sglang(where: FilePlace, line: str) -> Iterator[LoggedRequest | str]:
    """Read SGLang's request log, where it holds whole texts: `--log-requests
    --log-requests-level 3`.

        ... Finish: obj=GenerateReqInput(rid='...', text='PROMPT', ...), out={'text': 'OUTPUT', ...}

    or, with `--log-requests-format json` (and `--log-requests-target FOLDER`), among other lines

        {"timestamp": "...", "event": "request.finished", "rid": "...", "obj": {"text": "PROMPT",
         "input_ids": null, ...}, "out": {"text": "OUTPUT", "output_ids": [1, 2], ...}}

    Level 2 cuts texts in their middle: those requests are left out.

    Read from: sgl-project/sglang python/sglang/srt/utils/request_logger.py at 01bb912.
    """
    if line.startswith("{") and FINISHED in line:
        yield _sglang_json(parse_json(line, str(where), error=BadRecordError))
    elif begin := BEGIN.search(line):
        yield _sglang_text(line, begin)
    elif "Finish: obj=GenerateReqInput(" in line:
        yield BROKEN


def _sglang_json(body: Any) -> LoggedRequest | str:
    asked, answered = body.get("obj"), body.get("out")
    if not isinstance(asked, dict) or not isinstance(answered, dict):
        return NO_TEXTS
    prompt: Any = asked.get("text")
    output: Any = answered.get("text")
    if _is_shortened(prompt) or _is_shortened(output):
        return SHORTENED
    if not isinstance(prompt, str):  # ids of both
        prompt, output = token_ids(asked.get("input_ids")), token_ids(answered.get("output_ids"))
    if prompt is None or not isinstance(output, str | np.ndarray):
        return NO_TEXTS
    meta = answered.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    return LoggedRequest(
        prompt, output, str(body.get("rid", "")),
        time=seconds(body.get("timestamp")), finished=not is_cut(reason),
    )  # fmt: skip


def _is_shortened(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 2 * HALF + 3 and text[HALF:-HALF] == "..."


def _sglang_text(line: str, begin: re.Match[str]) -> LoggedRequest | str:
    name = begin[1] or ""
    asked = INPUT.search(line, begin.end(0) - 1 if not begin[1] else begin.end(1))
    answered = OUTPUT.search(line, asked.end() if asked else begin.end())
    if not answered:
        return NO_TEXTS
    if answered[2] or (asked and asked[2]):
        return SHORTENED
    prompt: Any = _text(asked[1]) if asked else None
    output: Any = _text(answered[1])
    if prompt is None:  # ids of both
        ids = INPUT_IDS.search(line, begin.end(), answered.start())
        prompt, output = _ids(ids[1]) if ids else None, _ids(answered[3])
        if prompt is None:
            return NO_TEXTS
    if output is None:
        return NO_TEXT
    reason = REASON.search(line, answered.end())
    name = (_text(name) or "") if name[:1] in "'\"" else ""
    return LoggedRequest(prompt, output, name, finished=not is_cut(reason and reason[1]))
