"""An artifact folder to a Hub repository: verified first, only what differs, resumable.

Files whose sha256 the repository has are not sent; those of an interrupted upload are known to the
Hub's store and not sent again. One commit makes everything visible at once, and takes away what
the artifact no longer has. A folder of `export --to transformers` becomes a model repository.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError, NetworkError, NgramkitError, UsageError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import PLACEHOLDER, Entry, card
from ngramkit.formats.container import sha256_of
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import NAME
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.queries import most_frequent
from ngramkit.hub import Source, quiet
from ngramkit.hub_errors import hub_errors
from ngramkit.progress import SILENT, Reporter

ENTRIES = 10  # rows of the card's table of frequent entries
GENERATE = Path("custom_generate") / "generate.py"
FIRST = {".gitattributes", CARD}  # what a new repository may have
MARK = {"dataset": NAME, "model": GENERATE.as_posix()}  # what one of ours has
# What a commit may take away.
OURS = {
    "dataset": re.compile(rf"[^/]+\.safetensors|{re.escape(RECIPE)}"),
    "model": re.compile(r"artifact/.*"),
}


@dataclass(frozen=True)
class Pushed:
    repository: str
    revision: str  # the commit
    url: str
    files: int  # sent or changed
    bytes: int  # of those
    skipped: int  # files that were there already
    pull_request: str | None = None


@dataclass(frozen=True)
class _Upload:
    """What goes up: content is a file, or bytes made here."""

    name: str
    content: Path | bytes
    sha256: str
    bytes: int

    def is_there(self, remote: Any) -> bool:
        """Whether the file `remote` of a repository (None: none) has this content."""
        if remote is None or remote.size != self.bytes:
            return False
        if remote.lfs:
            return bool(remote.lfs.sha256 == self.sha256)
        content = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content)  # git's id of it
        return bool(remote.blob_id == blob.hexdigest())


def push(
    path: Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    reporter: Reporter = SILENT,
) -> Pushed:
    """Uploads the artifact at `path`. Creates the repository, and the branch `revision`.

    `private` counts where the repository is new. Raises NetworkError where nobody is logged in or
    the Hub refuses, ArtifactError where a file is not what the manifest says.
    """
    if create_pr and (revision or tag):
        raise UsageError(
            "create_pr goes with neither revision nor tag",
            "drop one of them",
            option=("create_pr", "revision", "tag"),
        )
    name = Source.parse(repository).repository
    kind = "model" if (path / GENERATE).is_file() else "dataset"
    uploads = _folder(path) if kind == "model" else _artifact(open_artifact(path), reporter)
    uploads = [_addressed(upload, name) for upload in uploads]
    with hub_errors(name, kind):
        api = _api(name)
        api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
        if revision:
            api.create_branch(name, branch=revision, repo_type=kind, exist_ok=True)
        pushed = _update(api, name, kind, uploads, revision, create_pr, reporter)
        if tag:
            _tag(api, name, kind, tag, pushed.revision)
    return pushed


def _update(
    api: Any,
    name: str,
    kind: str,
    uploads: Sequence[_Upload],
    revision: str | None,
    create_pr: bool,
    reporter: Reporter,
) -> Pushed:
    """One commit of what differs, or none where nothing does."""
    where = {"repo_type": kind, "revision": revision}
    there = _remote(api, name, kind, revision)
    send = [upload for upload in uploads if not upload.is_there(there.get(upload.name))]
    stale = sorted(filter(OURS[kind].fullmatch, there.keys() - {u.name for u in uploads}))
    if send or stale:
        commit = _commit(api, name, send, stale, reporter, create_pr=create_pr, **where)
        oid, pull_request = commit.oid, commit.pr_url
    else:
        oid, pull_request = api.repo_info(name, **where).sha, None
    return Pushed(
        repository=name,
        revision=oid,
        url=f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{name}/tree/{oid}",
        files=len(send),
        bytes=sum(upload.bytes for upload in send),
        skipped=len(uploads) - len(send),
        pull_request=pull_request,
    )


def _tag(api: Any, name: str, kind: str, tag: str, commit: str) -> None:
    """Raises UsageError where the tag stands elsewhere: a tag that moves pins nothing."""
    api.create_tag(name, tag=tag, revision=commit, repo_type=kind, exist_ok=True)
    tags = api.list_repo_refs(name, repo_type=kind).tags
    if any(ref.name == tag and ref.target_commit != commit for ref in tags):
        raise UsageError(
            f"{name} has a tag {tag} on another commit; everything else was pushed",
            "choose another tag",
            option="tag",
        )


def _api(name: str) -> Any:
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise NetworkError(f"not logged in, so {name} cannot be written", "run: hf auth login")
    quiet()
    return HfApi()


def _artifact(artifact: Artifact, reporter: Reporter) -> list[_Upload]:
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
        uploads.append(_Upload(name, path / name, record.sha256, record.bytes))
        reporter.advance(record.bytes)
    readme = card(manifest, frequent_entries(artifact)).encode()
    recipe = [_file(path / RECIPE, RECIPE)] if (path / RECIPE).is_file() else []
    return [*uploads, _file(path / NAME, NAME), *recipe, _made(CARD, readme)]


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


def _addressed(upload: _Upload, name: str) -> _Upload:
    """A card says where it is."""
    if upload.name != CARD:
        return upload
    content = upload.content if isinstance(upload.content, bytes) else upload.content.read_bytes()
    return _made(CARD, content.replace(PLACEHOLDER.encode(), name.encode()))


def _folder(path: Path) -> list[_Upload]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [_file(file, file.relative_to(path).as_posix()) for file in files]


def _file(path: Path, name: str) -> _Upload:
    return _Upload(name, path, sha256_of(path), path.stat().st_size)


def _made(name: str, content: bytes) -> _Upload:
    return _Upload(name, content, hashlib.sha256(content).hexdigest(), len(content))


def _remote(api: Any, name: str, kind: str, revision: str | None) -> dict[str, Any]:
    """Every file there, by its path. UsageError: files of something that is not ours."""
    from huggingface_hub import RepoFolder

    entries = api.list_repo_tree(name, recursive=True, revision=revision, repo_type=kind)
    files = {entry.path: entry for entry in entries if not isinstance(entry, RepoFolder)}
    if files.keys() - FIRST and MARK[kind] not in files:
        raise UsageError(
            f"{name} holds something that ngramkit did not put there",
            "choose the name of a new repository",
        )
    return files


def _commit(
    api: Any,
    name: str,
    send: Sequence[_Upload],
    stale: Sequence[str],
    reporter: Reporter,
    **where: Any,
) -> Any:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    reporter.stage(f"uploading {name}", sum(upload.bytes for upload in send), "bytes")
    additions = []
    for upload in send:
        content = upload.content if isinstance(upload.content, bytes) else str(upload.content)
        addition = CommitOperationAdd(upload.name, content)
        addition.upload_info.sha256 = bytes.fromhex(upload.sha256)
        api.preupload_lfs_files(name, [addition], free_memory=False, **where)
        additions.append(addition)
        reporter.advance(upload.bytes)
    deletions = [CommitOperationDelete(path) for path in stale]
    message = ", ".join(upload.name for upload in send[:3]) + (", ..." if len(send) > 3 else "")
    message = f"Upload {message}" if send else "Remove files"
    return api.create_commit(name, [*additions, *deletions], commit_message=message, **where)
