"""Fuzzing: each mutation is opened and drafted from in a forked child, under a time limit.

    python -m tests.attacks.fuzz [TRIES] [KIND ...] [--write] [--unchecked]       (make fuzz)

What may come of it: the artifact is refused by an error of ngramkit's own, or it drafts inside its
vocabulary. A signal, a hang, any other exception and any other draft is a failure, named by its
kind and seed. Files of strangers that are no artifacts (GGUF, tokenizer.json, parquet, .arrow) are
damaged and read, a tenth as many; more than MEMORY for one of them is a failure, too.

Killed, it goes on where it was when it is run again on the same code (its results are in
.fuzzed.json). `--write` keeps all tries so far in benchmarks/figures/fuzz.json; then run make docs.

`--unchecked` looks no value over first: what the kernels alone can take. Then only a signal or a
hang is a failure, and suffix arrays keep their values, which kernels trust (kernels.suffix.search).
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

import environment  # noqa: E402, F401 (before anything imports numba)

from attacks.crafted import craft, data_file, read_arrays, sign, write_arrays  # noqa: E402
from attacks.file_mutations import mutate_file  # noqa: E402
from attacks.file_victims import FILE_KINDS, build_files, use_file  # noqa: E402
from attacks.fuzzed import Report, keep, known_so_far, write  # noqa: E402
from attacks.mutations import fresh, mutate  # noqa: E402
from attacks.victims import KINDS, build_all, use  # noqa: E402
from ngramkit.basics import cache  # noqa: E402
from ngramkit.basics.errors import NgramkitError  # noqa: E402
from ngramkit.formats import artifact  # noqa: E402

WIDER = (
    ("suffix_array", "leader_counts"),
    ("follower_counts",),
    ("leader_counts", "follower_counts"),
)
PART = 1_000  # mutations between two lines of a report
SHOW = "NGRAMKIT_FUZZ_SHOW" in os.environ  # prints where an exception or a hang came from
SECONDS = 60  # of a processor, for one mutation; the slowest takes a few hundredths
WAITED = 600  # seconds in all: it waits for something
MEMORY = 256 << 20  # bytes that reading one damaged file may take; all of them are small
PENDING, REFUSED, DRAFTED, FOREIGN, WRONG, READ, HEAVY = range(7)
ENDS = {REFUSED: "refused", DRAFTED: "drafted", FOREIGN: "foreign exception", WRONG: "wrong draft",
        READ: "read", HEAVY: "too much memory"}  # fmt: skip


Change = Callable[[Path, str, int], None]  # of a whole artifact's folder, by its kind and a seed


def fuzz(
    kind: str, whole: Path, seeds: range, *, checked: bool = True, change: Change = mutate
) -> Report:
    """Try every seed; a child that dies or hangs loses only its own mutation."""
    report = Report()
    results = mmap.mmap(-1, len(seeds) + 8)  # one byte per seed, shared with the child
    begin = 0
    while begin < len(seeds):
        child = os.fork()
        if child == 0:
            _work(kind, whole, seeds[begin:], begin, results, checked, change)
        died = _wait(child, results, len(seeds))
        end = _at(results, len(seeds))
        if died:
            results[end] = PENDING
            report.outcomes[died] += 1
            report.failures.append(f"{kind} {seeds[end]}: {died}")
            begin = end + 1
        else:
            begin = len(seeds)
    for seed, outcome in zip(seeds, results[: len(seeds)], strict=True):
        if outcome != PENDING:
            report.outcomes[ENDS[outcome]] += 1
        if checked and outcome in (FOREIGN, WRONG, HEAVY):
            report.failures.append(f"{kind} {seed}: {ENDS[outcome]}")
    return report


def _at(results: mmap.mmap, size: int) -> int:
    return int(struct.unpack("<q", results[size:])[0])


def _wait(child: int, results: mmap.mmap, size: int) -> str:
    """Return how the child died, "" where it did not."""
    last, waited, spent, now = -1, 0.0, 0.0, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return f"signal {signal.Signals(-code).name}" if code < 0 else ""
        earlier, now = now, time.monotonic()
        waited += min(now - earlier, 1.0)  # while both of them are stopped, nothing hangs
        at = _at(results, size)
        if at != last:
            last, waited, spent = at, 0.0, _processor_seconds(child)
        elif waited > WAITED or _processor_seconds(child) - spent > SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang"
        time.sleep(0.02)


def _processor_seconds(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(
    kind: str,
    whole: Path,
    seeds: range,
    begin: int,
    results: mmap.mmap,
    checked: bool,
    change: Change,
) -> None:
    """Try all seeds in the child; never returns."""
    if not checked:
        artifact.verify_checksums_and_values = lambda *_, **__: iter(())  # type: ignore
    cache.private_folder = lambda name: None
    logging.disable(logging.CRITICAL)
    size, attempt = len(results) - 8, _try_file if kind in FILE_KINDS else _try
    if kind in FILE_KINDS:
        most = (_status("VmSize") << 10) + 16 * MEMORY  # more kills the child, and not the machine
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with tempfile.TemporaryDirectory(dir=whole.parent) as scratch:
        folder = Path(scratch, "artifact")
        for index, seed in enumerate(seeds, begin):
            results[size:] = struct.pack("<q", index)
            if SHOW:
                faulthandler.dump_traceback_later(SECONDS / 2)
            results[index] = attempt(kind, whole, folder, seed, change)
    os._exit(0)


def _try(kind: str, whole: Path, folder: Path, seed: int, change: Change) -> int:
    fresh(whole, folder)
    change(folder, kind, seed)
    try:
        return DRAFTED if use(folder) else WRONG
    except NgramkitError:
        return REFUSED
    except BaseException:
        if SHOW:
            print(kind, seed, traceback.format_exc(), file=sys.stderr, flush=True)
        return FOREIGN


def _try_file(kind: str, whole: Path, folder: Path, seed: int, change: Change) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = mutate_file(whole, kind, seed, folder)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is told from here on
    before = _status("VmRSS")
    try:
        use_file(path, folder / "scratch")
        ended = READ
    except NgramkitError:
        ended = REFUSED
    except BaseException:
        if SHOW:
            print(kind, seed, traceback.format_exc(), file=sys.stderr, flush=True)
        return FOREIGN
    return HEAVY if (_status("VmHWM") - before) << 10 > MEMORY else ended


def _status(name: str) -> int:
    """Return a value of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def warmed_files(folder: Path) -> dict[str, Path]:
    """Write whole files of every kind, each read once, so that forked children import nothing."""
    found = build_files(folder)
    for place in found.values():
        for path in sorted(place.iterdir()):
            use_file(path, folder / "scratch")
    return found


def warmed(folder: Path) -> dict[str, Path]:
    """Whole artifacts of every kind, each used once: a forked child finds its kernels compiled, for
    arrays of any width."""
    whole = build_all(folder)
    for kind, path in whole.items():
        assert use(path), kind
        for dtype in WIDER if kind in ("datastore", "frozen-table") else ():
            wide = Path(shutil.copytree(path, folder / "wide"))
            craft(wide, lambda arrays, dtype=dtype: _best_within_reach(arrays, dtype))
            assert use(wide), (kind, dtype)
            shutil.rmtree(wide)
    return whole


def _best_within_reach(arrays: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in arrays:
            arrays[name] = arrays[name].astype("<i8" if name == "suffix_array" else "<u8")


def mutate_trusting(folder: Path, kind: str, seed: int) -> None:
    """Mutate an artifact, but leave a datastore's suffix array and its text."""
    whole = read_arrays(data_file(folder)) if kind == "datastore" else {}
    mutate(folder, kind, seed)
    if kind == "datastore":
        # Where header or manifest make no sense it cannot be opened anyhow.
        with suppress(ValueError, KeyError, IndexError, TypeError, AttributeError, OSError):
            arrays = read_arrays(data_file(folder))
            trusted = {name: whole[name] for name in ("suffix_array", "tokens")}
            write_arrays(data_file(folder), {**arrays, **trusted})
            sign(folder)


def _tried(
    kind: str, whole: Path, tries: int, known: dict[str, Report], *, checked: bool = True
) -> Report:
    """Run all tries that are left, with a line for each part of them."""
    report, started = known.setdefault(kind, Report()), time.perf_counter()
    for begin in range(report.outcomes.total(), tries, PART):
        seeds = range(begin, min(begin + PART, tries))
        change = mutate if checked else mutate_trusting
        part = fuzz(kind, whole, seeds, checked=checked, change=change)
        report.outcomes += part.outcomes
        report.failures += part.failures
        if checked:
            keep(known)
        seconds = time.perf_counter() - started
        print(f"| {kind} | {seeds.stop:,} | {report.ends()} | {seconds:.0f} s |", flush=True)
    return report


def _share(kind: str, tries: int) -> int:
    """Of files that are no artifacts, a tenth."""
    return tries // 10 if kind in FILE_KINDS else tries


def main(words: list[str]) -> int:
    numbers = [int(word) for word in words if word.isdigit()]
    tries, checked = (numbers or [100_000])[0], "--unchecked" not in words
    known = known_so_far() if checked else {}
    memory = Path("/dev/shm")
    known_kinds = (*KINDS, *FILE_KINDS) if checked else KINDS
    kinds = [kind for kind in known_kinds if kind in words] or known_kinds
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        whole = warmed(Path(scratch)) if set(kinds) & set(KINDS) else {}
        if set(kinds) & set(FILE_KINDS):
            whole |= warmed_files(Path(scratch))
        tried = [
            _tried(kind, whole[kind], _share(kind, tries), known, checked=checked) for kind in kinds
        ]
    failures = [failure for report in tried for failure in report.failures]
    for failure in failures[:50]:
        print(failure)
    if "--write" in words and checked and not failures:
        write(known)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
