"""A page of replayed answers, each token coloured by the source that drafted it.

One file that loads nothing: style, script and data are inside it, and its policy allows only these.
Texts are JSON, which the script shows as text.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import html
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import NgramkitError, UsageError, one_line
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted, escape_controls, visible
from ngramkit.basics.untrusted import not_linked, open_stream, owner_only
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.drafters.base import DraftTree, Source, TokenArray
from ngramkit.evaluate.records import Record, Turn
from ngramkit.formats.card import model_name
from ngramkit.formats.replacing import exists_error, replace_text, require_room_for_file
from ngramkit.formats.tokenizer_record import TokenizerRecord

MAX_ANSWERS = 20  # on a page, at most
MAX_DRAFTERS = 8
MAX_TOKENS = 2000  # of an answer
MAX_NODES = 64  # of a pass, besides the accepted ones
PAGE_NODES = 150_000
MAX_PROMPT_CHARACTERS = 1500  # characters from the end of a prompt
MAX_TOKEN_CHARACTERS = 200  # characters of a token
MAX_NAME_CHARACTERS = 80  # characters of an answer's or a drafter's name
# CSS class, name, sources.
SOURCE_GROUPS: tuple[tuple[str, str, tuple[Source, ...]], ...] = (
    ("own", "own text", (Source.CONTEXT, Source.DYNAMIC)),
    ("given", "given text", (Source.REFERENCE,)),
    ("history", "history", (Source.HISTORY,)),
    ("corpus", "corpus", (Source.DATASTORE, Source.FROZEN)),
    ("model", "model table", (Source.MODEL,)),
)
GROUP_OF_SOURCE = {int(source): at for at, (_, _, of) in enumerate(SOURCE_GROUPS) for source in of}
PAGE_MARK = '<meta name="generator" content="ngramkit">'
SCORES_NOTE = "A figure is the node’s score in percent: for blend, how likely it is accepted."


@dataclass(frozen=True)
class WatchedPass:
    written: int
    tree: DraftTree
    accepted: Sequence[int]  # nodes of `tree`
    left_out: int  # rejected nodes that `tree` lacks

    @classmethod
    def of(cls, tree: DraftTree, accepted: Sequence[int], written: int) -> WatchedPass:
        if len(tree) <= MAX_NODES:
            return cls(written, tree, accepted, 0)
        kept = np.union1d(np.arange(MAX_NODES), np.array(accepted, np.int64))
        places = np.searchsorted(kept, accepted).tolist()
        return cls(written, tree.subtree(kept), places, len(tree) - len(kept))


@dataclass
class WatchedTurn:
    """The passes over one answer, up to MAX_TOKENS tokens."""

    name: str
    turn: Turn
    passes: list[WatchedPass] = field(default_factory=list)
    shown: int = 1  # tokens, with the prefill's
    full: bool = False

    def add(self, tree: DraftTree, accepted: Sequence[int], written: int) -> None:
        self.full = self.full or self.shown + written > MAX_TOKENS
        if not self.full:
            self.passes.append(WatchedPass.of(tree, accepted, written))
            self.shown += written

    @property
    def nodes(self) -> int:
        return sum(len(each.tree) for each in self.passes)


class ReplayPage:
    """The page that a replay fills."""

    def __init__(
        self, path: str | Path, tokenizer: TokenizerRecord | TextTokenizer, *, reporter: Reporter
    ) -> None:
        self.path = Path(path)
        self._tokenizer = _text_tokenizer(tokenizer, reporter)
        self._reporter = reporter
        self._watched: dict[str, list[WatchedTurn]] = {}
        self._asked = 0  # answers of the replay
        self._drafters = 0  # of the replay

    def watch(self, drafter: str) -> Callable[[Record, int, Turn], WatchedTurn | None]:
        """Return a function that starts watching an answer, or returns None."""
        self._drafters += 1
        if len(self._watched) >= MAX_DRAFTERS:
            return lambda record, number, turn: None
        seen = self._watched.setdefault(drafter, [])
        count = 0

        def begin(record: Record, number: int, turn: Turn) -> WatchedTurn | None:
            nonlocal count
            if not len(turn.answer):
                return None
            count += 1
            self._asked = max(self._asked, count)
            if len(seen) >= MAX_ANSWERS:
                return None
            several = f", turn {number + 1}" if len(record.turns) > 1 else ""
            seen.append(WatchedTurn(visible(record.name, MAX_NAME_CHARACTERS) + several, turn))
            return seen[-1]

        return begin

    def write(self, budget: int, *, chain: bool, private: bool) -> None:
        """Write the page, for its owner only if it is `private`."""
        text = render_page(self._body(budget, chain))
        replace_text(self.path, text, owner_only if private else not_linked)
        if private:
            self._reporter.note(f"{self.path} has private texts, so only you can read it")

    def _body(self, budget: int, chain: bool) -> dict[str, Any]:
        drafters = [visible(name, MAX_NAME_CHARACTERS) for name in self._watched]
        pieces = _Pieces(self._tokenizer)
        answers: list[dict[str, Any]] = []
        left = PAGE_NODES
        for turns in zip(*self._watched.values(), strict=True):
            left -= sum(turn.nodes for turn in turns)
            if answers and left < 0:
                break
            answers.append(_answer_json(turns, self._tokenizer, pieces))
        drafts = "paths" if chain else "trees"
        about = [f"Draft {drafts} of at most {counted(budget, 'node')} per pass"]
        if self._tokenizer is not None:
            about.append(
                f"tokens of {visible(model_name(self._tokenizer.record.id), MAX_NAME_CHARACTERS)}"
            )
        for shown, of, what in (
            (len(drafters), self._drafters, "drafter"),
            (len(answers), self._asked, "answer"),
        ):
            if shown < of:
                about.append(f"the first {shown} of {counted(of, what)}")
                self._reporter.note(f"{self.path} has {about[-1]}")
        return {
            "sources": [{"key": key, "name": name} for key, name, _ in SOURCE_GROUPS],
            "drafters": drafters,
            "scores": SCORES_NOTE,
            "about": "; ".join(about) + ". Made by ngramkit replay.",
            "answers": answers,
            "pieces": pieces.texts,
        }


def require_page(path: str | Path, *, force: bool = False) -> None:
    """Raise UsageError unless a page may be written to `path`: new, or a page with `force`."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"html must be a file FILE.html, got {path}", option="html")
    if os.path.lexists(path):
        if path.is_symlink() or not path.is_file() or not _is_page(path):
            raise UsageError(
                f"cannot write {path}: no replay wrote what is there",
                "Choose another file.",
                option="html",
            )
        if not force:
            error = exists_error(path)
            error.option = ("html", "force")
            error.hint = "Choose another file, or replace it with force=True."
            raise error
    require_room_for_file(path, "html")


def _is_page(path: Path) -> bool:
    with suppress(OSError), open_stream(path) as file:
        return PAGE_MARK.encode() in file.read(1024)
    return False


def render_page(body: dict[str, Any]) -> str:
    """Return the page of the data."""
    style, script = _page_part("css"), _page_part("js")
    allowed = [f"script-src {_csp_digest(script)}", f"style-src {_csp_digest(style)}"]
    policy = "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])
    data = json.dumps(body, separators=(",", ":"))
    for mark in "<>&":  # "</script>" and "<!--" would end the element
        data = data.replace(mark, f"\\u{ord(mark):04x}")
    values = {  # in the order of the template
        "policy": html.escape(policy),
        "title": html.escape(f"Drafts by {', '.join(body['drafters'])}"),
        "style": style,
        "data": data,
        "script": script,
    }
    written, rest = "", _page_part("html")
    for name, value in values.items():
        before, _, rest = rest.partition(f"{{{{{name}}}}}")
        written += before + value
    return written + rest


def _page_part(suffix: str) -> str:
    return files("ngramkit.evaluate").joinpath(f"replay_page.{suffix}").read_text("utf-8")


def _csp_digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text_tokenizer(
    tokenizer: TokenizerRecord | TextTokenizer, reporter: Reporter
) -> TextTokenizer | None:
    if isinstance(tokenizer, TextTokenizer):
        return tokenizer
    try:
        return load_tokenizer(tokenizer.id)
    except NgramkitError as error:
        reporter.note(f"the page shows token ids: {one_line(error)}")
        return None


class _Pieces:
    """A table of drafted tokens' texts."""

    def __init__(self, tokenizer: TextTokenizer | None) -> None:
        self.texts: list[str] = []
        self._tokenizer = tokenizer
        self._known: dict[int, int] = {}

    def of(self, token: int) -> int:
        if token not in self._known:
            self._known[token] = len(self.texts)
            self.texts.append(_show_token(self._tokenizer, token))
        return self._known[token]


def _show_token(tokenizer: TextTokenizer | None, token: int) -> str:
    if tokenizer is None:
        return f"{token} "
    raw = tokenizer.raw([token])
    text = tokenizer.decode([token]) if raw is None else raw.decode("utf-8", "backslashreplace")
    return escape_controls(text)[:MAX_TOKEN_CHARACTERS]


def text_of_each_token(tokens: TokenArray, tokenizer: TextTokenizer | None) -> Iterator[str]:
    """Yield each token's text. A character of several tokens is the text of the last one."""
    if tokenizer is None or not len(tokens) or tokenizer.raw(tokens[:1].tolist()) is None:
        yield from (_show_token(tokenizer, token) for token in tokens.tolist())
        return
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    last = len(tokens) - 1
    for at, token in enumerate(tokens.tolist()):
        text = decoder.decode(tokenizer.raw([token]) or b"", final=at == last)
        yield escape_controls(text)[:MAX_TOKEN_CHARACTERS]


def _answer_json(
    turns: Sequence[WatchedTurn], tokenizer: TextTokenizer | None, pieces: _Pieces
) -> dict[str, Any]:
    """Return the JSON of an answer, with a view per drafter."""
    first = turns[0]
    shown = max(turn.shown for turn in turns)
    asked = first.turn.prompt[-MAX_PROMPT_CHARACTERS:]
    prompt = "".join(text_of_each_token(asked, tokenizer))
    return {
        "name": first.name,
        "prompt": prompt[-MAX_PROMPT_CHARACTERS:],
        "prompt_tokens": len(first.turn.prompt),
        "prompt_cut": len(asked) < len(first.turn.prompt) or len(prompt) > MAX_PROMPT_CHARACTERS,
        "texts": list(text_of_each_token(first.turn.answer[:shown], tokenizer)),
        "views": [
            {
                "left": len(turn.turn.answer) - turn.shown,
                "passes": [_pass_json(each, pieces) for each in turn.passes],
            }
            for turn in turns
        ],
    }


def _pass_json(watched: WatchedPass, pieces: _Pieces) -> list[Any]:
    """Return [written, nodes, accepted, left out]; a node is piece, parent, source, percent."""
    tree, nodes = watched.tree, []
    columns = (tree.token_ids, tree.parents, tree.scores, tree.source)
    for token, parent, score, source in zip(*(c.tolist() for c in columns), strict=True):
        nodes += [
            pieces.of(token),
            parent,
            GROUP_OF_SOURCE[source],
            round(100 * min(max(score, 0), 1)),
        ]
    return [watched.written, nodes, list(map(int, watched.accepted)), watched.left_out]
