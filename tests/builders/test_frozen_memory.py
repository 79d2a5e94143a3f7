"""`memory` holds: what a build takes over what the process had, windows and table together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ngramkit.builders import frozen

MEASURED = """
import re, sys, threading, time
from pathlib import Path
import numpy as np
from ngramkit.builders.frozen import build_frozen
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.resumable_writer import ArtifactWriter

def taken():  # bytes that no file backs
    return int(re.search(r"RssAnon:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

def store(name, size):
    ids, ends = np.random.default_rng(1).integers(0, 20_000, size), np.array([0, size], np.uint64)
    with ArtifactWriter(Path(name), "tokens", {"size": size}) as writer:
        writer.write("shard-00000.safetensors", {"tokens": ids.astype("u2"), "documents": ends})
        record = TokenizerRecord("x", 20_000, "f" * 64, 1)
        counts = {"documents": 1, "tokens": size}
        writer.commit(record, parameters={}, corpus={}, counts=counts)
    return TokenStore.open(name)

build_frozen(store("small", 5_000), "warm", memory=1 << 25, workers=2)  # kernels are there
large = store("large", 2_000_000)
before, most, working = taken(), 0, True

def watch():
    global most
    while working:
        most = max(most, taken())
        time.sleep(0.002)

watcher = threading.Thread(target=watch)
watcher.start()
table = build_frozen(large, "table", memory=1 << 25, workers=2)
working = False
watcher.join()
print(most - before, len(table.followers))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what is taken")
def test_windows_and_table_stay_within_what_is_said(tmp_path):
    root = Path(frozen.__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n{MEASURED}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    taken, rows = map(int, done.stdout.split())
    assert rows > 1_900_000
    assert taken < frozen.MIN_MEMORY + rows * (3 * 2 + 8) * 2
