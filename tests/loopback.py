"""An HTTP server on loopback for tests, which answers some requests with faults.

Knows neither what it serves nor what a fault is, but for which requests it is.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Generic, Self, TypeVar

AnyFault = TypeVar("AnyFault")  # with `pattern` and `times`


class Loopback(Generic[AnyFault]):
    """Serves from a thread of this process while it is entered.

    `requests` holds "METHOD path" of each, in order. `faults`: each is for the next `times` of them
    in which its `pattern` is found.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.faults: list[AnyFault] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()
        # Headers and body are two writes: the second would wait 40 ms for the first one's ACK.
        handler.disable_nagle_algorithm = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault_for(self, request: str) -> AnyFault | None:
        """The first of `faults` whose pattern is found in "METHOD path" and that is not used up."""
        with self.lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return None
