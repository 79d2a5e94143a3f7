"""A small Hub on loopback that the real huggingface_hub and datasets clients talk to.

    with HubStandIn() as hub:
        hub.add("dataset", "acme/texts", {"README.md": b"...", "data/train.jsonl": b"..."})
        subprocess.run([...], env={**os.environ, **hub.environment(home)})

It keeps repositories as commits (path -> bytes) and refs (name -> commit). Endpoints are functions
under a regular expression, see `route`; `hub.faults` makes some requests fail, see `Fault`. The Xet
protocol is not spoken: `environment` turns it off.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from loopback import Loopback

TOKEN = "hf_standin"  # the only token that is known, and it may read everything
PAGE = 5  # entries of a file listing per answer; the real Hub's pages hold 1,000
ROUTES: list[tuple[str, re.Pattern[str], Callable[..., None]]] = []
KINDS = {"datasets": "dataset", "models": "model"}


def route(methods: str, pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers an endpoint; named groups become its arguments, percent-decoded."""

    def register(answer: Callable[..., None]) -> Callable[..., None]:
        for method in methods.split():
            ROUTES.append((method, re.compile(pattern + r"\Z"), answer))
        return answer

    return register


def front_matter(text: str) -> dict[str, Any]:
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return yaml.safe_load(match[1]) or {} if match else {}


@dataclass
class Repository:
    """`commits` holds every commit's files; `refs` the branches, `tags` the tags."""

    kind: str
    id: str
    gated: bool = False
    private: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(
        self, files: Mapping[str, bytes], ref: str = "main", parent: str | None = None
    ) -> str:
        """Adds a commit that holds exactly `files`; returns its sha."""
        digest = hashlib.sha1((parent or self.refs.get(ref, "")).encode())
        for path, content in sorted(files.items()):
            digest.update(path.encode() + b"\0" + hashlib.sha256(content).digest())
        sha = digest.hexdigest()
        self.commits[sha] = dict(files)
        self.refs[ref] = sha
        return sha

    def header(self, sha: str) -> dict[str, Any]:
        """The card's header in a commit, and what `card` adds."""
        text = self.commits[sha].get("README.md", b"").decode()
        return {**front_matter(text), **self.card}

    def resolve(self, revision: str) -> str | None:
        if revision in self.commits:
            return revision
        return self.refs.get(revision) or self.tags.get(revision)


@dataclass
class Fault:
    """Makes the next `times` requests fail whose "METHOD path" `pattern` is found in.

    `status` is answered; 0 drops the connection, and -1 does so halfway through the body.
    """

    pattern: str
    status: int
    times: int = 1
    retry_after: str | None = None


class HubStandIn(Loopback[Fault]):
    def __init__(self) -> None:
        import hub_reading  # noqa: F401 (its endpoints)

        self.repositories: dict[tuple[str, str], Repository] = {}
        self.blobs: dict[str, bytes] = {}  # what uploads have sent, by sha256
        self.buckets: dict[str, dict[str, bytes]] = {}  # id -> path -> content, see hub_buckets.py
        self.xorbs: dict[str, list[bytes]] = {}
        self.xet_files: dict[str, bytes] = {}
        self.xet_hashes: dict[bytes, str] = {}
        self.bytes_sent = 0
        hub = self

        class Handler(Request):
            standin = hub

        super().__init__(Handler)

    def add(
        self, kind: str, id: str, files: Mapping[str, bytes], *, ref: str = "main", **facts: Any
    ) -> Repository:
        """Commits `files` to a repository, which is created with `facts` if it is new."""
        repository = self.repositories.setdefault((kind, id), Repository(kind, id, **facts))
        repository.commit(files, ref)
        return repository

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """The variables that point the real clients here, with a cache of their own in `home`."""
        said = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        return {**said, "HF_TOKEN": token} if token else said


class Request(BaseHTTPRequestHandler):
    """One connection: finds the endpoint, applies faults, sends answers."""

    standin: HubStandIn
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        self.body = self._body()
        self.fault = self.standin.fault_for(f"{self.command} {self.path}")
        if self.fault and self.fault.status >= 0:
            self._fail(self.fault)
            return
        split = urlsplit(self.path)
        self.queries = parse_qs(split.query)
        self.query = {name: values[0] for name, values in self.queries.items()}
        for method, pattern, answer in ROUTES:
            match = pattern.match(split.path)
            if method == self.command and match:
                answer(self, **{name: unquote(v or "") for name, v in match.groupdict().items()})
                return
        self.error(404, "", f"no endpoint {self.command} {split.path}")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _fail(self, fault: Fault) -> None:
        if fault.status == 0:
            self.close_connection = True
            return
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        self.error(fault.status, "", "injected", **headers)

    def json(self, body: Any, status: int = 200, **headers: str) -> None:
        headers.setdefault("Content-Type", "application/json")
        self.send(json.dumps(body).encode(), status, headers)

    def error(self, status: int, code: str, message: str, **headers: str) -> None:
        if code:
            headers |= {"X-Error-Code": code, "X-Error-Message": message}
        self.json({"error": message}, status, **headers)

    def send(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault and self.fault.status == -1:
            body, self.close_connection = body[: len(body) // 2], True
        self.wfile.write(body)
        with self.standin.lock:
            self.standin.bytes_sent += len(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: tests read `hub.requests`."""

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def find(self, kind: str, id: str, revision: str) -> tuple[Repository, str] | None:
        """The repository and commit, or None once the Hub's error for it has been sent."""
        repository = self.standin.repositories.get((KINDS.get(kind, kind), id))
        if repository is None or (repository.private and self.token != TOKEN):
            # The real Hub does not tell strangers what exists. It leaves out the code with a 401,
            # which the client fills in itself, but over https only.
            status = 404 if self.token else 401
            self.error(status, "RepoNotFound", "Repository not found")
            return None
        sha = repository.resolve(revision)
        if sha is None:
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repository, sha

    def may_read(self, repository: Repository) -> bool:
        """Sends the Hub's refusal, and says no, where it is gated and the token is not known."""
        if not repository.gated or self.token == TOKEN:
            return True
        message = f"Access to {repository.kind} {repository.id} is restricted."
        self.error(403 if self.token else 401, "GatedRepo", message)
        return False


REPO = r"(?P<id>[^/]+/[^/]+)"


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
