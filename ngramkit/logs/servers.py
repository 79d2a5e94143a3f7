"""Logs that vLLM and SGLang print. Their texts are Python literals."""

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
from ngramkit.logs.files import unrotated_name
from ngramkit.logs.request import (
    NO_PROMPT,
    NO_TEXT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    is_cut_off,
    parse_time,
    record_reader,
    skip_bad,
    text_of,
    token_ids,
)

# Patterns without backtracking: hostile lines cost linear time.
TEXT = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
IDS = r"\[[\d, ]*+\]"
TRUNCATED = "a line that is truncated, or not from the server"


def _parse_text(literal: str | None) -> str | None:
    """Return the str that TEXT matched; None for `None`."""
    try:
        return None if literal in (None, "", "None") else str(ast.literal_eval(literal))
    except (ValueError, SyntaxError) as error:
        raise BadRecordError(TRUNCATED, "Copy the log again.") from error


def _parse_ids(literal: str | None) -> TokenArray | None:
    """Return the int32[n] that IDS matched; None if empty."""
    numbers = [int(n[:10]) for n in re.findall(r"\d+", literal or "")]
    return token_ids(numbers) if numbers else None


# vLLM.

REQUEST = re.compile(
    rf"(?:Request|Received request) (\S+?)(?: details)?: prompt: (None|{TEXT}), "
    rf"(?:.*?prompt_token_ids: (None|{IDS}))?"
)
RESPONSE = re.compile(
    rf"Generated response (\S+?)( \(streaming \w+\))?: output: (None|{TEXT})"
    rf"(?:, output_token_ids: (None|{IDS}))?(?:, finish_reason: (\w+))?"
)
RESPONSE_IDS = re.compile(
    r"Generated response \S+(?: \(streaming \w+\))? details: output_token_ids: "
)
ADAPTER = re.compile(r"\blora_name='([^']*)'")
REQUEST_ADAPTER = re.compile(r"Received request (\S+?): .*\blora_name='([^']*)'")
MAX_OPEN_REQUESTS = 1 << 16  # unanswered requests
OpenRequests = OrderedDict[tuple[str, str], tuple[Prompt, str]]  # (log, id): (prompt, adapter)


def is_vllm(line: str) -> bool:
    is_candidate = not line.startswith("{") and "Generated response " in line
    return is_candidate and RESPONSE.search(line) is not None


def read_vllm(lines: Iterator[Line]) -> Iterator[Found]:
    """Read vLLM's log with texts: `--enable-log-requests --enable-log-outputs`.

        ... Request ID details: prompt: 'TEXT', prompt_token_ids: [1, 2], prompt_embeds shape: None.
        ... Received request ID: prompt: 'TEXT', params: ..., prompt_token_ids: ...   (before 0.11)
        ... Generated response ID: output: 'TEXT', output_token_ids: [3], finish_reason: stop

    A line of the same ids, "Generated response ID details: output_token_ids: [3]", is skipped. A
    streamed answer's finish reason is that of its last "(streaming delta)".
    Prompts need VLLM_LOGGING_LEVEL=DEBUG. IDs are matched within a log and its rotated files.
    --max-log-len truncates texts without a mark.

    Source: vllm-project/vllm@63c2b7a vllm/entrypoints/logger.py; @01ff126 before 0.11.
    """
    asked: OpenRequests = OrderedDict()
    reasons: dict[tuple[str, str], str] = {}  # of streamed answers whose text is still to come
    for where, line in lines:
        if "prompt: " in line and ("Request " in line or "Received request " in line):
            yield from skip_bad(where, _vllm_request(where, line, asked))
        elif "Received request " in line and (match := REQUEST_ADAPTER.search(line)):
            key = unrotated_name(where.path), match[1]
            asked[key] = asked.get(key, ("", ""))[0], match[2]
        elif "Generated response " in line:
            yield from skip_bad(where, _vllm_response(where, line, asked, reasons))


def _vllm_request(where: FilePlace, line: str, asked: OpenRequests) -> Iterator[str]:
    match = REQUEST.search(line)
    if match is None:
        if "Received request " in line or " details: prompt: " in line:
            yield TRUNCATED
        return
    prompt: Prompt | None = _parse_text(match[2])
    if not prompt and (ids := _parse_ids(match[3])) is not None:
        prompt = ids
    adapter = ADAPTER.search(line, match.end(2))
    asked[unrotated_name(where.path), match[1]] = (
        "" if prompt is None else prompt,
        adapter[1] if adapter else "",
    )
    if len(asked) > MAX_OPEN_REQUESTS:
        asked.popitem(last=False)


def _vllm_response(
    where: FilePlace, line: str, asked: OpenRequests, reasons: dict[tuple[str, str], str]
) -> Iterator[LoggedRequest | str]:
    match = RESPONSE.search(line)
    if match is None:
        if RESPONSE_IDS.search(line) is None:
            yield TRUNCATED
        return
    log, name = unrotated_name(where.path), match[1]
    if match[2] == " (streaming delta)":
        if match[5] not in (None, "None"):
            reasons[log, name] = match[5]
            if len(reasons) > MAX_OPEN_REQUESTS:
                del reasons[next(iter(reasons))]
        return
    reason = reasons.pop((log, name), match[5])
    prompt, adapter = asked.get((log, name)) or asked.get((log, f"{name}-0")) or ("", "")
    output: Any = _parse_text(match[3])
    if not isinstance(prompt, str):  # with an output as text, the token border may shift
        ids = _parse_ids(match[4])
        if ids is None:
            prompt = ""
        else:
            output = ids
    if output is None or not len(output):
        yield NO_TEXT
        return
    if not len(prompt):
        where.count_unread(NO_PROMPT)
    yield LoggedRequest(prompt, output, name, model=adapter, finished=not is_cut_off(reason))


# SGLang.

BEGIN = re.compile(rf"Finish: obj=GenerateReqInput\((?:rid=(None|{TEXT}|\[))?")
INPUT = re.compile(rf"[(, ]text=(None|{TEXT})( \.\.\. )?")
INPUT_IDS = re.compile(rf"[(, ]input_ids=({IDS})")
OUTPUT = re.compile(rf"\), out=\{{'text': (None|{TEXT})( \.\.\. )?(?:, 'output_ids': ({IDS}))?")
LEVEL_2_CHARS = 1024  # kept at each end of a text; level 2 replaces its middle by "..."
SHORTENED = "the log cut its text (--log-requests-level 3 keeps it)"
REASON = re.compile(r"'finish_reason': (?:\{'type': )?'(\w+)'(?:, 'matched': (['\"]))?")
NO_TEXTS = "the log has no texts (--log-requests-level 3)"


def is_sglang(line: str) -> bool:
    return "Finish: obj=" in line or (line.startswith("{") and '"event": "request.' in line)


@record_reader
def read_sglang(where: FilePlace, line: str) -> Iterator[LoggedRequest | str]:
    """Read SGLang's request log with whole texts: `--log-requests --log-requests-level 3`.

        ... Finish: obj=GenerateReqInput(rid='...', text='PROMPT', ...), out={'text': 'OUTPUT', ...}

    With `--log-requests-format json`:

        {"timestamp": "...", "event": "request.finished", "rid": "...", "obj": {"text": "PROMPT",
         "input_ids": null, ...}, "out": {"text": "OUTPUT", "output_ids": [1, 2], ...}}

    Source: sgl-project/sglang@01bb912 python/sglang/srt/utils/request_logger.py.
    """
    if line.startswith("{") and '"event": "request.finished"' in line:
        yield _sglang_json(parse_json(line, str(where), error=BadRecordError))
    elif begin := BEGIN.search(line):
        yield _sglang_text(line, begin)
    elif "Finish: obj=GenerateReqInput(" in line:
        yield TRUNCATED


def _sglang_json(body: Any) -> LoggedRequest | str:
    asked, answered = body.get("obj"), body.get("out")
    if not isinstance(asked, dict) or not isinstance(answered, dict):
        return NO_TEXTS
    prompt: Any = asked.get("text")
    output: Any = answered.get("text")
    if _is_shortened(prompt) or _is_shortened(output):
        return SHORTENED
    if not isinstance(prompt, str):  # read both as ids
        prompt, output = token_ids(asked.get("input_ids")), token_ids(answered.get("output_ids"))
    if prompt is None or not isinstance(output, str | np.ndarray):
        return NO_TEXTS
    meta = answered.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    return LoggedRequest(
        prompt, output, text_of(body, "rid"),
        time=parse_time(body.get("timestamp")), finished=not is_cut_off(reason),
    )  # fmt: skip


def _is_shortened(text: Any) -> bool:
    return (
        isinstance(text, str)
        and len(text) == 2 * LEVEL_2_CHARS + 3
        and text[LEVEL_2_CHARS:-LEVEL_2_CHARS] == "..."
    )


def _sglang_text(line: str, begin: re.Match[str]) -> LoggedRequest | str:
    name = begin[1] or ""
    asked = INPUT.search(line, begin.end(0) - 1 if not begin[1] else begin.end(1))
    answered = OUTPUT.search(line, asked.end() if asked else begin.end())
    if not answered:
        return NO_TEXTS
    if answered[2] or (asked and asked[2]):
        return SHORTENED
    prompt: Any = _parse_text(asked[1]) if asked else None
    output: Any = _parse_text(answered[1])
    if prompt is None:  # read both as ids
        ids = INPUT_IDS.search(line, begin.end(), answered.start())
        prompt, output = _parse_ids(ids[1]) if ids else None, _parse_ids(answered[3])
        if prompt is None:
            return NO_TEXTS
    if output is None:
        return NO_TEXT
    reason = REASON.search(line, answered.end())
    name = (_parse_text(name) or "") if name[:1] in "'\"" else ""
    finished = reason is None or (not is_cut_off(reason[1]) and not reason[2])
    return LoggedRequest(prompt, output, name, finished=finished)
