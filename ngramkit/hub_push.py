"""An artifact folder to a Hub repository: verified first, only what differs, resumable.

What leaves the machine is what the artifact owns: the files that its manifest lists, each proven by
its sha256, and texts that are written anew from what was understood of them. Nothing else in the
folder goes along, and no link is followed out of a folder of the user's.

Files whose sha256 the repository has are not sent; those of an interrupted upload are known to the
Hub's store and not sent again. One commit makes everything visible at once, and takes away what
the artifact no longer has. A folder of `export --to transformers` becomes a model repository.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError, NetworkError, NgramkitError, UsageError
from ngramkit.fetching import fetch
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import PLACEHOLDER, Entry, card
from ngramkit.formats.container import sha256_of
from ngramkit.formats.files import read_plain, require_no_links
from ngramkit.formats.json_text import read_json
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import NAME
from ngramkit.formats.outputs import ARTIFACT, CARD, CODE, RECIPE
from ngramkit.formats.queries import most_frequent
from ngramkit.formats.writer import recipe_text
from ngramkit.hub import Source, quiet
from ngramkit.hub_errors import hub_errors
from ngramkit.hub_repository import GENERATE, OURS, Repository, Upload
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result

ENTRIES = 10  # rows of the card's table of frequent entries
MOST_TEXT = 1 << 22  # bytes of a card or of generate.py


@dataclass(frozen=True)
class Pushed(Result):
    """What was sent where."""

    repository: str
    revision: str  # the commit
    url: str
    files: int  # sent or changed
    bytes: int  # of those
    skipped: int  # files that were there already
    pull_request: str | None = None


def push(
    path: str | Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    reporter: Reporter = SILENT,
) -> Pushed:
    """Uploads an artifact to the Hub, with a card; only what is not there yet.

    `private` counts where the repository is new; `revision` is a branch, made where it is new;
    `tag` names the commit; `create_pr` asks for a pull request. Raises NetworkError where nobody
    is logged in or the Hub refuses, ArtifactError where a file is not what the manifest says.
    """
    if create_pr and (revision or tag):
        raise UsageError(
            "create_pr goes with neither revision nor tag",
            "drop one of them",
            option=("create_pr", "revision", "tag"),
        )
    fetched, name = fetch(path, reporter=reporter), Source.parse(repository).repository
    path = fetched.path
    if fetched.commit is None:
        require_no_links(path)
    kind = "model" if (path / GENERATE).is_file() else "dataset"
    if kind == "model":
        uploads = _export(path, reporter)
    else:
        uploads = _artifact(open_artifact(path), reporter)
    uploads = [_addressed(upload, name) for upload in uploads]
    with hub_errors(name, kind):
        there = Repository(_api(name), name, kind, revision)
        there.create(private=private)
        pushed = _update(there, uploads, create_pr, reporter)
        if tag:
            there.tag(tag, pushed.revision)
    return pushed


def _update(
    repository: Repository, uploads: Sequence[Upload], create_pr: bool, reporter: Reporter
) -> Pushed:
    """One commit of what differs, or none where nothing does."""
    there = repository.files()
    send = [upload for upload in uploads if not upload.is_there(there.get(upload.name))]
    ours = filter(OURS[repository.kind].fullmatch, there.keys() - {u.name for u in uploads})
    stale = sorted(ours)
    commit, pull_request = repository.head(), None
    if send or stale:
        commit, pull_request = repository.commit(send, stale, reporter, create_pr=create_pr)
    return Pushed(
        repository=repository.name,
        revision=commit,
        url=repository.url(commit),
        files=len(send),
        bytes=sum(upload.bytes for upload in send),
        skipped=len(uploads) - len(send),
        pull_request=pull_request,
    )


def _api(name: str) -> Any:
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise NetworkError(f"not logged in, so {name} cannot be written", "run: hf auth login")
    quiet()
    return HfApi()


def _artifact(artifact: Artifact, reporter: Reporter) -> list[Upload]:
    """The listed files, each proven against the manifest, the manifest and the card."""
    manifest, path = artifact.manifest, artifact.path
    reporter.stage(f"verifying {path}", manifest.bytes, "bytes")
    uploads = []
    for name, record in manifest.files.items():
        if sha256_of(path / name) != record.sha256:
            raise ArtifactError(
                f"{path / name} is not what the manifest says (sha256 differs)",
                "build it again before it is pushed",
            )
        uploads.append(Upload(name, path / name, record.sha256, record.bytes))
        reporter.advance(record.bytes)
    texts = [_made(NAME, manifest.to_json())]
    if (recipe := _recipe(path, manifest.build)) is not None:
        texts.append(_made(RECIPE, recipe))
    return [*uploads, *texts, _made(CARD, card(manifest, frequent_entries(artifact)))]


def _recipe(path: Path, build: str) -> str | None:
    """The artifact's recipe.json, written anew; None where it has none."""
    try:
        body = read_json(path / RECIPE)
    except FileNotFoundError:
        return None
    if not isinstance(body, dict) or body.keys() != {"build", "inputs"} or body["build"] != build:
        raise ArtifactError(
            f"{path / RECIPE} is not the record of how this artifact was built",
            "delete it, or build the recipe again",
        )
    return recipe_text(build, body["inputs"])


def frequent_entries(artifact: Artifact) -> list[Entry]:
    """The card's rows as text; as ids where the tokenizer cannot be loaded."""
    from ngramkit.corpus.tokenizer import load_tokenizer

    decode: Callable[[list[int]], str] = str
    with suppress(NgramkitError):
        decode = load_tokenizer(artifact.tokenizer.id).decode
    rows: list[Entry] = []
    for answer in most_frequent(artifact, ENTRIES, followers=3):
        following = [decode(ids) for ids, _ in answer.continuations]
        rows.append((decode(answer.phrase), following, answer.matches))
    return rows


def _addressed(upload: Upload, name: str) -> Upload:
    """A card says where it is."""
    if upload.name != CARD:
        return upload
    assert isinstance(upload.content, bytes)
    return _made(CARD, upload.content.decode().replace(PLACEHOLDER, name))


def _export(path: Path, reporter: Reporter) -> list[Upload]:
    """What `export --to transformers` wrote: the artifact, the code, and the card, which people add
    to."""
    inside = _artifact(open_artifact(path / ARTIFACT), reporter)
    uploads = [replace(each, name=f"{ARTIFACT}/{each.name}") for each in inside]
    for name in (CARD, *CODE):
        raw = read_plain(path / name, MOST_TEXT, hint="export it again")
        try:
            uploads.append(_made(name, raw.decode()))
        except UnicodeDecodeError as error:
            raise ArtifactError(f"{path / name} is no text", "export it again") from error
    left = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()}
    for name in sorted(left - {upload.name for upload in uploads}):
        reporter.note(f"{name} is not pushed: ngramkit did not write it")
    return uploads


def _made(name: str, text: str) -> Upload:
    content = text.encode()
    return Upload(name, content, hashlib.sha256(content).hexdigest(), len(content))
