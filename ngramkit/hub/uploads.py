"""The uploads of `push`: a manifest's files, verified by sha256, and texts that ngramkit writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ngramkit.basics.errors import ArtifactError, NgramkitError
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.untrusted import read_json, read_plain
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import PLACEHOLDER, Entry, artifact_card
from ngramkit.formats.history import LOG, History, copy_of
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest
from ngramkit.formats.outputs import ARTIFACT, CARD, CODE, PREVIEW, RECIPE
from ngramkit.formats.query import most_frequent
from ngramkit.formats.resumable_writer import recipe_text
from ngramkit.formats.safetensors import sha256_of
from ngramkit.hub.preview import preview_of
from ngramkit.hub.repository import Upload


def artifact_uploads(
    artifact: Artifact, repository: str, languages: Sequence[str], reporter: Reporter
) -> list[Upload]:
    """Return an artifact, its card and its preview. A private artifact is not quoted."""
    private, decode = artifact.manifest.private, _phrase_decoder(artifact)
    preview = None if private else preview_of(artifact, decode)
    card = artifact_card(
        artifact.manifest,
        [] if private else _frequent_entries(artifact, decode),
        language=languages,
        preview=preview is not None,
    )
    uploads = [*_verified_uploads(artifact, reporter), _text_upload(CARD, card, repository)]
    return uploads if preview is None else [*uploads, _upload_of(PREVIEW, preview)]


def history_uploads(
    history: History, repository: str, languages: Sequence[str]
) -> tuple[Manifest, list[Upload]]:
    """Return the manifest of a shared copy, and its files."""
    manifest, log = copy_of(history)
    record = manifest.files[LOG]
    return manifest, [
        Upload(LOG, log, record.sha256, record.bytes),
        _text_upload(MANIFEST_FILE, manifest.to_json()),
        _text_upload(CARD, artifact_card(manifest, language=languages), repository),
    ]


def export_uploads(
    path: Path, artifact: Artifact, repository: str, reporter: Reporter
) -> list[Upload]:
    """Return the folder of `export --to transformers` around an artifact."""
    private, decode = artifact.manifest.private, _phrase_decoder(artifact)
    card = artifact_card(artifact.manifest, [] if private else _frequent_entries(artifact, decode))
    inside = [*_verified_uploads(artifact, reporter), _text_upload(CARD, card)]
    uploads = [replace(upload, name=f"{ARTIFACT}/{upload.name}") for upload in inside]
    for name in (CARD, *CODE):
        raw = read_plain(path / name, LIMITS.text_bytes, hint="Export it again.")
        try:
            uploads.append(_text_upload(name, raw.decode(), repository))
        except UnicodeDecodeError as error:
            raise ArtifactError(
                f"cannot push {path / name}: it is not UTF-8 text", "Export it again."
            ) from error
    left = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()}
    for name in sorted(left - {upload.name for upload in uploads}):
        reporter.note(f"{name} is not pushed: ngramkit did not write it")
    return uploads


def _verified_uploads(artifact: Artifact, reporter: Reporter) -> list[Upload]:
    manifest, path = artifact.manifest, artifact.path
    reporter.stage(f"verifying {path}", manifest.bytes, "bytes")
    uploads = []
    for name, record in manifest.files.items():
        if sha256_of(path / name) != record.sha256:
            raise ArtifactError(
                f"cannot push {path / name}: it differs from its manifest (sha256)",
                "Build it again before pushing.",
            )
        uploads.append(Upload(name, path / name, record.sha256, record.bytes))
        reporter.advance(record.bytes)
    uploads.append(_text_upload(MANIFEST_FILE, manifest.to_json()))
    if (recipe := _recipe_of(path, manifest.build)) is not None:
        uploads.append(_text_upload(RECIPE, recipe))
    return uploads


def _text_upload(name: str, text: str, repository: str = PLACEHOLDER) -> Upload:
    """Return a text in which the placeholder of a repository's name is replaced."""
    return _upload_of(name, text.replace(PLACEHOLDER, repository).encode())


def _upload_of(name: str, content: bytes) -> Upload:
    return Upload(name, content, hashlib.sha256(content).hexdigest(), len(content))


def _recipe_of(path: Path, build: str) -> str | None:
    try:
        body = read_json(path / RECIPE)
    except FileNotFoundError:
        return None
    if not isinstance(body, dict) or body.keys() != {"build", "inputs"} or body["build"] != build:
        raise ArtifactError(
            f"cannot push {path / RECIPE}: this artifact was not built from it",
            "Delete it, or build the recipe again.",
        )
    return recipe_text(build, body["inputs"])


def _frequent_entries(artifact: Artifact, decode: Callable[[list[int]], str]) -> list[Entry]:
    return [
        (decode(found.phrase), [decode(ids) for ids, _ in found.continuations], found.matches)
        for found in most_frequent(artifact, 10, followers=3)
    ]


def _phrase_decoder(artifact: Artifact) -> Callable[[list[int]], str]:
    with suppress(NgramkitError):
        return load_tokenizer(artifact.tokenizer.id).shown
    return str
