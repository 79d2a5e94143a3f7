"""The Hub stand-in's buckets: listed, read, and written through the real Xet client.

`environment` of the stand-in turns Xet off for repositories; buckets are written through nothing
else. What the client uploads are xorbs (chunks, packed) and shards (which chunks make up which
file), so files are put together from them here.
"""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator

import pyarrow as pa
from hub_reading import span
from hub_standin import REPO, Request, route

# Of the client: no grants, presigned addresses or compression, which would have to be made here.
XET = {
    "HF_XET_CLIENT_LEGACY_DIRECT_XORB_UPLOAD": "1",
    "HF_XET_XORB_COMPRESSION_POLICY": "none",
    "HF_XET_CLIENT_SHARD_API_VERSION": "1",
    "HF_XET_TELEMETRY_ENABLED": "0",
    "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "3",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "100ms",
}
CREATED = "2026-01-01T00:00:00.000Z"
END = b"\xff" * 32  # the hash behind the last file of a shard


def bucket_of(request: Request, id: str) -> dict[str, bytes] | None:
    found = request.standin.buckets.get(id)
    if found is None:
        request.error(404, "RepoNotFound", "Bucket not found")
    return found


@route("GET", rf"/api/buckets/{REPO}")
def bucket_info(request: Request, id: str) -> None:
    files = bucket_of(request, id)
    if files is not None:
        size = sum(map(len, files.values()))
        facts = {"private": False, "createdAt": CREATED, "totalFiles": len(files)}
        request.json({"id": id, "size": size, **facts})


@route("GET", rf"/api/buckets/{REPO}/tree(/(?P<prefix>.*))?")
def bucket_tree(request: Request, id: str, prefix: str) -> None:
    files = bucket_of(request, id)
    if files is None:
        return
    below = f"{prefix}/" if prefix else ""
    entries = {}
    for path, content in sorted(files.items()):
        if path != prefix and not path.startswith(below):
            continue
        inside = path.removeprefix(below)
        if "/" in inside and request.query.get("recursive") != "true":
            folder = below + inside.partition("/")[0]
            entries[folder] = {"type": "directory", "path": folder, "uploadedAt": CREATED}
        else:
            hash = request.standin.xet_hashes.get(content, "0" * 64)
            entries[path] = {"type": "file", "path": path, "size": len(content), "xetHash": hash}
    request.json(list(entries.values()))


@route("GET HEAD", rf"/buckets/{REPO}/resolve/(?P<path>.+)")
def bucket_file(request: Request, id: str, path: str) -> None:
    files = bucket_of(request, id)
    if files is None:
        return
    if path not in files:
        request.error(404, "EntryNotFound", "Entry not found")
        return
    content = files[path]
    asked = re.match(r"bytes=(\d*)-(\d*)", request.headers.get("Range") or "")
    if asked is None:
        request.send(content, 200, {"Accept-Ranges": "bytes"})
        return
    first, last = span(asked[1], asked[2], len(content))
    if first >= len(content):
        request.error(416, "", "beyond the end")
        return
    headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
    request.send(content[first : last + 1], 206, headers)


@route("GET", rf"/api/buckets/{REPO}/xet-(?P<kind>read|write)-token")
def bucket_token(request: Request, id: str, kind: str) -> None:
    if kind == "write" and request.token is None:
        request.error(401, "", "log in")
        return
    expires = int(time.time()) + 3600
    answer = {"accessToken": "xet", "exp": expires, "casUrl": f"{request.standin.endpoint}/cas"}
    request.json(answer)


@route("POST", r"/cas/v1/xorbs/[^/]+/(?P<hash>[0-9a-f]{64})")
def xorb(request: Request, hash: str) -> None:
    request.standin.xorbs[hash] = list(chunks(request.body))
    request.json({"was_inserted": True})


@route("POST", r"/cas/(v1/)?shards")
def shard(request: Request) -> None:
    for hash, content in files_in(request.body, request.standin.xorbs):
        request.standin.xet_files[hash] = content
        request.standin.xet_hashes[content] = hash
    request.json({"result": 1})


@route("POST", rf"/api/buckets/{REPO}/batch")
def batch(request: Request, id: str) -> None:
    files = bucket_of(request, id)
    if files is None:
        return
    for line in request.body.splitlines():
        entry = json.loads(line)
        if entry["type"] == "addFile":
            files[entry["path"]] = request.standin.xet_files[entry["xetHash"]]
        elif entry["type"] == "deleteFile":
            files.pop(entry["path"], None)
    request.json({"success": True, "failed": []})


def chunks(xorb: bytes) -> Iterator[bytes]:
    """Version u8, packed length u24, scheme u8 (0 none, 1 LZ4), length u24, bytes; a footer."""
    at = 0
    while at + 8 <= len(xorb) and xorb[at] == 0:
        packed = int.from_bytes(xorb[at + 1 : at + 4], "little")
        scheme, length = xorb[at + 4], int.from_bytes(xorb[at + 5 : at + 8], "little")
        body = xorb[at + 8 : at + 8 + packed]
        assert scheme in (0, 1), f"compression {scheme}"
        yield body if scheme == 0 else pa.decompress(body, length, "lz4", asbytes=True)
        at += 8 + packed


def files_in(shard: bytes, xorbs: dict[str, list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """After a header of 48 bytes, of each file: a row with its hash and its number of terms, the
    terms (xorb, first and last chunk), and rows that are not needed here. Rows have 48 bytes."""
    rows = [shard[at : at + 48] for at in range(48, len(shard), 48)]
    at = 0
    while rows[at][:32] != END:
        flags, terms = struct.unpack("<II", rows[at][32:40])
        content = bytearray()
        for row in rows[at + 1 : at + 1 + terms]:
            first, last = struct.unpack("<II", row[40:48])
            content += b"".join(xorbs[hex_of(row[:32])][first:last])
        yield hex_of(rows[at][:32]), bytes(content)
        at += 1 + terms * (2 if flags >> 31 & 1 else 1) + (flags >> 30 & 1)


def hex_of(hash: bytes) -> str:
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", hash))
