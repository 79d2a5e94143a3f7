"""`ngramkit inspect` and `ngramkit verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli.options import Debug, Json
from ngramkit_cli.output import Output, table

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.manifest import Manifest
    from ngramkit.formats.queries import Answer

ArtifactPath = Annotated[Path, typer.Argument(metavar="PATH", help="An artifact's folder.")]
Query = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Show how often this was seen and what follows it."),
]
ModelOfText = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        help="Whose tokenizer shows the text. Default: the artifact's.",
    ),
]
Top = Annotated[int, typer.Option(min=1, max=1_000_000, help="How many lines of everything.")]

DOCUMENT = 40  # tokens shown of a document


def inspect(
    path: ArtifactPath,
    query: Query = None,
    model: ModelOfText = None,
    top: Top = 10,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look into an artifact: what it was made from, what it holds most of, what follows a phrase.

    Example: ngramkit inspect artifacts/python-stdlib-demo-frozen --query "def main"
    """
    with Output("inspect", json=json, debug=debug) as out:
        from ngramkit.formats.kinds import open_artifact
        from ngramkit.formats.queries import ask, most_frequent

        artifact = open_artifact(path)
        out.show(*table(str(path), _facts(artifact.manifest)))
        tokenizer = _tokenizer(artifact, model, needed=query is not None, say=out.say)
        text = Text(tokenizer)
        found: dict[str, Any] = {}
        if query is None:
            answers = list(most_frequent(artifact, top, followers=5))
            _show_answers("most frequent", answers, text, out.show)
            found["most_frequent"] = [text.of(answer) for answer in answers]
            found["documents"] = _show_documents(artifact, top, text, out.show)
        elif tokenizer is not None:
            answer = ask(artifact, tokenizer.encode(query).tolist(), top)
            _show_answers(f"query {query!r}", [answer] if answer else [], text, out.show)
            found["query"] = text.of(answer) if answer else None
        manifest = artifact.manifest
        out.result(path, kind=manifest.kind, bytes=manifest.bytes, counts=manifest.counts, **found)


def verify(path: ArtifactPath, json: Json = False, debug: Debug = False) -> None:
    """Prove an artifact whole: every checksum, every invariant of its format.

    Example: ngramkit verify artifacts/python-stdlib-demo-frozen
    """
    with Output("verify", json=json, debug=debug) as out:
        from ngramkit.formats.verify import verify_artifact

        checks = []
        for check in verify_artifact(path):
            out.say(f"ok  {check}")
            checks.append(check)
        out.say(f"{path} is whole: {len(checks)} checks")
        out.result(path, ok=True, checks=checks)


def _facts(manifest: Manifest) -> dict[str, object]:
    tokenizer = manifest.tokenizer
    corpus = {f"corpus {name}": value for name, value in manifest.corpus.items() if value}
    return {
        "kind": manifest.kind,
        "tokenizer": f"{tokenizer.id} ({tokenizer.vocabulary:,} tokens, "
        f"{tokenizer.fingerprint[:12]})",
        **corpus,
        **{f"--{n.replace('_', '-')}": v for n, v in manifest.parameters.items()},
        **{name: f"{count:,}" for name, count in manifest.counts.items()},
        **{name: f"{record.bytes:,} bytes" for name, record in manifest.files.items()},
        "bytes": f"{manifest.bytes:,}",
    }


def _tokenizer(
    artifact: Artifact, model: str | None, *, needed: bool, say: Callable[[str], None]
) -> TextTokenizer | None:
    """The artifact's tokenizer. Where it cannot be had and nobody asked for it: None, and why."""
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.errors import NgramkitError

    try:
        tokenizer = load_tokenizer(model or artifact.tokenizer.id)
        artifact.tokenizer.require(tokenizer.record, str(artifact.path))
    except NgramkitError as error:
        if model is not None or needed:
            raise
        say(f"ids, not text: {error}")
        return None
    return tokenizer


class Text:
    """Tokens as people can read them: text where there is a tokenizer, else ids."""

    def __init__(self, tokenizer: TextTokenizer | None) -> None:
        self._tokenizer = tokenizer

    def show(self, tokens: list[int], after: list[int] | None = None) -> str:
        """What `tokens` add to the text of the tokens `after` which they stand."""
        if self._tokenizer is None:
            return " ".join(map(str, tokens))
        before = self._tokenizer.decode(after or [])
        whole = self._tokenizer.decode([*(after or []), *tokens])
        return repr(whole[len(before) :] if whole.startswith(before) else whole)

    def of(self, answer: Answer) -> dict[str, Any]:
        """For --json."""
        return {
            "phrase": self.show(answer.phrase),
            "token_ids": answer.phrase,
            "matches": answer.matches,
            "continuations": [
                {"text": self.show(tokens, answer.phrase), "token_ids": tokens, "count": count}
                for tokens, count in answer.continuations
            ],
        }


def _show_answers(
    title: str, answers: Iterable[Answer], text: Text, show: Callable[..., None]
) -> None:
    for answer in answers:
        show("", f"{title}: {text.show(answer.phrase)}  {answer.matches:,} matches")
        for tokens, count in answer.continuations:
            share = count / answer.matches
            show(f"  {count:>12,}  {share:6.1%}  {text.show(tokens, answer.phrase)}")


def _show_documents(
    artifact: Artifact, top: int, text: Text, show: Callable[..., None]
) -> list[str]:
    """The first documents of a token store."""
    from itertools import islice

    from ngramkit.formats.tokens import TokenStore

    shown = []
    if isinstance(artifact, TokenStore):
        show("")
        for i, document in enumerate(islice(artifact.documents(), top)):
            shown.append(text.show(document[:DOCUMENT].tolist()))
            show(f"document {i}, {len(document):,} tokens: {shown[-1]}")
    return shown
