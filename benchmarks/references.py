"""Drafts from references: tokens/step on edited files, and the cost of a long reference.

The old version of a file is the reference, the new one the answer. Without
references the old version is in the prompt, as it is where a model is asked to edit, or it is not.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row, in_turns, timed
from ngramkit.corpus.stdlib import stdlib_split
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import ReferenceTexts
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay_loop import replay_drafter

BUDGET = 16
FILES = 8
ROUNDS = 3
LONG = 100_000  # tokens of a long reference
WRITTEN = 8  # tokens accepted after each draft whose cost is taken
BEFORE = "# The new version of the file:\n"

Ways = dict[str, list[Record]]


def rows() -> Iterator[Row]:
    tokenizer = load_tokenizer("demo")
    texts = originals(FILES)
    by_kind = {kind: _ways(kind, texts, tokenizer) for kind in EDITS}
    for kind, ways in by_kind.items():
        yield _steps(f"{kind} in {len(texts)} files", "blend", ways, tokenizer, "> 10")
    for drafter in ("context", "prompt-lookup", "ssd"):
        what = f"all three in {len(texts)} files"
        yield _steps(what, drafter, by_kind["all three"], tokenizer, "above 1")
    yield _useless(by_kind["a function inserted"], tokenizer)
    yield from _long(texts, tokenizer)


def _ways(kind: str, texts: list[str], tokenizer: TextTokenizer) -> Ways:
    """Return the same edits as records: with references, and without."""
    found: Ways = {"references": [], "in the prompt": [], "nowhere": []}
    for number, text in enumerate(texts):
        new, old = tokenizer.encode(EDITS[kind](number, texts)), tokenizer.encode(text)
        short = tokenizer.encode_prompt(BEFORE)
        turns = {
            "references": Turn(short, new, (old,)),
            "in the prompt": Turn(np.concatenate([old, short]), new),
            "nowhere": Turn(short, new),
        }
        for way, turn in turns.items():
            found[way].append(Record(f"{kind} {number}", kind, [turn]))
    return found


def _made(name: str, tokenizer: TextTokenizer) -> Callable[[], Any]:
    past = PastRequests(tokenizer=tokenizer.record, background=False, forgetful=True)
    return lambda: load_drafter(name, tokenizer=tokenizer.record, past=past)


def _steps(what: str, drafter: str, ways: Ways, tokenizer: TextTokenizer, target: str) -> Row:
    make = _made(drafter, tokenizer)
    steps = {
        way: replay_drafter(drafter, make, records, BUDGET).total.tokens_per_step
        for way, records in ways.items()
    }
    others = [steps["in the prompt"], steps["nowhere"]]
    return Row(
        f"references: {what}, {drafter} with {BUDGET} nodes",
        f"{steps['references']:.2f} tokens/step",
        f"{others[0]:.2f} without, the old version in the prompt; {others[1]:.2f} without either",
        steps["references"] / max(others),
        target,
    )


def _useless(ways: Ways, tokenizer: TextTokenizer) -> Row:
    """Measure what a reference to some other text costs in tokens/step."""
    plain = ways["in the prompt"]
    others = [record.turns[0].references for record in ways["references"]]
    turned = [*others[3:], *others[:3]]
    misled = [
        Record(r.name, r.category, [Turn(r.turns[0].prompt, r.turns[0].answer, other)])
        for r, other in zip(plain, turned, strict=True)
    ]
    make = _made("blend", tokenizer)
    found = [
        replay_drafter("blend", make, each, BUDGET).total.tokens_per_step
        for each in (misled, plain)
    ]
    return Row(
        f"references: another file's text, blend with {BUDGET} nodes",
        f"{found[0]:.2f} tokens/step",
        f"{found[1]:.2f} without",
        found[0] / found[1],
        ">= 0.97",
    )


def _long(texts: list[str], tokenizer: TextTokenizer) -> Iterator[Row]:
    """Compare the same tokens as a reference and as a datastore's corpus."""
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    others = (path.read_text(encoding="utf-8") for _, path in stdlib_split("train")[:60])
    ids = tokenizer.encode("".join([*texts, *others]))[:LONG]
    text = tokenizer.decode(ids)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old.py").write_text(text, encoding="utf-8")
        store = tokenize(open_corpus(str(folder / "old.py")), "demo", folder / "tokens")
        datastore = build_datastore(store, folder / "datastore")
        answer = tokenizer.encode(EDITS["all three"](1, texts))
        prompt = tokenizer.encode_prompt(BEFORE)
        sorted_once = ReferenceTexts([ids])
        makers: dict[str, tuple[Any, Any]] = {
            "reference": (_made("blend", tokenizer), (sorted_once,)),
            "datastore": (lambda: load_drafter("blend", datastores=[datastore]), ()),
        }
        ways = {way: partial(_a_pass, *made, prompt, answer) for way, made in makers.items()}
        each = in_turns(ways, ROUNDS)
    yield Row(
        f"references: a draft of {BUDGET} nodes and its update, {len(ids):,} tokens",
        f"{1e6 * each['reference']:.0f} us",
        f"{1e6 * each['datastore']:.0f} us, blend over a datastore of the same",
        each["datastore"] / each["reference"],
        "no slower",
    )
    starts = in_turns(
        {
            "sort": lambda: timed(lambda: ReferenceTexts([ids])),
            "encode": lambda: timed(lambda: tokenizer.encode(text)),
        },
        ROUNDS,
    )
    yield Row(
        f"references: the start, {len(ids):,} tokens sorted",
        f"{1e3 * starts['sort']:.0f} ms",
        f"{1e3 * starts['encode']:.0f} ms, encoding their text",
        starts["encode"] / starts["sort"],
        "above 1",
    )


def _a_pass(make: Callable[[], Any], references: Any, prompt: Any, answer: Any) -> float:
    """Return the median seconds of a draft and of accepting WRITTEN tokens."""
    drafter = make()
    drafter.start(prompt, references=references[0] if references else ())
    took = []
    for begin in range(0, len(answer) - WRITTEN, WRITTEN):
        started = time.perf_counter()
        drafter.draft(BUDGET)
        drafter.accept(answer[begin : begin + WRITTEN])
        took.append(time.perf_counter() - started)
    return float(np.median(took[3:]))


# Successive versions of a source file, made from the running Python's own library: the old one is
# a file as it is, the new one has been edited as people edit. Same interpreter, same edits.


SIZES = range(4_000, 20_000)  # bytes
NAME = re.compile(r"\b[a-z_][a-zA-Z_]{4,}\b")
KNOWN = {*keyword.kwlist, *dir(builtins)}
NEW_NAMES = ("quarry_marker", "lantern_state", "tidal_offset", "copper_index", "meadow_span")

Edit = Callable[[int, list[str]], str]


def originals(count: int) -> list[str]:
    """Return files that the embedded model was not trained on, in the order of names."""
    texts = [_read(path) for _, path in stdlib_split("held-out") if path.stat().st_size in SIZES]
    return [text for text in texts if _parses(text)][:count]


def rename(number: int, texts: list[str]) -> str:
    """Rename the identifier in the middle of those used 4 to 30 times."""
    uses = Counter(name for name in NAME.findall(texts[number]) if name not in KNOWN)
    often = sorted(name for name, times in uses.items() if 4 <= times <= 30)
    if not often:
        return texts[number]
    old, new = often[len(often) // 2], NEW_NAMES[number % len(NEW_NAMES)]
    return re.sub(rf"\b{re.escape(old)}\b", new, texts[number])


def insert(number: int, texts: list[str]) -> str:
    """Insert a function of another file before the middle one of the file's own."""
    lines = texts[number].splitlines(keepends=True)
    own, others = _functions(texts[number]), _functions(texts[(number + 1) % len(texts)])
    at = own[len(own) // 2][0] if own else len(lines)
    foreign = texts[(number + 1) % len(texts)].splitlines(keepends=True)
    begin, end = others[len(others) // 2] if others else (0, 12)
    return "".join([*lines[:at], *foreign[begin:end], "\n", "\n", *lines[at:]])


def rewrite(number: int, texts: list[str]) -> str:
    """Replace the longest docstring by another file's longest."""
    old, new = (
        _longest_docstring(texts[number]),
        _longest_docstring(texts[(number + 1) % len(texts)]),
    )
    return texts[number].replace(old, new, 1) if old else texts[number]


def all_three(number: int, texts: list[str]) -> str:
    edited = list(texts)
    for edit in (rename, insert, rewrite):
        edited[number] = edit(number, edited)
    return edited[number]


EDITS: dict[str, Edit] = {
    "an identifier renamed": rename,
    "a function inserted": insert,
    "a paragraph rewritten": rewrite,
    "all three": all_three,
}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return bool(_functions(text)) and bool(_longest_docstring(text))


def _functions(text: str) -> list[tuple[int, int]]:
    """Return the lines of every top-level function, from 0, ends excluded."""
    nodes = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    found = [(node.lineno - 1, node.end_lineno or 0) for node in nodes if not node.decorator_list]
    return [(begin, end) for begin, end in found if end - begin <= 40]


def _longest_docstring(text: str) -> str:
    """Return the longest docstring of at most 2,000 characters, without its quotes."""
    found = re.findall(r'"""(.*?)"""', text, re.S)
    return max((each for each in found if len(each) <= 2_000), key=len, default="")
