"""The cost of starting a command, and of compiling on an empty folder.

Processor seconds, children included: of a start the median of five with kernels kept, of a first
decode the least of three. Bytecode is kept, as pip and any first start leave it. The reference of a
start is the one that all had before: the same Python with transformers' AutoTokenizer imported,
which is what loading a tokenizer through it costs. That of a first decode is the same decode again,
so what lies between them is compiling.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import Row
from ngramkit.decode.compile_while_loading import PROGRAM

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
DECODE = "decode --model demo --max-new-tokens 16 --prompt import --drafter"
FIRST = ("blend", "rest", "cacheback", "ngrammys", "ssd --history past")
DEMO_WIDTH = 2  # bytes of a token id of `demo`
COMPILING = 10  # processor seconds to stay within
ONE_CORE = "import ngramkit.decode.compile_while_loading as w; w.cores = lambda: 1"
ONE_AFTER_THE_OTHER = f"{ONE_CORE}; {CLI}"


class Cost(NamedTuple):
    processor: float  # seconds, of the process and all its children
    wall: float


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = {**RECORD, "text": RECORD["prompt"]}
        (folder / "one.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
        build = ["build-datastore", "--corpus", "python-stdlib", "--limit", "50", "--out", "d"]
        run_timed([CLI, *build], folder)
        run_timed([CLI, *REPLAY.split()], folder)  # compiles
        other = _median([REFERENCE], folder)
        for what, (arguments, target) in STARTS.items():
            seconds = _median(arguments, folder)
            yield Row(
                what,
                f"{seconds:.2f} s of processor time",
                f"{other:.2f} s, importing transformers' AutoTokenizer",
                other / seconds,
                f"<= {target} s",
            )
        yield from first_decodes(folder)
        yield warmed(folder)


def first_decodes(folder: Path) -> Iterator[Row]:
    for drafter in FIRST:
        command = [*DECODE.split(), *drafter.split()]
        run_timed([CLI, *command], folder)  # artifacts
        pairs = [_first_and_second([CLI, *command], folder) for _ in range(3)]
        first, second = (min(pair[i].processor for pair in pairs) for i in (0, 1))
        alone = min(_compiled(drafter.split()[0], folder) for _ in range(3))
        yield Row(
            f"first decode, {drafter.split()[0]}",
            f"{first:.1f} s of processor time, {first - second:.1f} s of it compiling",
            f"{second:.1f} s, the same again",
            second / first,
            f"compiling <= {COMPILING} s",
        )
        yield Row(
            f"what that compiles, {drafter.split()[0]}, nothing beside it",
            f"{alone:.1f} s of processor time",
            f"{first - second:.1f} s, while the model loads",
            (first - second) / alone,
            f"<= {COMPILING} s",
        )
    command = [*DECODE.split(), "blend"]
    ways = ([CLI, *command], [ONE_AFTER_THE_OTHER, *command])
    both = [[_first_and_second(way, folder)[0].wall for way in ways] for _ in range(3)]
    ours, other = map(min, zip(*both, strict=True))
    yield Row(
        "first decode, blend, kernels compiled while the model loads",
        f"{ours:.1f} s",
        f"{other:.1f} s, compiled after it has loaded",
        other / ours,
        "faster",
    )


def _compiled(drafter: str, folder: Path) -> float:
    """Time the process that compiles for a first decode of `demo`, alone, its start included."""
    with tempfile.TemporaryDirectory() as kernels:
        return run_timed([PROGRAM, f"{drafter}@{DEMO_WIDTH}"], folder, kernels).processor


def warmed(folder: Path) -> Row:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
        other = run_timed([CLI, "warm", "--workers", "1"], folder, one)
        ours = run_timed([CLI, "warm"], folder, several)
        kernels = len(list(Path(several).rglob("*.nbc")))
    return Row(
        f"ngramkit warm, {kernels} kernels",
        f"{ours.wall:.1f} s ({ours.processor:.1f} s of processor time)",
        f"{other.wall:.1f} s ({other.processor:.1f} s), one process at a time",
        other.wall / ours.wall,
        "faster",
    )


def _first_and_second(arguments: list[str], folder: Path) -> tuple[Cost, Cost]:
    """Time one run on an empty folder, and the same again."""
    with tempfile.TemporaryDirectory() as kernels:
        return run_timed(arguments, folder, kernels), run_timed(arguments, folder, kernels)


def _median(arguments: list[str], folder: Path) -> float:
    return statistics.median(run_timed(arguments, folder).processor for _ in range(5))


def run_timed(arguments: list[str], folder: Path, kernels: str | None = None) -> Cost:
    """Run in a process of its own; `kernels`: their folder. Raises where it fails."""
    kept = {} if kernels is None else {"NUMBA_CACHE_DIR": kernels}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", *arguments],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "", **kept},
        check=True,
        capture_output=True,
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(processor, wall)
