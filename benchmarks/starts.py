"""What a command costs before it does anything: processor seconds, median of five, kernels cached.

The reference is the start that all had before: the same Python with transformers' AutoTokenizer
imported, which is what loading a tokenizer through it costs.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row

CLI = "import sys; sys.argv[0] = 'ngramkit'; from ngramkit_cli.main import run; run()"
REPLAY = "replay --answers one.jsonl --template none --drafter rest --datastore d --budget 4"
# what: (what Python runs, processor seconds to stay within)
STARTS = {
    "import ngramkit": (["import ngramkit"], 0.05),
    "ngramkit --help": ([CLI, "--help"], 0.15),
    "ngramkit inspect": ([CLI, "inspect", "d"], 0.7),
    "ngramkit replay of one record": ([CLI, *REPLAY.split()], 1.5),
    "ngramkit tokenize of one line": (
        [CLI, "tokenize", "--corpus", "one.jsonl", "--out", "t", "--force"],
        1.0,
    ),
}
REFERENCE = "from transformers import AutoTokenizer"
RECORD = {"prompt": "import os\nimport sys\n", "output": "def main():\n    print(os.getcwd())\n"}


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = {**RECORD, "text": RECORD["prompt"]}
        (folder / "one.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
        build = ["build-datastore", "--corpus", "python-stdlib", "--limit", "50", "--out", "d"]
        started([CLI, *build], folder)
        started([CLI, *REPLAY.split()], folder)  # compiles
        other = statistics.median(started([REFERENCE], folder) for _ in range(5))
        for what, (arguments, target) in STARTS.items():
            seconds = statistics.median(started(arguments, folder) for _ in range(5))
            yield Row(
                what,
                f"{seconds:.2f} s of processor time",
                f"{other:.2f} s, importing transformers' AutoTokenizer",
                other / seconds,
                f"<= {target} s",
            )


def started(arguments: list[str], folder: Path) -> float:
    """Processor seconds of one run in a process of its own. Raises where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", *arguments],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
