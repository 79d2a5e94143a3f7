"""Kind `history`: a model's past requests, from which later ones are drafted; it grows with use.

    manifest.json       lists no files and no counts, because they change
    requests.log        every request, append-only: ngramkit.formats.request_log
    index.safetensors   optional, made from the log: a suffix array of its newest requests
    requests.damaged    damaged bytes that `trim` removed from the log
    ages.json           optional: where the log ended at which times, see ngramkit.formats.eviction
    lock                exists while a process appends a request or rewrites the log
    index.lock          exists while a process writes the index

index.safetensors holds `tokens`, `suffix_array` and `first_token` like a shard of a datastore
(ngramkit.formats.datastore): requests in the log's order, each followed by a separator. The order
of suffixes that are equal up to a separator is undefined. It also holds

    mark       u64 [3]   the end of its last request: the log's generation and an offset in bytes;
                         then 1 if the index holds every request before it, else 0
    checksum   u64 [1]   crc32 of tokens, suffix_array, first_token and mark, in this order

An index of another generation, or with a wrong checksum, is ignored. Requests after its mark are
read from the log.

A shared copy (`ngramkit push`) is a log of generation 1 without damage or a torn end, and a
manifest that lists it, with the counts `requests` and `tokens`. No file is ever a link.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from ngramkit.basics.errors import ArtifactError, reason
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import owner_only, require_no_links
from ngramkit.formats.artifact import (
    Artifact,
    Layout,
    ValueCheck,
    require,
    require_layout,
    require_one_tokenizer,
    token_dtype,
)
from ngramkit.formats.datastore import (
    LAYOUT as SHARD_LAYOUT,
    DatastoreShard,
    check_ids_and_suffix_order,
    merge_shards,
    requests_shard,
    with_first_token,
)
from ngramkit.formats.manifest import HISTORY, MANIFEST_FILE, Manifest, build_id
from ngramkit.formats.replacing import (
    PRIVATE,
    Replacement,
    clear_killed_run,
    hold_lock,
    replace_text,
    sync_folder,
)
from ngramkit.formats.request_log import HEADER, Mark, PastRequest, Reading, RequestLog
from ngramkit.formats.safetensors import (
    Array,
    FileRecord,
    WrongFileError,
    open_arrays,
    sha256_of,
    write_arrays,
)
from ngramkit.formats.tokenizer_record import ANOTHER_HISTORY, TokenizerRecord

LOGGER = logging.getLogger("ngramkit")
LOG, INDEX, LOCK = "requests.log", "index.safetensors", "lock"
DAMAGED, AGES, INDEXING = "requests.damaged", "ages.json", "index.lock"
STRAYS = {  # temporary files, by their lock
    LOCK: (f"{LOG}.tmp", f"{MANIFEST_FILE}.tmp", f"{AGES}.tmp"),
    INDEXING: (f"{INDEX}.tmp",),
}
LAYOUT: Layout = {**SHARD_LAYOUT, "mark": (("uint64",), 1), "checksum": (("uint64",), 1)}


class Newest(NamedTuple):
    indexed: DatastoreShard | None  # the index, if it is valid
    added: DatastoreShard | None  # the requests after it, sorted when they are read
    complete: bool  # the log has no other requests


class History(Artifact):
    """An open history. It keeps its place in the log, so `news` returns every request once."""

    kind = HISTORY

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest)
        self.log = log_of(path, self.tokenizer)
        self.mark: Mark | None = None  # after the last request that `news` returned
        self._end: Mark | None = None  # the log's end after the last append

    @classmethod
    def open(
        cls, path: str | Path, manifest: Manifest | None = None, *, reporter: Reporter = SILENT
    ) -> Self:
        if not Path(path).exists():
            raise ArtifactError(f"no such history: {path}", "Check the path.")
        return super().open(path, manifest, reporter=reporter)

    @classmethod
    def at(cls, path: str | Path, tokenizer: TokenizerRecord) -> Self:
        """Open or create a history.

        Raises ArtifactError for another tokenizer or foreign files, or if it cannot be created.
        """
        path = Path(path)
        require_no_links(path)
        require_no_other(path)
        if not (path / MANIFEST_FILE).exists():
            with _naming_the_history(path):
                path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                with hold_lock(path / LOCK):
                    require_no_other(path)
                    create_history(path, tokenizer)
                sync_folder(path.parent)
        _clear_strays(path)
        history = cls.open(path)
        history.tokenizer.require(tokenizer, str(path), ANOTHER_HISTORY)
        return history

    def news(self) -> tuple[list[PastRequest], bool]:
        """Return the requests since the last call, or all and True after a rewrite of the log."""
        reading = self.read(self.mark)
        self.mark = reading.mark
        return reading.requests, reading.restarted

    def read(self, after: Mark | None = None) -> Reading:
        reading = self.log.read(after)
        if reading.damaged:
            _warn_of_damage(self.log.path, reading.damaged)
        return reading

    def append(self, tokens: Array, prompt: int) -> None:
        self.extend([(tokens, prompt)])

    def extend(self, requests: Iterable[tuple[Array, int]]) -> None:
        """Append finished requests: (tokens, number of prompt tokens). A later kill loses nothing.

        A request ends before the first id outside the vocabulary, which a model's padding may
        produce.
        """
        with hold_lock(self.path / LOCK):
            end = self.read(self._end or self.mark).mark
            self._end = self.log.append((self._request(*each) for each in requests), end)

    def _request(self, tokens: Array, prompt: int) -> PastRequest:
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.separator))
        ids = tokens[: outside[0]] if len(outside) else tokens
        return PastRequest(ids.astype(self.log.width), min(prompt, len(ids)))

    @property
    def bytes(self) -> int:
        return self.log.path.stat().st_size

    def load_index(self, tokens: int) -> DatastoreShard | None:
        """Return the index and set `mark` to its end, so that `news` starts there.

        None: it is missing, invalid, or has fewer than `tokens` of a longer log.
        """
        return self._load_index(tokens)[0]

    def newest(self, tokens: int) -> Newest:
        """Return the newest `tokens`, or some more, and set `mark` to their end."""
        self.mark = None
        index, complete = self._load_index(tokens)
        requests, restarted = self.news()
        if restarted:
            index = None
        if not requests:
            return Newest(index, None, complete or index is None)
        added = join_requests([request.tokens for request in requests], self.separator)
        complete = (complete or index is None) and len(added) <= tokens
        return Newest(index, requests_shard(added[-tokens:], self.separator), complete)

    def extend_index(self, tokens: int) -> None:
        """Extend the index to the log's end, sorting only the added requests.

        It covers the newest `tokens`, or as many as before if those were more.
        """
        index, added, complete = self.newest(tokens)
        if added is None or self.mark is None:
            return
        if index is not None:
            surplus = max(len(added.tokens) + min(len(index.tokens) - tokens, 0), 0)
            complete = complete and surplus == 0
            if surplus < len(index.tokens):
                added = merge_shards(index, added, surplus)
        self.save_index(added, self.mark, complete=complete)

    def _load_index(self, tokens: int) -> tuple[DatastoreShard | None, bool]:
        try:
            shard, mark, complete = self._read_index()
        except ArtifactError:
            return None, False
        enough = complete or len(shard.tokens) >= tokens
        if not enough or self.log.read(mark).restarted:
            return None, False
        self.mark = mark
        return shard, complete

    def _read_index(self) -> tuple[DatastoreShard, Mark, bool]:
        path = self.path / INDEX
        arrays = open_arrays(path)
        require_layout(path, arrays, LAYOUT)
        sizes = len(arrays["mark"]), len(arrays["checksum"])
        require(sizes == (3, 1), path, "its mark is wrong")
        unchanged = _checksum_arrays(arrays) == int(arrays["checksum"][0])
        require(unchanged, path, "its checksum is wrong")
        shard = DatastoreShard(**{name: arrays[name] for name in SHARD_LAYOUT})
        check_ids_and_suffix_order(path, shard, self.separator, merged=True)
        generation, offset, complete = (int(value) for value in arrays["mark"])
        return shard, Mark(generation, offset), bool(complete)

    def save_index(self, shard: DatastoreShard, mark: Mark, *, complete: bool) -> None:
        """Replace the index by `shard`, which ends with the last request before `mark`.

        `complete`: it starts with the log's first request.
        """
        shard = with_first_token(shard)
        arrays = {name: getattr(shard, name) for name in SHARD_LAYOUT}
        arrays["mark"] = np.array([mark.generation, mark.offset, complete], np.uint64)
        arrays["checksum"] = np.array([_checksum_arrays(arrays)], np.uint64)
        temporary = self.path / f"{INDEX}.tmp"
        with hold_lock(self.path / INDEXING):  # its own lock: appends do not wait
            if self.log.read(mark).restarted:  # its requests may be deleted by now
                return
            with open(temporary, "wb", opener=owner_only):
                pass  # private from its first byte on
            write_arrays(temporary, arrays)
            temporary.replace(self.path / INDEX)

    def require_files(self) -> None:
        require(not self.manifest.files, self.path, "a history lists no files")
        require_no_links(self.path)

    def value_checks(self) -> list[ValueCheck]:
        return [self._check_log, self._check_index]

    def read_sound(self) -> Reading:
        """Read all requests. Raises ArtifactError if the log is damaged."""
        reading = self.log.read()
        if reading.damaged:
            raise ArtifactError(
                f"{self.log.path} is damaged: {reading.damaged:,} bytes hold no valid request",
                "Run `ngramkit history trim` to remove the damage; all other requests are used.",
            )
        return reading

    def _check_log(self) -> list[str]:
        torn = ", the last one torn" if self.read_sound().torn else ""
        # A request with other ids is damaged.
        return [f"every request's checksum{torn}", "ids inside the vocabulary"]

    def _check_index(self) -> list[str]:
        if not (self.path / INDEX).exists():
            return []
        _, mark, _ = self._read_index()
        fits = not self.log.read(mark).restarted
        require(fits, self.path / INDEX, "its mark is not one of the log's")
        return [f"{INDEX}: checksum, mark and order"]


def create_history(
    path: Path, tokenizer: TokenizerRecord, requests: Sequence[PastRequest] = ()
) -> None:
    """Write a new history, its manifest last. A folder with a manifest is left unchanged."""
    if (path / MANIFEST_FILE).exists():
        return
    log_of(path, tokenizer).create(requests)
    replace_text(path / MANIFEST_FILE, manifest_of(tokenizer).to_json(), owner_only)


def manifest_of(tokenizer: TokenizerRecord) -> Manifest:
    plan = {"kind": History.kind, "tokenizer": tokenizer.fingerprint}
    corpus = {"id": "past requests"}
    return Manifest(History.kind, build_id(plan), tokenizer, corpus=corpus)


def log_of(path: Path, tokenizer: TokenizerRecord) -> RequestLog:
    size = tokenizer.vocabulary
    return RequestLog(path / LOG, token_dtype(size), size)


def copy_of(history: History) -> tuple[Manifest, bytes]:
    """Return a shared copy's manifest and log. Raises ArtifactError if the log is damaged."""
    requests = history.read_sound().requests
    log = b"".join(history.log.pack(requests))
    counts = {"requests": len(requests), "tokens": sum(len(each.tokens) for each in requests)}
    files = {LOG: FileRecord(len(log), hashlib.sha256(log).hexdigest())}
    manifest = manifest_of(history.tokenizer)
    return replace(manifest, counts=counts, files=files), log


def copied_log(where: object, manifest: Manifest) -> FileRecord:
    require(manifest.files.keys() == {LOG}, where, f"a copy of a history must list only {LOG}")
    record = manifest.files[LOG]
    require(record.bytes <= LIMITS.log_bytes, where, f"its log has {record.bytes:,} bytes")
    return record


def restore_history(path: Path, manifest: Manifest) -> None:
    """Create a history from a copy's log in `path`. Raises ArtifactError if that is invalid."""
    log, record = log_of(path, manifest.tokenizer), copied_log(path, manifest)
    if sha256_of(log.path) != record.sha256:
        raise WrongFileError(log.path, "its checksum is not the listed one")
    reading = log.read()
    require(not reading.damaged and not reading.torn, log.path, "a request is invalid")
    create_history(path, manifest.tokenizer, reading.requests)


def require_no_other(path: Path) -> None:
    """Raise ArtifactError if something else is at `path`, or requests without a manifest."""
    if not path.exists() or (path / MANIFEST_FILE).exists():
        return
    log = path / LOG
    if log.is_file() and log.stat().st_size > HEADER.size:
        raise ArtifactError(
            f"{path} is damaged: it has requests but no {MANIFEST_FILE}",
            f"Copy the {MANIFEST_FILE} of a history with the same tokenizer there, or move {LOG} "
            "away.",
        )
    own = {MANIFEST_FILE, LOG, *STRAYS, *itertools.chain(*STRAYS.values())}
    if not path.is_dir() or any(entry.name not in own for entry in path.iterdir()):
        raise ArtifactError(
            f"cannot write {path}: it exists and is not a history", "Choose another folder."
        )


def clear_partials(path: Path) -> None:
    """Delete histories next to `path` that a killed merge or pull left unfinished."""
    for partial in path.absolute().parent.glob("*.partial"):
        if partial.name.endswith(".replaced.partial") or not _holds_log(partial):
            continue
        out = partial.with_suffix("")
        clear_killed_run(out)
        if _holds_log(partial):
            LOGGER.warning("%s is being written, and may contain deleted requests", out)


def _holds_log(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LOG, f"{LOG}.tmp"))


@lru_cache(64)  # a command may read a log several times
def _warn_of_damage(path: Path, damaged: int) -> None:
    LOGGER.warning(
        "%s is damaged: %s bytes hold no valid request; all others are used "
        "(`ngramkit history trim` removes the damage)",
        path,
        f"{damaged:,}",
    )


def join_requests(requests: Sequence[Array], separator: int) -> Array:
    """Return the requests, u16 | u32 [n], each followed by a separator."""
    ends = np.cumsum([len(request) + 1 for request in requests])
    tokens = np.full(ends[-1] if len(ends) else 0, separator, token_dtype(separator))
    for request, end in zip(requests, ends, strict=True):
        tokens[end - 1 - len(request) : end - 1] = request
    return tokens


def _clear_strays(path: Path) -> None:
    for lock, names in STRAYS.items():
        strays = [path / name for name in names]
        if any(stray.exists() for stray in (*strays, path / lock)):
            with hold_lock(path / lock):
                for stray in strays:
                    stray.unlink(missing_ok=True)


def _checksum_arrays(arrays: dict[str, Array]) -> int:
    total = 0
    for name in (*SHARD_LAYOUT, "mark"):
        total = zlib.crc32(np.ascontiguousarray(arrays[name]).view(np.uint8).data, total)
    return total


def require_writable_folder(path: Path) -> None:
    """Raise ArtifactError if no history can be written in the folder, and create nothing."""
    folder = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    with _naming_the_history(path):
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def _naming_the_history(path: Path) -> Iterator[None]:
    """Convert OSError into ArtifactError."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"cannot write the history {path}: {reason(error)}", "Choose another folder."
        ) from error


def merge_histories(sources: Sequence[History], out: Path) -> tuple[History, int]:
    """Merge histories into a new one; return it and the number of dropped duplicates.

    The newest requests of each are at the end. Equal requests are kept as often as in the history
    with most of them, since samples of one prompt may be equal. Raises UsageError if `out` exists,
    ArtifactError if tokenizers differ or a log is damaged.
    """
    by_tokenizer = sorted(sources, key=lambda source: not source.tokenizer.is_known)
    require_one_tokenizer(by_tokenizer)
    held = [source.read_sound().requests for source in sources]
    rows = itertools.zip_longest(*(_number_equal_requests(reversed(requests)) for requests in held))
    # By (content, number), in the place of the newest.
    newest_first: dict[tuple[bytes, int], PastRequest] = {}
    for row in rows:
        for found in filter(None, reversed(row)):
            newest_first.setdefault(*found)
    inputs = [source.path for source in sources]
    with Replacement(out, inputs=inputs, forcible=False) as new:
        new.empty(PRIVATE)
        requests = list(newest_first.values())[::-1]
        create_history(new.partial, by_tokenizer[0].tokenizer, requests)
        new.put_in_place()
    return History.open(out), sum(map(len, held)) - len(newest_first)


def _number_equal_requests(
    requests: Iterable[PastRequest],
) -> Iterator[tuple[tuple[bytes, int], PastRequest]]:
    """Yield ((sha256 of the content, number of equal ones before), request)."""
    counts: Counter[bytes] = Counter()
    for request in requests:
        content = hashlib.sha256(b"%d " % request.prompt + request.tokens.tobytes()).digest()
        yield (content, counts[content]), request
        counts[content] += 1
