"""A repository on the Hub that an artifact is pushed to: what is there, and commits of what is not.

Knows files and commits; what they are of is the pusher's affair.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import UsageError
from ngramkit.formats.manifest import NAME
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.progress import Reporter

GENERATE = Path("custom_generate") / "generate.py"
FIRST = {".gitattributes", CARD}  # what a new repository may have
MARK = {"dataset": NAME, "model": GENERATE.as_posix()}  # what one of ours has
# What a commit may take away.
OURS = {
    "dataset": re.compile(rf"[^/]+\.safetensors|{re.escape(RECIPE)}"),
    "model": re.compile(r"artifact/.*"),
}


@dataclass(frozen=True)
class Upload:
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


@dataclass(frozen=True)
class Repository:
    """`api` is a huggingface_hub.HfApi, `kind` dataset or model, `revision` a branch or None.

    Every method raises what huggingface_hub raises.
    """

    api: Any
    name: str
    kind: str
    revision: str | None

    def create(self, *, private: bool) -> None:
        """The repository and the branch, where they are not there yet."""
        self.api.create_repo(self.name, repo_type=self.kind, private=private, exist_ok=True)
        if self.revision:
            self.api.create_branch(
                self.name, branch=self.revision, repo_type=self.kind, exist_ok=True
            )

    def files(self) -> dict[str, Any]:
        """Every file there, by its path. UsageError: files of something that is not ours."""
        from huggingface_hub import RepoFolder

        entries = self.api.list_repo_tree(self.name, recursive=True, **self._where)
        files = {entry.path: entry for entry in entries if not isinstance(entry, RepoFolder)}
        if files.keys() - FIRST and MARK[self.kind] not in files:
            raise UsageError(
                f"{self.name} holds something that ngramkit did not put there",
                "choose the name of a new repository",
            )
        return files

    def head(self) -> str:
        """The branch's newest commit."""
        return str(self.api.repo_info(self.name, **self._where).sha)

    def url(self, commit: str) -> str:
        """Where people see it."""
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"{self.api.endpoint}/{folder}{self.name}/tree/{commit}"

    def commit(
        self, send: Sequence[Upload], stale: Sequence[str], reporter: Reporter, *, create_pr: bool
    ) -> tuple[str, str | None]:
        """Uploads `send` and removes `stale` at once; the commit, and the pull request if asked."""
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

    def tag(self, tag: str, commit: str) -> None:
        """Raises UsageError where the tag stands elsewhere: a tag that moves pins nothing."""
        self.api.create_tag(self.name, tag=tag, revision=commit, repo_type=self.kind, exist_ok=True)
        tags = self.api.list_repo_refs(self.name, repo_type=self.kind).tags
        if any(ref.name == tag and ref.target_commit != commit for ref in tags):
            raise UsageError(
                f"{self.name} has a tag {tag} on another commit; everything else was pushed",
                "choose another tag",
                option="tag",
            )

    @property
    def _where(self) -> dict[str, Any]:
        return {"repo_type": self.kind, "revision": self.revision}
