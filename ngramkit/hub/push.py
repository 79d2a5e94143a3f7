"""`push`: verified, incremental upload of an artifact to a Hub repository in one commit.

A private artifact, such as a history, needs `allow_private`, and goes to a private repository by
default. A folder of `export --to transformers` becomes a model repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.arguments import check_type, check_types
from ngramkit.basics.errors import UsageError, hub_errors, require_list
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import require_no_links
from ngramkit.formats.build_command import corpora_of
from ngramkit.formats.card import LANGUAGE, is_hub_id
from ngramkit.formats.history import LOG, History
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.outputs import ARTIFACT, CODE, PREVIEW, RECIPE
from ngramkit.hub.repository import Repository
from ngramkit.hub.uploads import artifact_uploads, export_uploads, history_uploads
from ngramkit.remote.fetch import HubName, fetch

# Files that a commit may remove.
REMOVABLE_FILES = {
    "dataset": re.compile(
        rf"[^/]+\.safetensors|{'|'.join(map(re.escape, (RECIPE, LOG, PREVIEW)))}"
    ),
    "model": re.compile(r"artifact/.*"),
}


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
            "Drop one of them.",
            option=("create_pr", "revision", "tag", "squash"),
        )
    languages = _checked_languages(language)
    name = HubName.to_push(repository)
    fetched = fetch(path, reporter=reporter)
    path = fetched.path
    if fetched.origin is None:
        require_no_links(path)
    kind = "model" if (path / CODE[0]).is_file() else "dataset"
    artifact = open_artifact_folder(path / ARTIFACT if kind == "model" else path)
    if squash and artifact.kind != History.kind:
        raise UsageError(
            f"cannot use squash for {path}: it breaks users who pin an older commit",
            "Drop squash.",
            option="squash",
        )
    if languages and kind == "model":
        raise UsageError(
            f"cannot use language for {path}: it is an export for transformers",
            "Leave it out.",
            option="language",
        )
    manifest = artifact.manifest
    require_allow_private(path, manifest.private, allow_private)
    private = manifest.private if private is None else private
    with hub_errors(name, kind):
        remote = Repository.at(name, kind, revision)
        there, info = remote.find()
        is_private = (
            private if there is None else _is_private_as_required(name, info, path, private)
        )
        head = None if there is None else str(info.sha)
        files = {} if there is None else there.files()
        if there == remote and not (create_pr or force):
            _require_same_kind(remote, files, path, artifact.kind)
        if kind == "model":
            uploads = export_uploads(path, artifact, name, reporter)
        else:
            languages = languages or _default_languages(remote.api, info, manifest.corpus)
            if isinstance(artifact, History):
                manifest, uploads = history_uploads(artifact, name, languages)
            else:
                uploads = artifact_uploads(artifact, name, languages, reporter)
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
            counts=dict(manifest.counts),
            private=is_private,
            sent={upload.name: upload.bytes for upload in send},
            replaced=[*(upload.name for upload in send if upload.name in files), *stale],
            new=there is None,
            dry_run=dry_run,
        )
        if dry_run:
            return pushed
        remote.create(private=private)
        info = remote.info()
        is_private = _is_private_as_required(name, info, path, private)
        readers = "private" if is_private else "public"
        if any(upload.name == LOG for upload in send):
            counts = manifest.counts
            size = f"{counted(counts['requests'], 'request')}, {counted(counts['tokens'], 'token')}"
            reporter.note(f"uploading user text to {name} ({readers}): {size}")
        elif manifest.private and send:
            reporter.note(f"uploading private texts to {name} ({readers})")
        elif not is_private:
            reporter.note(f"{name} is public: everybody can download it")
        commit, pull_request = str(info.sha), None
        if send or stale:
            commit, pull_request = remote.commit(send, stale, head, reporter, create_pr=create_pr)
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


def _is_private_as_required(repository: str, info: Any, path: Path, wanted: bool) -> bool:
    """Return whether the repository is private. Raises UsageError if it must be but is not."""
    is_private = bool(info.private)
    if wanted and not is_private:
        raise UsageError(
            f"cannot push {path} to {repository}: the repository is public",
            "Choose another repository, or give private=False.",
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
            "Choose another repository, or replace it with force=True.",
            option="force",
        )


def _checked_languages(given: str | Sequence[str]) -> list[str]:
    """Return the codes. Raises UsageError for anything else."""
    codes = [given] if isinstance(given, str) else given
    require_list("language", codes)
    for code in codes:
        if not isinstance(code, str) or not LANGUAGE.fullmatch(code):
            raise UsageError(
                f"language must be a code of ISO 639, or code, got {code!r:.40}",
                "Give en, de or zh, for example.",
                option="language",
            )
    return list(codes)


def _default_languages(api: Any, info: Any, corpus: dict[str, Any]) -> list[str]:
    """Return the languages on the repository's card, else those of the source datasets.

    A dataset of several languages says nothing of a part of it.
    """
    from huggingface_hub.errors import HfHubHTTPError

    if info is not None and (written := _languages_on_card(info)):
        return written
    known: list[str] = []
    for part in corpora_of(corpus):
        dataset, found = part.get("dataset"), []
        if is_hub_id(dataset):
            with suppress(HfHubHTTPError):
                found = _languages_on_card(api.dataset_info(dataset))
        if len(found) != 1:
            return []
        known += found
    return sorted(set(known))


def _languages_on_card(info: Any) -> list[str]:
    written = (info.card_data or {}).get("language")
    codes = [written] if isinstance(written, str) else written or []
    return [code for code in codes if isinstance(code, str) and LANGUAGE.fullmatch(code)]
