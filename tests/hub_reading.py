"""The Hub stand-in's endpoints that read: repositories, listings, files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from hub_standin import PAGE, REPO, Request, git_id, route


@route("GET HEAD", rf"/api/(?P<kind>datasets|models)/{REPO}(/revision/(?P<revision>[^/]+))?")
def repository_info(request: Request, kind: str, id: str, revision: str) -> None:
    found = request.find(kind, id, revision or "main")
    if found is None:
        return
    repository, sha = found
    card = repository.header(sha)
    request.json(
        {
            "id": id,
            "sha": sha,
            "private": repository.private,
            "gated": "auto" if repository.gated else False,
            "tags": card.get("tags", []),
            "cardData": card,
            "siblings": [{"rfilename": path} for path in sorted(repository.commits[sha])],
        }
    )


@route("GET", rf"/api/(?P<kind>datasets|models)/{REPO}/auth-check")
def auth_check(request: Request, kind: str, id: str) -> None:
    found = request.find(kind, id, "main")
    if found is not None and request.may_read(found[0]):
        request.json({})


@route("GET", rf"/api/(?P<kind>datasets|models)/{REPO}/tree/(?P<revision>[^/]+)(/(?P<folder>.*))?")
def tree(request: Request, kind: str, id: str, revision: str, folder: str) -> None:
    found = request.find(kind, id, revision)
    if found is None:
        return
    entries = entries_below(found[0].commits[found[1]], folder, bool_of(request.query, "recursive"))
    if not entries and folder:
        request.error(404, "EntryNotFound", f"{folder} does not exist on {revision!r}")
        return
    start = int(request.query.get("cursor", 0))
    headers = {}
    if start + PAGE < len(entries):
        path = request.path.split("?")[0]
        recursive = request.query.get("recursive", "false")
        url = f"{request.standin.endpoint}{path}?recursive={recursive}&cursor={start + PAGE}"
        headers["Link"] = f'<{url}>; rel="next"'
    request.json(entries[start : start + PAGE], **headers)


@route("POST", rf"/api/(?P<kind>datasets|models)/{REPO}/paths-info/(?P<revision>[^/]+)")
def paths_info(request: Request, kind: str, id: str, revision: str) -> None:
    found = request.find(kind, id, revision)
    if found is None:
        return
    if (request.headers.get("Content-Type") or "").startswith("application/json"):
        paths = json.loads(request.body)["paths"]
    else:
        paths = parse_qs(request.body.decode()).get("paths", [])
    files = found[0].commits[found[1]]
    everything = {entry["path"]: entry for entry in entries_below(files, "", recursive=True)}
    request.json([everything[path] for path in paths if path in everything])


@route("GET HEAD", rf"/(?P<kind>datasets/)?{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
def resolve(request: Request, kind: str, id: str, revision: str, path: str) -> None:
    found = request.find("dataset" if kind else "model", id, revision)
    if found is None:
        return
    repository, sha = found
    if not request.may_read(repository):
        return
    content = repository.commits[sha].get(path)
    if content is None:
        request.error(404, "EntryNotFound", "Entry not found", **{"X-Repo-Commit": sha})
        return
    etag = hashlib.sha256(content).hexdigest()
    headers = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
    asked = re.match(r"bytes=(\d*)-(\d*)", request.headers.get("Range") or "")
    if asked is None:
        request.send(content, 200, headers)
        return
    first, last = span(asked[1], asked[2], len(content))
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    request.send(content[first : last + 1], 206, headers)


def span(first: str, last: str, size: int) -> tuple[int, int]:
    """The first and last byte of a Range header; `-n` means the last n bytes."""
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def bool_of(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def entries_below(files: Mapping[str, bytes], folder: str, recursive: bool) -> list[dict[str, Any]]:
    """The tree endpoint's entries: files and folders below `folder`, sorted by path."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, content in files.items():
        if not path.startswith(prefix):
            continue
        parts = path[len(prefix) :].split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            parent = prefix + "/".join(parts[:depth])
            oid = hashlib.sha1(parent.encode()).hexdigest()
            entries[parent] = {"type": "directory", "oid": oid, "size": 0, "path": parent}
        if recursive or len(parts) == 1:
            entries[path] = file_entry(path, content)
    return [entries[path] for path in sorted(entries)]


def file_entry(path: str, content: bytes) -> dict[str, Any]:
    entry = {"type": "file", "oid": git_id(content), "size": len(content), "path": path}
    if path.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 128}
    return entry
