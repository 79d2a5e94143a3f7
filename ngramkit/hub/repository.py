"""A repository on the Hub that `push` writes: its files, and one commit of uploads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError, InputError, NetworkError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.formats.outputs import ARTIFACT, CARD, CODE
from ngramkit.remote.fetch import silence_client

NEW_REPOSITORY_FILES = {".gitattributes", CARD}
MARKER_FILE = {"dataset": MANIFEST_FILE, "model": CODE[0]}  # of our repositories


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

    @classmethod
    def at(cls, name: str, kind: str, revision: str | None) -> Repository:
        """Open the repository. Raises NetworkError without a login."""
        from huggingface_hub import HfApi, get_token

        if get_token() is None:
            raise NetworkError(f"cannot write {name}: not logged in", "Run: hf auth login")
        silence_client()
        return cls(HfApi(), name, kind, revision)

    def create(self, *, private: bool) -> None:
        self.api.create_repo(self.name, repo_type=self.kind, private=private, exist_ok=True)
        if self.revision:
            self.api.create_branch(
                self.name, branch=self.revision, repo_type=self.kind, exist_ok=True
            )

    def find(self) -> tuple[Repository | None, Any]:
        """Return this repository, main if the branch is new, and its `info`, if it exists."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        try:
            return self, self.info()
        except RevisionNotFoundError:
            main = replace(self, revision=None)
            return main, main.info()
        except RepositoryNotFoundError:
            return None, None

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
                "Choose the name of a new repository.",
            )
        return files

    def info(self) -> Any:
        return self.api.repo_info(self.name, **self._where)

    def url(self, commit: str = "") -> str:
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"{self.api.endpoint}/{folder}{self.name}{commit and f'/tree/{commit}'}"

    def commit(
        self,
        send: Sequence[Upload],
        stale: Sequence[str],
        head: str | None,
        reporter: Reporter,
        *,
        create_pr: bool,
    ) -> tuple[str, str | None]:
        """Upload `send` and remove `stale` in one commit; return its id and any pull request.

        Raises InputError if the repository had a commit after `head`.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

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
        where = {**where, "commit_message": message, "parent_commit": head}
        try:
            done = self.api.create_commit(self.name, operations, **where)
        except HfHubHTTPError as error:
            if error.response.status_code != HTTPStatus.PRECONDITION_FAILED:
                raise
            raise InputError(
                f"cannot push to {self.name}: somebody else wrote to it at the same time",
                "Run the same command again.",
            ) from error
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
                "Choose another tag.",
                option="tag",
            )

    @property
    def _where(self) -> dict[str, Any]:
        return {"repo_type": self.kind, "revision": self.revision}
