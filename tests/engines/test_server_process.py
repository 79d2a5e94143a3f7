"""What the comparisons with real servers stand on, with a small server in place of an engine's.

The comparisons themselves take minutes and an engine: `make engines-vllm`, `make engines-sglang`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.servers import environment, install_sglang, install_vllm, vllm
from benchmarks.servers.process import ServerProcess, prometheus_sums

SERVER = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/metrics":
            self.answer(b'running{place="1"} 0.0\\nrunning{place="2"} 0.0\\nwaiting 0.0\\nsteps 3.0\\n')
        else:
            name = "NGRAMKIT_DRAFT" if self.path == "/draft" else "PYTHONPATH"
            self.answer(json.dumps(os.environ.get(name)).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/empty":
            self.answer(b"")
        elif json.loads(body).get("stream"):
            self.answer(b''.join(b'data: {"piece": %d}\\n\\n' % i for i in range(9)) + b'data: [DONE]\\n')
        else:
            self.answer(body)

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""  # noqa: E501


def test_server_is_asked_counted_and_ended(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port)]
    environment = {**os.environ, "PYTHONPATH": "of the comparison, not of the engine"}
    with ServerProcess(command, environment, port, tmp_path / "log") as server:
        assert server.get("anything") == "null"
        assert server.post("echo", {"a": 1}) == {"a": 1}
        assert server.post("empty", {}) is None
        assert [each["piece"] for each in server.events("events", {})] == list(range(9))
        assert next(server.events("events", {})) == {"piece": 0}  # this client leaves
        assert server.get("anything") == "null"
        assert server.processor_seconds() > 0
    with pytest.raises(OSError, match="refused"):
        server.get("anything")


def test_a_server_gets_its_own_draft_and_counts_what_it_drafts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NGRAMKIT_DRAFT", "of the comparison, not of the engine")
    names = {"running": "running", "waiting": "waiting", "steps": "steps"}
    for draft, shown in ((None, None), ("{", "{"), ({"budget": 3}, {"budget": 3})):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-c", SERVER, str(port)]
        with ServerProcess(command, os.environ, port, tmp_path / "log", draft, 5) as server:
            found = json.loads(server.get("draft"))
            if isinstance(draft, dict):
                found = json.loads(found)
                file = Path(found.pop("metrics"))
                assert found.pop("log_steps") == 5
                file.write_text("ngramkit_draft_seconds_total 0.5\n")
                assert server.counters(names)["drafting"] == 0.5
            assert found == shown
            assert server.counters(names)["steps"] == 3
            assert server.is_idle_within(0, names)


def test_server_that_does_not_start_tells_its_last_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(RuntimeError, match="no such model"),
        ServerProcess(command, os.environ, 1, tmp_path / "log"),
    ):
        pass


def test_an_interrupted_start_leaves_no_server(tmp_path: Path, monkeypatch) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(f'{{os.getpid()}}!'); time.sleep(60)"

    def interrupt(*_: object, **__: object) -> str:
        if pid.exists() and pid.read_text().endswith("!"):
            raise KeyboardInterrupt
        raise OSError

    monkeypatch.setattr(ServerProcess, "get", interrupt)
    with (
        pytest.raises(KeyboardInterrupt),
        ServerProcess([sys.executable, "-c", code], os.environ, 1, tmp_path / "log"),
    ):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()[:-1]), 0)


def test_prometheus_sums_add_labels() -> None:
    text = '# HELP a\na:b_total{x="1"} 2.0\na:b_total{x="2"} 3\nc 1e3\n'
    assert prometheus_sums(text) == {"a:b_total": 5.0, "c": 1000.0}


def test_requirements_are_those_without_extras_and_skipped(tmp_path: Path) -> None:
    wheel = tmp_path / "engine-1-py3-none-any.whl"
    lines = ["torch==2.13.0+cpu", "torchaudio", "numpy", 'ray; extra == "ray"']
    with zipfile.ZipFile(wheel, "w") as archive:
        text = "".join(f"Requires-Dist: {line}\n" for line in lines)
        archive.writestr("engine-1.dist-info/METADATA", f"Name: engine\n{text}")
    for module in (install_vllm, install_sglang):
        assert isinstance(module.SKIPPED, re.Pattern)
        assert environment.requirements(wheel, module.SKIPPED) == ["torch==2.13.0", "numpy"]


def test_vllm_servers_begin_with_the_one_without_drafts(tmp_path: Path) -> None:
    servers = vllm.ways(tmp_path, None)
    assert next(iter(servers.items())) == ("none", (None, None))
    assert "ngramkit, datastore and its own answers, k = 8" in servers
    assert "ngramkit, datastore, k = 8" not in vllm.ways(None, None)
