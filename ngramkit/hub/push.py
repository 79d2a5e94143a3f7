"""`push`: verified, incremental upload of an artifact to a Hub repository in one commit.

Only the manifest's files, verified by sha256, and texts that ngramkit writes leave the machine. A
private artifact, such as a history, needs `allow_private`, goes to a private repository by default,
and its card quotes no text. A folder of `export --to transformers` becomes a model repository.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.arguments import check_type, check_types
from ngramkit.basics.errors import (
    ArtifactError,
    NetworkError,
    NgramkitError,
    UsageError,
    hub_errors,
    require_list,
)
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import read_json, read_plain, require_no_links
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.build_command import corpora_of
from ngramkit.formats.card import LANGUAGE, PLACEHOLDER, Entry, artifact_card, is_hub_id
from ngramkit.formats.history import LOG, History, copy_of
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, read_manifest
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.outputs import ARTIFACT, CARD, CODE, PREVIEW, RECIPE
from ngramkit.formats.query import most_frequent
from ngramkit.formats.resumable_writer import recipe_text
from ngramkit.formats.safetensors import sha256_of
from ngramkit.hub.preview import may_show, preview_of
from ngramkit.remote.fetch import HubName, fetch, silence_client

GENERATE_FILE = Path("custom_generate") / "generate.py"
NEW_REPOSITORY_FILES = {".gitattributes", CARD}
MARKER_FILE = {"dataset": MANIFEST_FILE, "model": GENERATE_FILE.as_posix()}  # of our repositories
# Files that a commit may remove.
REMOVABLE_FILES = {
    "dataset": re.compile(
        rf"[^/]+\.safetensors|{'|'.join(map(re.escape, (RECIPE, LOG, PREVIEW)))}"
    ),
    "model": re.compile(r"artifact/.*"),
}


@dataclass(frozen=True)
class Upload:
    name: str
    content: Path | bytes
    sha256: str
    bytes: int

    def is_there(self, remote: Any) -> bool:
        if remote is None or remote.size != self.bytes:
            return False
        if remote.lfs:
            return bool(remote.lfs.sha256 == self.sha256)
        content = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content)  # git's object id
        return bool(remote.blob_id == blob.hexdigest())


@dataclass(frozen=True)
class Repository:
    """A dataset or model repository on the Hub. Methods raise huggingface_hub's errors."""

    api: Any
    name: str
    kind: str
    revision: str | None

    def create(self, *, private: bool) -> None:
        self.api.create_repo(self.name, repo_type=self.kind, private=private, exist_ok=True)
        if self.revision:
            self.api.create_branch(
                self.name, branch=self.revision, repo_type=self.kind, exist_ok=True
            )

    def find(self) -> Repository | None:
        """Return this repository, main if the branch is new, None if it does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        try:
            self.info()
        except RevisionNotFoundError:
            return replace(self, revision=None)
        except RepositoryNotFoundError:
            return None
        return self

    def artifact_kind(self, files: Mapping[str, Any]) -> str | None:
        """Return the kind of the artifact among `files`; None if it has none or a damaged one."""
        from huggingface_hub import hf_hub_download

        name = MANIFEST_FILE if self.kind == "dataset" else f"{ARTIFACT}/{MANIFEST_FILE}"
        if name not in files:
            return None
        manifest = hf_hub_download(self.name, name, **self._where)
        with suppress(ArtifactError):
            return read_manifest(Path(manifest).parent).kind
        return None

    def files(self) -> dict[str, Any]:
        """Return all files by path. Raises UsageError for files that are not ngramkit's."""
        from huggingface_hub import RepoFolder

        entries = self.api.list_repo_tree(self.name, recursive=True, **self._where)
        files = {entry.path: entry for entry in entries if not isinstance(entry, RepoFolder)}
        if files.keys() - NEW_REPOSITORY_FILES and MARKER_FILE[self.kind] not in files:
            raise UsageError(
                f"cannot push to {self.name}: it has files that ngramkit did not write",
                "choose the name of a new repository",
            )
        return files

    def info(self) -> Any:
        return self.api.repo_info(self.name, **self._where)

    def url(self, commit: str = "") -> str:
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"{self.api.endpoint}/{folder}{self.name}{commit and f'/tree/{commit}'}"

    def commit(
        self, send: Sequence[Upload], stale: Sequence[str], reporter: Reporter, *, create_pr: bool
    ) -> tuple[str, str | None]:
        """Upload `send` and remove `stale` in one commit; return its id and any pull request."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        where = {**self._where, "create_pr": create_pr}
        reporter.stage(f"uploading {self.name}", sum(upload.bytes for upload in send), "bytes")
        additions = []
        for upload in send:
            content = upload.content if isinstance(upload.content, bytes) else str(upload.content)
            addition = CommitOperationAdd(upload.name, content)
            addition.upload_info.sha256 = bytes.fromhex(upload.sha256)
            self.api.preupload_lfs_files(self.name, [addition], free_memory=False, **where)
            additions.append(addition)
            reporter.advance(upload.bytes)
        operations = [*additions, *(CommitOperationDelete(path) for path in stale)]
        named = ", ".join(upload.name for upload in send[:3]) + (", ..." if len(send) > 3 else "")
        message = f"Upload {named}" if send else "Remove files"
        done = self.api.create_commit(self.name, operations, commit_message=message, **where)
        return done.oid, done.pr_url

    def squash(self) -> str:
        """Squash the branch, which deletes older content; return the new commit."""
        self.api.super_squash_history(self.name, branch=self.revision, repo_type=self.kind)
        return str(self.info().sha)

    def tag(self, tag: str, commit: str) -> None:
        """Tag the commit. Raises UsageError if the tag is on another commit; tags must not move."""
        self.api.create_tag(self.name, tag=tag, revision=commit, repo_type=self.kind, exist_ok=True)
        tags = self.api.list_repo_refs(self.name, repo_type=self.kind).tags
        if any(ref.name == tag and ref.target_commit != commit for ref in tags):
            raise UsageError(
                f"cannot move tag {tag} of {self.name} to another commit; all else was pushed",
                "choose another tag",
                option="tag",
            )

    @property
    def _where(self) -> dict[str, Any]:
        return {"repo_type": self.kind, "revision": self.revision}


@dataclass(frozen=True)
class Pushed(Result):
    """The files that were sent, or that a dry run would send."""

    repository: str
    revision: str  # the commit; "" in a dry run
    url: str
    files: int  # sent
    bytes: int  # sent
    skipped: int  # files that were already there
    counts: Mapping[str, int]  # of the artifact: tokens, requests of a history, ...
    private: bool  # whether only people with access can read the repository
    sent: Mapping[str, int]  # bytes by name
    replaced: Sequence[str]  # files of the repository that change or are deleted
    new: bool  # whether the repository did not exist
    dry_run: bool = False
    pull_request: str | None = None


def push(
    path: str | Path,
    repository: str,
    *,
    private: bool | None = None,
    allow_private: bool = False,
    language: str | Sequence[str] = (),
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    squash: bool = False,
    dry_run: bool = False,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Pushed:
    """Upload an artifact to the Hub with a card; files that are already there are not sent.

    A datastore or frozen table also gets a small table of frequent phrases, for the Hub's viewer.

    Args:
        private: Require a private repository; None requires it for private artifacts.
        allow_private: Upload a private artifact, such as a history.
        language: ISO 639 codes of the corpus's languages, or "code", for the card. Default: those
            on the repository's card, else the source datasets' if each has exactly one.
        revision: Branch, created if it is new.
        tag: Tag for the commit.
        create_pr: Open a pull request.
        squash: Make the branch one commit, so that requests deleted from a history are gone.
        dry_run: Change nothing on the Hub; return what would be sent and replaced.
        force: Replace an artifact of another kind.

    Raises UsageError for a private artifact without `allow_private`, if the repository must not be
    public or holds another kind; NetworkError without a login or if the Hub refuses; ArtifactError
    if a file differs from the manifest.
    """
    check_types(bool, private=private, create_pr=create_pr, squash=squash)
    check_types(bool, dry_run=dry_run, force=force, allow_private=allow_private)
    check_types(str, revision=revision, tag=tag)
    check_type("repository", repository, [str])
    if create_pr and (revision or tag or squash):
        raise UsageError(
            "cannot combine create_pr with revision, tag or squash",
            "drop one of them",
            option=("create_pr", "revision", "tag", "squash"),
        )
    languages = _checked_languages(language)
    name = HubName.to_push(repository)
    fetched = fetch(path, reporter=reporter)
    path = fetched.path
    if fetched.commit is None:
        require_no_links(path)
    kind = "model" if (path / GENERATE_FILE).is_file() else "dataset"
    artifact = open_artifact_folder(path / ARTIFACT if kind == "model" else path)
    if squash and artifact.kind != History.kind:
        raise UsageError(
            f"cannot use squash for {path}: it breaks users who pin an older commit",
            "drop squash",
            option="squash",
        )
    marked = artifact.manifest.private
    require_allow_private(path, marked, allow_private)
    counts: Mapping[str, int] = artifact.manifest.counts
    about: _About | None = None
    if isinstance(artifact, History):
        counts, uploads = _history_uploads(artifact)
    elif kind == "model":
        uploads = _export_uploads(path, artifact, reporter)
    else:
        uploads, about = _artifact_uploads(artifact, reporter), _About.of(artifact)
    if private is None:
        private = marked
    with hub_errors(name, kind):
        remote = Repository(_hub_api(name), name, kind, revision)
        there = remote.find()
        if about is not None:
            known = languages or _known_languages(remote.api, there, artifact.manifest.corpus)
            uploads += about.uploads(artifact.manifest, known)
        uploads = [_with_repository_name(upload, name) for upload in uploads]
        is_private = private if there is None else _is_private(there, path, private)
        files = {} if there is None else there.files()
        if there == remote and not (create_pr or force):
            _require_same_kind(remote, files, path, artifact.kind)
        send = [upload for upload in uploads if not upload.is_there(files.get(upload.name))]
        stale = sorted(
            filter(REMOVABLE_FILES[kind].fullmatch, files.keys() - {u.name for u in uploads})
        )
        pushed = Pushed(
            repository=name,
            revision="",
            url=remote.url(),
            files=len(send),
            bytes=sum(upload.bytes for upload in send),
            skipped=len(uploads) - len(send),
            counts=dict(counts),
            private=is_private,
            sent={upload.name: upload.bytes for upload in send},
            replaced=[*(upload.name for upload in send if upload.name in files), *stale],
            new=there is None,
            dry_run=dry_run,
        )
        if dry_run:
            return pushed
        remote.create(private=private)
        is_private = _is_private(remote, path, private)
        readers = "private" if is_private else "public"
        if any(upload.name == LOG for upload in send):
            size = f"{counted(counts['requests'], 'request')}, {counted(counts['tokens'], 'token')}"
            reporter.note(f"uploading user text to {name} ({readers}): {size}")
        elif marked and send:
            reporter.note(f"uploading private texts to {name} ({readers})")
        elif not is_private:
            reporter.note(f"{name} is public: everybody can download it")
        commit, pull_request = str(remote.info().sha), None
        if send or stale:
            commit, pull_request = remote.commit(send, stale, reporter, create_pr=create_pr)
        if squash:
            commit = remote.squash()
        if tag:
            remote.tag(tag, commit)
    return replace(
        pushed,
        revision=commit,
        url=remote.url(commit),
        private=is_private,
        pull_request=pull_request,
    )


def require_allow_private(what: object, is_private: bool, allow_private: bool) -> None:
    """Raise UsageError if a private artifact would be pushed without `allow_private`."""
    if is_private and not allow_private:
        raise UsageError(
            f"cannot push {what}: it is private",
            "Give allow_private if everybody with access to the repository may read its texts.",
            option="allow_private",
        )


def _is_private(repository: Repository, path: Path, wanted: bool) -> bool:
    """Return whether the repository is private. Raises UsageError if it must be but is not."""
    is_private = bool(repository.info().private)
    if wanted and not is_private:
        raise UsageError(
            f"cannot push {path} to {repository.name}: the repository is public",
            "choose another repository, or give private=False",
            option="private",
        )
    return is_private


def _require_same_kind(
    repository: Repository, files: Mapping[str, Any], path: Path, kind: str
) -> None:
    there = repository.artifact_kind(files)
    if there not in (None, kind):
        raise UsageError(
            f"cannot push {path} to {repository.name}: it is {a_kind(kind)} and would replace "
            f"{a_kind(str(there))}",
            "choose another repository, or replace it with force=True",
            option="force",
        )


def _history_uploads(history: History) -> tuple[Mapping[str, int], list[Upload]]:
    manifest, log = copy_of(history)
    record = manifest.files[LOG]
    texts = [
        _text_upload(MANIFEST_FILE, manifest.to_json()),
        _text_upload(CARD, artifact_card(manifest)),
    ]
    return manifest.counts, [Upload(LOG, log, record.sha256, record.bytes), *texts]


def _hub_api(name: str) -> Any:
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise NetworkError(f"cannot write {name}: not logged in", "run: hf auth login")
    silence_client()
    return HfApi()


def _artifact_uploads(artifact: Artifact, reporter: Reporter) -> list[Upload]:
    manifest, path = artifact.manifest, artifact.path
    reporter.stage(f"verifying {path}", manifest.bytes, "bytes")
    uploads = []
    for name, record in manifest.files.items():
        if sha256_of(path / name) != record.sha256:
            raise ArtifactError(
                f"cannot push {path / name}: it differs from its manifest (sha256)",
                "build it again before pushing",
            )
        uploads.append(Upload(name, path / name, record.sha256, record.bytes))
        reporter.advance(record.bytes)
    uploads.append(_text_upload(MANIFEST_FILE, manifest.to_json()))
    if (recipe := _recipe_of(path, manifest.build)) is not None:
        uploads.append(_text_upload(RECIPE, recipe))
    return uploads


@dataclass(frozen=True)
class _About:
    """The phrases of an artifact that its card and the Hub's viewer show."""

    entries: Sequence[Entry] = ()
    preview: bytes | None = None

    @classmethod
    def of(cls, artifact: Artifact) -> _About:
        if not may_show(artifact):
            return cls()
        decode = _phrase_decoder(artifact)
        return cls(_frequent_entries(artifact, decode), preview_of(artifact, decode))

    def uploads(self, manifest: Manifest, language: Sequence[str] = ()) -> list[Upload]:
        shown = self.preview is not None
        text = artifact_card(manifest, self.entries, language=language, preview=shown)
        table = [] if self.preview is None else [_upload_of(PREVIEW, self.preview)]
        return [_text_upload(CARD, text), *table]


def _phrase_decoder(artifact: Artifact) -> Callable[[list[int]], str]:
    with suppress(NgramkitError):
        return load_tokenizer(artifact.tokenizer.id).shown
    return str


def _frequent_entries(artifact: Artifact, decode: Callable[[list[int]], str]) -> list[Entry]:
    rows: list[Entry] = []
    for answer in most_frequent(artifact, 10, followers=3):
        following = [decode(ids) for ids, _ in answer.continuations]
        rows.append((decode(answer.phrase), following, answer.matches))
    return rows


def _checked_languages(given: str | Sequence[str]) -> list[str]:
    """Return the codes. Raises UsageError for anything else."""
    codes = [given] if isinstance(given, str) else given
    require_list("language", codes)
    for code in codes:
        if not isinstance(code, str) or not LANGUAGE.fullmatch(code):
            raise UsageError(
                f"language must be a code of ISO 639, or code, got {code!r:.40}",
                "give en, de or zh, for example",
                option="language",
            )
    return list(codes)


def _known_languages(api: Any, there: Repository | None, corpus: dict[str, Any]) -> list[str]:
    """Return the languages on the repository's card, else those of the source datasets.

    A dataset of several languages says nothing of a part of it.
    """
    from huggingface_hub.errors import HfHubHTTPError

    if there is not None and (written := _languages_of(there.info())):
        return written
    known: list[str] = []
    for part in corpora_of(corpus):
        dataset, found = part.get("dataset"), []
        if is_hub_id(dataset):
            with suppress(HfHubHTTPError):
                found = _languages_of(api.dataset_info(dataset))
        if len(found) != 1:
            return []
        known += found
    return sorted(set(known))


def _languages_of(info: Any) -> list[str]:
    written = (info.card_data or {}).get("language")
    codes = [written] if isinstance(written, str) else written or []
    return [code for code in codes if isinstance(code, str) and LANGUAGE.fullmatch(code)]


def _recipe_of(path: Path, build: str) -> str | None:
    try:
        body = read_json(path / RECIPE)
    except FileNotFoundError:
        return None
    if not isinstance(body, dict) or body.keys() != {"build", "inputs"} or body["build"] != build:
        raise ArtifactError(
            f"cannot push {path / RECIPE}: this artifact was not built from it",
            "delete it, or build the recipe again",
        )
    return recipe_text(build, body["inputs"])


def _with_repository_name(upload: Upload, name: str) -> Upload:
    if upload.name != CARD:
        return upload
    assert isinstance(upload.content, bytes)
    return _text_upload(CARD, upload.content.decode().replace(PLACEHOLDER, name))


def _export_uploads(path: Path, artifact: Artifact, reporter: Reporter) -> list[Upload]:
    entries = _frequent_entries(artifact, _phrase_decoder(artifact)) if may_show(artifact) else ()
    text = _text_upload(CARD, artifact_card(artifact.manifest, entries))
    inside = [*_artifact_uploads(artifact, reporter), text]
    uploads = [replace(upload, name=f"{ARTIFACT}/{upload.name}") for upload in inside]
    for name in (CARD, *CODE):
        raw = read_plain(path / name, LIMITS.text_bytes, hint="export it again")
        try:
            uploads.append(_text_upload(name, raw.decode()))
        except UnicodeDecodeError as error:
            raise ArtifactError(
                f"cannot push {path / name}: it is not UTF-8 text", "export it again"
            ) from error
    left = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()}
    for name in sorted(left - {upload.name for upload in uploads}):
        reporter.note(f"{name} is not pushed: ngramkit did not write it")
    return uploads


def _text_upload(name: str, text: str) -> Upload:
    return _upload_of(name, text.encode())


def _upload_of(name: str, content: bytes) -> Upload:
    return Upload(name, content, hashlib.sha256(content).hexdigest(), len(content))
