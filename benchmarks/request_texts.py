"""`python -m benchmarks.request_texts FILE --model MODEL`: steps of requests that bring text.

Each recorded edit is replayed through the drafter of the serving engines, one request at a time:
its request without the old text is the prompt, the old text is the reference or is left out. The
first token is given, and nothing is accepted beyond the answer's end. *All*: K tokens are drafted
in each step, as asynchronous vLLM verifies them; *as many as pay*: a dense model's passes, with
pauses. `shared/data/workloads` holds a FILE, aider-edits.

With `--tools`, FILE holds an agent's calls (tau-airline). Its tools are defined in each prompt as
Hermes' template does, with the arguments of the recorded calls. Steps with the tools' templates are
compared with steps without.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import markdown
from benchmarks._figures import write_figures
from ngramkit.budget.pass_times import pass_times
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import Source
from ngramkit.drafters.references import NO_REFERENCES, ReferenceTexts
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.tool_templates import call_templates

COMMAND = "python -m benchmarks.request_texts"
K = 8
HEAD = (
    "drafted", "requests", "tokens", "steps without the reference", "with it",
    "over no drafts", "over no reference", "accepted of the drafted reference tokens",
)  # fmt: skip
Tokens = npt.NDArray[np.int32]


class Edit(NamedTuple):
    prompt: Tokens  # without the old text
    answer: Tokens
    old: ReferenceTexts


TOOLS_HEAD = ("answers", "number", "tokens", "steps", "with templates", "over no templates")
CALL, END = "<tool_call>\n", "\n</tool_call>"
TOOLS = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{}
</tools>

For each function call, return a json object with function name and arguments within XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>
"""


class Count(NamedTuple):
    steps: int
    drafted: int  # tokens of the reference
    accepted: int  # of these


def read_edits(file: Path, tokenizer: Any) -> Iterator[Edit]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for each in map(json.loads, lines):
            prompt = each["prompt"].replace(each["reference"], "")
            if each["reference"] and prompt != each["prompt"]:
                yield Edit(
                    tokenizer.encode_prompt(prompt),
                    tokenizer.encode(each["output"]),
                    ReferenceTexts([tokenizer.encode(each["reference"])]),
                )


def read_tools(file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return recorded answers, and the schema of each tool's arguments."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        answers = [json.loads(line) for line in lines]
    tools: dict[str, Any] = {}
    for each in answers:
        if each["output"].startswith(CALL):
            call = json.loads(each["output"].removeprefix(CALL).partition(END)[0])
            known = tools.setdefault(call["name"], {"type": "object", "properties": {}})
            for name, value in call["arguments"].items():
                known["properties"].setdefault(name, _schema(value))
    return answers, tools


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {k: _schema(v) for k, v in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0]) if value else {"type": "string"}}
    kind = "integer" if isinstance(value, int) else "string"
    return {"type": kind, "description": "The value."}


def tool_rows(file: Path, tokenizer: Any, limit: int | None) -> Iterator[list[str]]:
    answers, tools = read_tools(file)
    functions = [
        {"name": name, "description": name.replace("_", " "), "parameters": schema}
        for name, schema in tools.items()
    ]
    defined = "\n".join(json.dumps({"type": "function", "function": each}) for each in functions)
    texts = [tokenizer.encode(text) for text in call_templates(tools.items())]
    for name, called in (("tool calls", True), ("others", False)):
        edits = [
            Edit(
                tokenizer.encode_prompt(
                    each["prompt"].replace("<|system|>\n", f"<|system|>{TOOLS.format(defined)}", 1)
                ),
                tokenizer.encode(each["output"]),
                ReferenceTexts(texts, begins=0),
            )
            for each in answers
            if each["output"].startswith(CALL) == called
        ][:limit]
        without, with_it = (
            replay(edits, tokenizer.record.vocabulary, given=given, everything=True).steps
            for given in (False, True)
        )
        tokens = sum(len(edit.answer) - 1 for edit in edits)
        yield [
            name, f"{len(edits):,}", f"{tokens:,}", f"{without:,}", f"{with_it:,}",
            f"{with_it / without:.3f}",
        ]  # fmt: skip


def edit_rows(file: Path, tokenizer: Any, limit: int | None) -> Iterator[list[str]]:
    edits = list(read_edits(file, tokenizer))[:limit]
    tokens = sum(len(edit.answer) - 1 for edit in edits)
    for name, everything in (("all", True), ("as many as pay", False)):
        without, with_it = (
            replay(edits, tokenizer.record.vocabulary, given=given, everything=everything)
            for given in (False, True)
        )
        yield [
            name, f"{len(edits):,}", f"{tokens:,}", f"{without.steps:,}", f"{with_it.steps:,}",
            f"{with_it.steps / tokens:.2f}", f"{with_it.steps / without.steps:.2f}",
            f"{100 * with_it.accepted / max(with_it.drafted, 1):.0f} %",
        ]  # fmt: skip


def replay(edits: Iterable[Edit], vocabulary: int, *, given: bool, everything: bool) -> Count:
    """Write all answers; return the steps after the first token of each."""
    config = DraftConfig(threads=1, log_steps=0, pause=not everything)
    drafter = BatchDrafter.open(config, vocabulary=vocabulary, cost=pass_times())
    steps = drafted = accepted = 0
    for number, edit in enumerate(edits):
        references = edit.old if given else NO_REFERENCES
        asked = [Asked(len(edit.prompt), references=references, name=str(number))]
        text, written = np.concatenate([edit.prompt, edit.answer]), 1
        while written < len(edit.answer):
            row = text[: len(edit.prompt) + written]
            left = len(edit.answer) - written
            (chain,) = drafter.chain_batch([row], [K], 0.0 if everything else None, asked=asked)
            right = min(len(chain.accepted_nodes(text[len(row) :].tolist())), left)
            own = chain.source == Source.REFERENCE
            drafted, accepted = drafted + int(own.sum()), accepted + int(own[:right].sum())
            written, steps = written + right + 1, steps + 1
        drafter.sessions.end(str(number))
    return Count(steps, drafted, accepted)


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", required=True, help="whose tokenizer: a name or a folder")
    parser.add_argument("--limit", type=int, help="only the first requests")
    parser.add_argument("--tools", action="store_true", help="templates of tools")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    name, rows_of, command, head = "request_texts", edit_rows, COMMAND, list(HEAD)
    if options.tools:
        name, rows_of, command = "request_tools", tool_rows, f"{COMMAND} --tools"
        head = list(TOOLS_HEAD)
    rows = list(rows_of(options.file, load_tokenizer(options.model), options.limit))
    print(markdown(head, rows))
    if options.write:
        write_figures(name, f"{command} --write", {"head": head, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
