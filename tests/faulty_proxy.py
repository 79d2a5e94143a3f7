"""A reverse proxy on loopback that makes some requests to a server behind it fail.

    with FaultyProxy("127.0.0.1", 5000) as proxy:
        proxy.faults.append(Fault(r"GET .*shard-00001", CUT))

`proxy.requests` holds "METHOD path" of each, in order. Knows HTTP only, with Content-Length.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import Loopback

DROP = "drop"  # the connection ends before an answer
CUT = "cut"  # it ends in the middle of the answer's body
CUT_UPLOAD = "cut upload"  # it ends in the middle of the request, of which nothing is passed on
SLOW = "slow"  # the answer's body comes in pieces, with pauses
STALL = "stall"  # its first half comes, then nothing, with the connection open
CHANGED = "changed"  # the answer's body has one bit that is another


@dataclass
class Fault:
    """The next `times` requests whose "METHOD path" `pattern` is found in.

    `kind` is one of the above, or a status to answer, with an S3 error of this `code`. `called` is
    told before, as to kill or to change something in the middle.
    """

    pattern: str
    kind: str | int
    times: int = 1
    code: str = "SlowDown"
    called: Callable[[], None] | None = None


class FaultyProxy(Loopback[Fault]):
    def __init__(self, host: str, port: int) -> None:
        proxy = self

        class Handler(Passing):
            pass

        Handler.proxy = proxy
        super().__init__(Handler)
        self.host, self.port = host, port
        self.stalling = threading.Event()  # set: stalls end

    def __exit__(self, *error: object) -> None:
        self.stalling.set()
        super().__exit__(*error)


class Passing(BaseHTTPRequestHandler):
    proxy: FaultyProxy
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        fault = self.proxy.fault_for(f"{self.command} {self.path}")
        kind = fault.kind if fault else None
        if fault and fault.called:
            fault.called()
        length = int(self.headers.get("Content-Length") or 0)
        if kind == CUT_UPLOAD:
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if kind == DROP:
            self.close_connection = True
        elif isinstance(kind, int):
            self._refuse(kind, fault.code if fault else "")
        else:
            self._answer(body, kind)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, body: bytes, kind: str | int | None) -> None:
        connection = http.client.HTTPConnection(self.proxy.host, self.proxy.port, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        head = self.command == "HEAD"
        length = answer.getheader("Content-Length") if head else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        if not head:
            self._send(content, kind)

    def _send(self, content: bytes, kind: str | int | None) -> None:
        half = len(content) // 2
        if kind in (CUT, STALL):
            self.wfile.write(content[:half])
            self.wfile.flush()
            if kind == STALL:
                self.proxy.stalling.wait(30)
            self.close_connection = True
        elif kind == SLOW:
            for at in range(0, len(content), max(len(content) // 8, 1)):
                self.wfile.write(content[at : at + max(len(content) // 8, 1)])
                self.wfile.flush()
                time.sleep(0.02)
        elif kind == CHANGED:
            self.wfile.write(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])
        else:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: tests read `proxy.requests`."""
