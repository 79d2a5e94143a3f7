"""Questions of benchmarks by name.

    spec-bench             480 questions, from its repository on GitHub at a fixed commit
    speed-bench[:CONFIG][@REVISION]
                           nvidia/SPEED-Bench on the Hub; CONFIG: qualitative (default), or by the
                           length of prompts throughput_1k, _2k, _8k, _16k, _32k; REVISION: a
                           branch, tag or commit, by default main's newest commit

An existing file of such a name is read as a file. Questions are downloaded when they are needed and
are not part of this package; SPEED-Bench's licence is the user's to accept. SPEED-Bench ships part
of its texts as placeholders, which its own script replaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown, storage_errors
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted

SPEC_BENCH = "spec-bench"
SPEC_BENCH_URL = (
    "https://raw.githubusercontent.com/hemingkx/Spec-Bench/"
    "fd2c1cd7d2201ef71db4c5f4e455008f017967bf/data/spec_bench/question.jsonl"
)
SPEC_BENCH_SHA256 = "4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04"
SPEED_BENCH = "speed-bench"
CONFIGS = {
    SPEC_BENCH: ("",),
    SPEED_BENCH: ("qualitative", *(f"throughput_{size}k" for size in (1, 2, 8, 16, 32))),
}
SPEED_BENCH_DATASET, SPEED_BENCH_SPLIT = "nvidia/SPEED-Bench", "test"
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
PREPARE = "Run NVIDIA's SPEED-Bench script, and give its jsonl file as questions."
MAX_DOWNLOAD_BYTES = 16 << 20  # of a downloaded file
DOWNLOAD_SECONDS = 30  # without an answer
QUESTION_CACHE = TextCache("questions", 16)


@dataclass(frozen=True)
class QuestionSet:
    name: str
    config: str
    revision: str | None = None

    def __str__(self) -> str:
        config, revision = self.config and f":{self.config}", self.revision and f"@{self.revision}"
        return f"{self.name}{config}{revision or ''}"

    def pinned(self) -> QuestionSet:
        """Return the set at its commit. Raises NetworkError."""
        if self.name != SPEED_BENCH:
            return self
        from ngramkit.corpus.hub import hub_commit

        return replace(self, revision=hub_commit(SPEED_BENCH_DATASET, self.revision))

    @property
    def label(self) -> str:
        return f"{self.name}-{self.config}" if self.config else self.name

    def records(self, reporter: Reporter = SILENT) -> list[dict[str, Any]]:
        """Download the questions. Raises InputError if none has a text, NetworkError."""
        if self.name == SPEC_BENCH:
            lines = _download_spec_bench().split("\n")  # texts may hold other line separators
            return [json.loads(line) for line in lines if line]
        from ngramkit.corpus.hub import hub_records

        commit, rows = hub_records(
            SPEED_BENCH_DATASET, self.config, SPEED_BENCH_SPLIT, self.revision
        )
        reporter.note(f"{SPEED_BENCH_DATASET} at {commit[:8]}; its own licence applies")
        kept = [row for row in rows if not has_placeholder(row)]
        if not kept:
            raise InputError(
                f"cannot use {self.label}: {SPEED_BENCH_DATASET} has no text of its questions",
                PREPARE,
                option="questions",
            )
        if left_out := len(rows) - len(kept):
            reporter.note(
                f"{left_out:,} of {counted(len(rows), 'question')} left out: {SPEED_BENCH_DATASET} "
                f"ships placeholders for them. {PREPARE}"
            )
        return kept


def find_set(given: Any) -> QuestionSet | None:
    """Return the set that `given` names; None for files.

    Raises UsageError for its config or revision.
    """
    if not isinstance(given, str | Path) or Path(given).exists():
        return None
    text, at, revision = str(given).partition("@")
    name, colon, config = text.partition(":")
    if name not in CONFIGS:
        return None
    if at and (name != SPEED_BENCH or not revision):
        raise UsageError(
            f"unknown revision {revision!r} of {name}", f"Write {text}.", option="questions"
        )
    configs = CONFIGS[name]
    if not colon:
        return QuestionSet(name, configs[0], revision or None)
    if config not in configs or not config:
        raise UsageError(
            f"unknown configuration {config!r} of {name}",
            hint_for_unknown(config, configs) if configs[0] else f"Write {name}.",
            option="questions",
        )
    return QuestionSet(name, config, revision or None)


def pin_question_set(given: Any) -> Any:
    """Return `given`, or the name of a set with its commit, so that it names the same questions."""
    named = find_set(given)
    return given if named is None else str(named.pinned())


def has_placeholder(record: Mapping[str, Any]) -> bool:
    """Return whether SPEED-Bench's placeholder is in place of a text."""
    return PLACEHOLDER in json.dumps([record.get("turns"), record.get("messages")])


def _download_spec_bench() -> str:
    known = QUESTION_CACHE.get(SPEC_BENCH_SHA256)
    if known is not None and _is_spec_bench(known.encode()):
        return known
    from urllib.request import urlopen  # the file is public, and fsspec needs another package

    with storage_errors(SPEC_BENCH_URL), urlopen(SPEC_BENCH_URL, timeout=DOWNLOAD_SECONDS) as file:
        raw = file.read(MAX_DOWNLOAD_BYTES)
    if not _is_spec_bench(raw):
        raise InputError(
            f"cannot use {SPEC_BENCH_URL}: it was changed",
            "Download Spec-Bench's question.jsonl, and give it as questions.",
            option="questions",
        )
    text: str = raw.decode()
    QUESTION_CACHE.put(SPEC_BENCH_SHA256, text)
    return text


def _is_spec_bench(raw: bytes) -> bool:
    return hashlib.sha256(raw).hexdigest() == SPEC_BENCH_SHA256
