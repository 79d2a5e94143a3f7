"""The cost of 1, 4 and 16 times as much text: builds of both artifact kinds, and drafts.

    python -m benchmarks.growth --data DIR --work DIR --out DIR [--memory 1G] [--write]

DIR of --data holds a token store `tokens` and recorded answers `records.npz`, see benchmarks._data.
Builds are separate commands on one thread with --memory. Their memory is RssAnon, sampled 20 times
a second, because pages of mapped files come and go. The smallest corpus is built again before and
after each build, and times per token are relative to it. Builds stay in --work (4.5 GB for each
640 M tokens), so --no-builds only measures drafts. Figures go to --out, and the table is printed;
--write makes the table of docs/cluster.md from the builds in --out.

Repeated text would sort unlike real text. So each copy has its documents in another order, and one
token in 16 is replaced by a token drawn from the corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import existing, markdown
from benchmarks._data import contexts, draft_times
from benchmarks._figures import write_figures

SIZES = (1, 4, 16)
NOISE = 16  # one token of so many is another one in a copy
KINDS = {"datastore": "build-datastore --workers 1", "frozen": "build-frozen"}
DRAFTERS = ("rest", "blend")
BUDGET, POSITIONS, ROUNDS = 64, 2_000, 2
CLI = "import sys; sys.argv[0] = 'ngramkit'; from ngramkit_cli.main import run; sys.exit(run())"


class Spent(NamedTuple):
    """The resources that a command used."""

    seconds: float
    processor: float  # seconds
    memory: int  # bytes of its own at the peak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--data", type=existing, metavar="DIR", required=True)
    for name in ("work", "out"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", required=True)
    parser.add_argument("--memory", default="1G")
    parser.add_argument("--no-builds", action="store_true", help="only drafts, of what --work has")
    parser.add_argument("--write", action="store_true", help="also write the table of builds")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "growth.json"
    figures: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for times in options.sizes:
        found = figures.setdefault(str(times), {})
        folder = options.work / f"x{times}"
        if not options.no_builds:
            found["tokens"] = grow(options.data / "tokens", folder / "tokens", times)
            for kind in KINDS:
                found[kind] = _compare(kind, folder, options.work / f"x{options.sizes[0]}", options)
        found["drafts"] = latencies(options.data, folder / "datastore")
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    built = builds(figures)
    print(f"{markdown(built['head'], built['rows'])}\n\n{drafts(figures)}")
    if options.write:
        command = f"python -m benchmarks.growth --memory {options.memory} --write"
        write_figures("growth", command, built)


def _compare(
    kind: str, folder: Path, smallest: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Build as `build` does; `times` is the processor time of a token by that of the smallest."""
    before = build(kind, smallest, options.memory)  # the first of all may compile kernels
    found = build(kind, folder, options.memory)
    found["times"] = 1.0
    if folder != smallest:
        after = build(kind, smallest, options.memory)
        each = (before["processor"] + after["processor"]) / 2 / before["tokens"]
        found["times"] = found["processor"] / found["tokens"] / each
    print(folder.name, kind, found, flush=True)
    return found


def builds(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of builds, a row for each kind and size."""
    head = ["artifact", "tokens", "processor seconds", "ns a token", "memory", "on disk"]
    rows = []
    for kind, name in (("datastore", "datastore"), ("frozen", "frozen table")):
        for found in figures.values():
            spent, tokens = found[kind], found["tokens"]
            each = f"{1e9 * spent['processor'] / tokens:,.0f}"
            files = f", {spent['files']} shards" if kind == "datastore" else ""
            rows.append([
                name,
                f"{tokens / 1e6:,.0f} M",
                f"{spent['processor']:,.0f}",
                each if spent["times"] == 1 else f"{each} ({spent['times']:.2f})",
                f"{spent['memory'] / 2**20:,.0f} MiB",
                f"{spent['bytes'] / 1e6:,.0f} MB{files}",
            ])  # fmt: skip
    return {"head": head, "rows": rows}


def drafts(figures: Mapping[str, Any]) -> str:
    """Return Markdown, a row for each size."""
    rows = [
        [f"{times} x", *(f"{p50:,.0f}, {p99:,.0f} us" for p50, p99 in found["drafts"].values())]
        for times, found in figures.items()
    ]
    return markdown(["", *(f"p50, p99 of `{name}`" for name in DRAFTERS)], rows)


def grow(source: Path, target: Path, times: int) -> int:
    """Write a token store of `times` as much text, and return its number of tokens."""
    from ngramkit.formats.resumable_writer import ArtifactWriter, already_built
    from ngramkit.formats.tokens import TokenStore

    whole = TokenStore.open(source)
    plan = {"copies": times, "noise": NOISE, "of": whole.manifest.build}
    if not already_built(target, plan):
        target.parent.mkdir(parents=True, exist_ok=True)
        with ArtifactWriter(target, "tokens", plan) as writer:
            counts = {"documents": 0, "tokens": 0}
            for index, (tokens, offsets) in enumerate(_copies(whole, times)):
                arrays = {"tokens": tokens, "documents": offsets}
                writer.write(f"shard-{index:05d}.safetensors", arrays)
                counts["documents"] += len(offsets) - 1
                counts["tokens"] += len(tokens)
            corpus = {**whole.manifest.corpus, "id": f"{times} copies"}
            parameters = whole.manifest.parameters
            writer.commit(whole.tokenizer, parameters=parameters, corpus=corpus, counts=counts)
    return TokenStore.open(target).manifest.counts["tokens"]


def _copies(whole: Any, times: int) -> Iterator[tuple[Any, Any]]:
    """Yield (tokens, documents) of one shard after another."""
    drawn = np.concatenate([shard.tokens for shard in whole.shards])
    for copy in range(times):
        random = np.random.default_rng(copy)
        for shard in whole.shards:
            lengths = np.diff(shard.documents.astype(np.int64))
            order = random.permutation(len(lengths)) if copy else np.arange(len(lengths))
            ends = np.cumsum(lengths[order])
            shift = shard.documents[:-1].astype(np.int64)[order] - (ends - lengths[order])
            tokens = shard.tokens[np.repeat(shift, lengths[order]) + np.arange(len(shard.tokens))]
            if copy:
                _disturb(tokens, drawn, whole.tokenizer.eos, random)
            yield tokens, np.concatenate([[0], ends]).astype(np.uint64)


def _disturb(tokens: Any, drawn: Any, eos: int, random: np.random.Generator) -> None:
    at = np.flatnonzero(random.integers(0, NOISE, len(tokens), np.uint8) == 0)
    others = drawn[random.integers(0, len(drawn), len(at))]
    kept = (others != eos) & (tokens[at] != eos)
    tokens[at[kept]] = others[kept]


def build(kind: str, folder: Path, memory: str) -> dict[str, Any]:
    """Build an artifact, and return what that took, and its bytes."""
    import ngramkit

    out = folder / kind
    shutil.rmtree(out, ignore_errors=True)  # else it would be up to date
    command = [
        *KINDS[kind].split(),
        "--tokens",
        str(folder / "tokens"),
        "--out",
        str(out),
        "--force",
    ]
    spent = run_watched([sys.executable, "-c", CLI, *command, "--memory", memory])
    manifest = ngramkit.open_artifact(out).manifest
    counts = {"tokens": manifest.counts["tokens"], "files": len(manifest.files)}
    return {**spent._asdict(), "bytes": manifest.bytes, **counts}


def run_watched(command: Sequence[str]) -> Spent:
    """Run a command to its end. Raises CalledProcessError where it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(command)
    peak = 0
    while True:
        done, status, used = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        peak = max(peak, own_memory(process.pid))
        time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Spent(time.perf_counter() - started, used.ru_utime + used.ru_stime, peak)


def own_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


def latencies(data: Path, place: Path) -> dict[str, tuple[float, float]]:
    """Return {drafter: microseconds of processor time of a draft, p50 and p99}, pages warm."""
    os.environ["NGRAMKIT_BENCH_DATA"] = str(data)
    import ngramkit

    pairs = contexts()
    every = max(sum(len(answer) for _, answer in pairs) // POSITIONS, 1)
    rehearsal = np.zeros(2, np.int32)  # compiles, and touches next to nothing
    found: dict[str, tuple[float, float]] = {}
    for name in DRAFTERS:
        rounds = []
        for _ in range(ROUNDS):
            drafter = ngramkit.load_drafter(name, datastores=[place])
            drafter.start(rehearsal)
            drafter.draft(1)
            drafter.finish()
            times = draft_times(drafter, pairs, BUDGET, every=every, clock=time.thread_time_ns)
            rounds.append(times[:POSITIONS])
        middle, late = np.percentile(np.min(rounds, axis=0), [50, 99])
        found[name] = float(middle), float(late)
        print(f"{place.parent.name}, {name}: {middle:.1f}, {late:.1f} us", flush=True)
    return found


if __name__ == "__main__":
    main()
