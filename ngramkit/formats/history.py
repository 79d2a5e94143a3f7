"""Kind `history`: a model's past requests, to draft later ones from; it grows while it is used.

    manifest.json       written once; it lists no files and no counts, because they change
    requests.log        every request, see ngramkit.formats.request_log; only ever added to
    index.safetensors   made from the log, may be missing: a suffix array over its newest requests
    requests.damaged    bytes of the log that `trim` found to be no request
    ages.json           may be missing: where the log ended at which times
    lock                there while a process adds a request or rewrites the log
    index.lock          there while a process writes the index

index.safetensors holds `tokens`, `suffix_array` and `first_token` as a shard of a datastore does
(ngramkit.formats.datastore): requests in the log's order, one separator after each. Only suffixes
that agree up to a separator stand in any order among themselves. Besides,

    mark       u64 [3]   up to where in the log it goes: the log's generation, an offset in bytes;
                         then 1 where the index holds every request before that, else 0
    checksum   u64 [1]   crc32 of tokens, suffix_array, first_token and mark, in this order

An index whose generation is not the log's, or whose checksum is wrong, does not count. Requests
behind its mark are read from the log, so none is ever lost to a missing or old index.

ages.json holds the log's `generation` and `ends`, a list of [seconds of the epoch, bytes]; older
ones hold `requests`, a list of [seconds of the epoch, number of requests].

A copy that is shared (`ngramkit push`) is the log alone, of generation 1, without damage or a torn
end, and a manifest that lists it, with the counts `requests` and `tokens`. It is no history until
`pull` has read every request of it and written them anew.

None of them is ever a link: what is added to a history goes into its own files. Any number of
processes may share one folder; a killed one loses at most the request that it was working on. Ids
are those of one tokenizer, as in every artifact.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from ngramkit.basics.errors import ArtifactError, require_between
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import (
    owner_only,
    read_json,
    require_no_links,
    whole_number,
)
from ngramkit.formats.admission import LIMITS
from ngramkit.formats.artifact import (
    Artifact,
    Layout,
    Part,
    require,
    require_layout,
    require_one_tokenizer,
    token_dtype,
)
from ngramkit.formats.datastore import (
    LAYOUT as SHARD_LAYOUT,
    DatastoreShard,
    check_shard,
    merge_shards,
    requests_shard,
    with_first_token,
)
from ngramkit.formats.manifest import NAME, Manifest, build_id
from ngramkit.formats.replacing import Replacement, locked, sync_folder, tidy
from ngramkit.formats.request_log import HEADER, Mark, PastRequest, Reading, RequestLog
from ngramkit.formats.resumable_writer import write_text
from ngramkit.formats.safetensors import (
    Array,
    FileRecord,
    WrongFileError,
    open_arrays,
    sha256_of,
    write_arrays,
)
from ngramkit.formats.tokenizer_record import TokenizerRecord

LOGGER = logging.getLogger("ngramkit")
LOG, INDEX, LOCK = "requests.log", "index.safetensors", "lock"
DAMAGED, AGES, INDEXING = "requests.damaged", "ages.json", "index.lock"
STRAYS = {
    LOCK: (f"{LOG}.tmp", f"{NAME}.tmp", f"{AGES}.tmp"),
    INDEXING: (f"{INDEX}.tmp",),
}  # by their lock
LAYOUT: Layout = {**SHARD_LAYOUT, "mark": (("uint64",), 1), "checksum": (("uint64",), 1)}
PRIVATE = 0o700  # requests are what people wrote: for no other user of the machine


class Newest(NamedTuple):
    """The newest requests of a history."""

    indexed: DatastoreShard | None  # the index, where there is a valid one
    added: DatastoreShard | None  # the requests behind it, sorted when they were read
    complete: bool  # these are all there are


class History(Artifact):
    """An open folder that remembers how far it has read: `news` returns every request once."""

    kind = "history"

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest)
        self.log = log_of(path, self.tokenizer)
        self.mark: Mark | None = None  # behind the last request that `news` returned
        self._end: Mark | None = None  # where the log ended when a request was last added

    @classmethod
    def open(cls, path: str | Path, *, reporter: Reporter = SILENT) -> Self:
        """Open the history at `path`. Raises ArtifactError where there is none or a damaged one."""
        if not Path(path).exists():
            raise ArtifactError(f"there is no history at {path}", "check the path")
        return super().open(path, reporter=reporter)

    @classmethod
    def at(cls, path: str | Path, tokenizer: TokenizerRecord) -> Self:
        """Open the history at `path`; make a new one where there is none.

        Raises ArtifactError where something else is there, or a history of another tokenizer.
        """
        path = Path(path)
        require_no_links(path)
        require_no_other(path)
        if not (path / NAME).exists():
            path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            with locked(path / LOCK):
                require_no_other(path)
                create(path, tokenizer)
            sync_folder(path.parent)
        _clear_strays(path)
        history = cls.open(path)
        history.tokenizer.require(tokenizer, str(path))
        return history

    @property
    def separator(self) -> int:
        return self.tokenizer.separator

    def news(self) -> tuple[list[PastRequest], bool]:
        """Return the requests that were added since the last call, oldest first; at first, all.

        The second value is True where the log was rewritten: the requests are then all there are,
        and those returned before no longer count.
        """
        reading = self.read(self.mark)
        self.mark = reading.mark
        return reading.requests, reading.restarted

    def read(self, after: Mark | None = None) -> Reading:
        """Read the log after a mark, and log a warning if it is damaged there."""
        reading = self.log.read(after)
        if reading.damaged:
            _warn_of_damage(self.log.path, reading.damaged)
        return reading

    def append(self, tokens: Array, prompt: int) -> None:
        """Add a finished request of `tokens`, `prompt` of them prompt; see `extend`."""
        self.extend([(tokens, prompt)])

    def extend(self, requests: Iterable[tuple[Array, int]]) -> None:
        """Add finished requests: tokens, and how many of them are prompt; `news` returns them, too.

        Ids outside the vocabulary (a model may have more than its tokenizer) end a request early.
        The operating system has them when this returns: the process may then be killed.
        """
        with locked(self.path / LOCK):
            end = self.read(self._end or self.mark).mark
            self._end = self.log.append((self._request(*each) for each in requests), end)

    def _request(self, tokens: Array, prompt: int) -> PastRequest:
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.separator))
        ids = tokens[: outside[0]] if len(outside) else tokens
        return PastRequest(ids.astype(self.log.width), min(prompt, len(ids)))

    @property
    def bytes(self) -> int:
        """The size of the log."""
        return self.log.path.stat().st_size

    def forget(self, wanted: Callable[[PastRequest], bool]) -> tuple[int, int]:
        """Drop the requests that are `wanted`, all damaged bytes and what killed processes left
        half-written; return how many requests and damaged bytes went."""
        with self._rewriting() as reading:
            aside = self.path / DAMAGED
            damaged = reading.damaged + (aside.stat().st_size if aside.exists() else 0)
            aside.unlink(missing_ok=True)
            dropped = self._rewrite(reading, [not wanted(request) for request in reading.requests])
        return dropped, damaged

    def trim(self, tokens: int) -> tuple[int, int]:
        """Keep the newest whole requests of at most `tokens` together; return how many went, and
        how many damaged bytes of the log went to requests.damaged."""
        require_between("tokens", tokens, 0)
        with self._rewriting() as reading:
            first, room = len(reading.requests), tokens
            while first and len(reading.requests[first - 1].tokens) <= room:
                first -= 1
                room -= len(reading.requests[first].tokens)
            _append_damage(self.path / DAMAGED, reading.damage)
            stays = [i >= first for i in range(len(reading.requests))]
            return self._rewrite(reading, stays), reading.damaged

    def expire(self, age: float, now: float) -> tuple[int, int]:
        """Note where the log ends `now`, and drop the requests that were there `age` seconds ago,
        as far as that was noted; return as `trim`.

        A noted time after `now`, as after a clock was put back, counts as now.
        """
        with self._rewriting() as reading:
            noted = self._ages(reading)
            ages = [(min(at, now), end) for at, end in noted]
            if reading.ends and (not ages or ages[-1][1] < reading.ends[-1]):
                ages.append((now, reading.ends[-1]))
            if ages != noted:
                self._write_ages(reading.mark.generation, ages)
            old = max((end for at, end in ages if at <= now - age), default=0)
            if not reading.ends or reading.ends[0] > old:
                return 0, 0
            _append_damage(self.path / DAMAGED, reading.damage)
            return self._rewrite(reading, [end > old for end in reading.ends]), reading.damaged

    @contextmanager
    def _rewriting(self) -> Iterator[Reading]:
        """Hold both locks, and read the log, which the caller may rewrite."""
        with locked(self.path / INDEXING), locked(self.path / LOCK):
            for name in itertools.chain(*STRAYS.values()):
                (self.path / name).unlink(missing_ok=True)
            yield self.log.read()

    def _rewrite(self, reading: Reading, stays: Sequence[bool]) -> int:
        """Rewrite the log with those requests that stay; return how many went."""
        generation = reading.mark.generation
        left = list(itertools.compress(reading.requests, stays))
        kept = [
            (at, sum(stays[: bisect_right(reading.ends, end)])) for at, end in self._ages(reading)
        ]
        (self.path / INDEX).unlink(missing_ok=True)  # first: it is of the old log
        self.log.create(left, generation + 1)
        if any(count for _, count in kept):
            ends = self.log.read().ends
            ages = [(at, ends[count - 1]) for at, count in kept if count]
            self._write_ages(generation + 1, ages)
        return len(reading.requests) - len(left)

    def _ages(self, reading: Reading) -> list[tuple[float, int]]:
        """Return when the log ended where, as far as that is known of its generation."""
        try:
            body = read_json(self.path / AGES, strict=True)
            if body["generation"] != reading.mark.generation:
                return []
            if "ends" in body:
                return [(float(at), end) for at, end in body["ends"] if whole_number(end)]
            ends = [0, *reading.ends]
            counts = [(float(at), count) for at, count in body["requests"] if whole_number(count)]
            return [(at, ends[min(count, len(ends) - 1)]) for at, count in counts]
        except (OSError, ValueError, TypeError, KeyError, OverflowError, ArtifactError):
            return []  # without it requests are only kept for longer

    def _write_ages(self, generation: int, ages: Sequence[tuple[float, int]]) -> None:
        body = {"generation": generation, "ends": ages}
        write_text(self.path / AGES, json.dumps(body), owner_only)

    def load_index(self, tokens: int) -> DatastoreShard | None:
        """Return the index and set `mark` to its end; None where there is no valid one.

        None also where it holds fewer than `tokens`, unless there are no more. Call it before
        `news`, which then begins behind it.
        """
        return self._load_index(tokens)[0]

    def newest(self, tokens: int) -> Newest:
        """Return the newest `tokens`, or some more; `mark` is set to their end."""
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
        """Bring the index to the log's end: over the newest `tokens`, or as many as it had, if they
        were more. Only what it lacks is sorted."""
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
        """Return what `load_index` does, and whether it holds the log's first request."""
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
        """Read the index. Raises ArtifactError unless it is whole: kernels index by its values."""
        path = self.path / INDEX
        arrays = open_arrays(path)
        require_layout(path, arrays, LAYOUT)
        require(
            len(arrays["mark"]) == 3 and len(arrays["checksum"]) == 1, path, "its mark is wrong"
        )
        require(_checksum(arrays) == int(arrays["checksum"][0]), path, "its checksum is wrong")
        shard = DatastoreShard(**{name: arrays[name] for name in SHARD_LAYOUT})
        check_shard(path, shard, self.separator, merged=True)
        generation, offset, complete = (int(value) for value in arrays["mark"])
        return shard, Mark(generation, offset), bool(complete)

    def save_index(self, shard: DatastoreShard, mark: Mark, *, complete: bool) -> None:
        """Replace the index by `shard`, which ends with the last request before `mark`.

        `complete` says whether it begins with the log's first request.
        """
        shard = with_first_token(shard)
        arrays = {name: getattr(shard, name) for name in SHARD_LAYOUT}
        arrays["mark"] = np.array([mark.generation, mark.offset, complete], np.uint64)
        arrays["checksum"] = np.array([_checksum(arrays)], np.uint64)
        temporary = self.path / f"{INDEX}.tmp"
        with locked(self.path / INDEXING):  # no request waits for it
            if self.log.read(mark).restarted:  # it was rewritten: these may be forgotten by now
                return
            with open(temporary, "wb", opener=owner_only):
                pass  # for no other user of the machine, from its first byte on
            write_arrays(temporary, arrays)
            temporary.replace(self.path / INDEX)

    def require_files(self) -> None:
        require(not self.manifest.files, self.path, "a history lists no files")
        require_no_links(self.path)

    def parts(self) -> list[Part]:
        return [lambda: list(self.check())]

    def read_sound(self) -> Reading:
        """Read all requests. Raises ArtifactError where the log is damaged."""
        reading = self.log.read()
        if reading.damaged:
            raise ArtifactError(
                f"{self.log.path} is damaged: {reading.damaged:,} bytes hold no valid request",
                "all others are used; `ngramkit history trim` puts the damage aside",
            )
        return reading

    def check(self) -> Iterator[str]:
        reading = self.read_sound()
        yield "every request's checksum" + (", the last one torn" if reading.torn else "")
        yield "ids inside the vocabulary"  # else a request is damaged
        if not (self.path / INDEX).exists():
            return
        _, mark, _ = self._read_index()
        fits = not self.log.read(mark).restarted
        require(fits, self.path / INDEX, "its mark is none of the log's")
        yield f"{INDEX}: checksum, mark and order"


def create(path: Path, tokenizer: TokenizerRecord, requests: Sequence[PastRequest] = ()) -> None:
    """Write a new history, its manifest last: a folder with one is whole, and left as it is."""
    if (path / NAME).exists():
        return
    log_of(path, tokenizer).create(requests)
    write_text(path / NAME, manifest_of(tokenizer).to_json(), owner_only)


def manifest_of(tokenizer: TokenizerRecord) -> Manifest:
    """Return the manifest of every history of this tokenizer."""
    plan = {"kind": History.kind, "tokenizer": tokenizer.fingerprint}
    return Manifest(History.kind, build_id(plan), tokenizer, corpus={"id": "past requests"})


def log_of(path: Path, tokenizer: TokenizerRecord) -> RequestLog:
    """Return the log of the history at `path`."""
    size = tokenizer.vocabulary
    return RequestLog(path / LOG, token_dtype(size), size)


def copy_of(history: History) -> tuple[Manifest, bytes]:
    """Return the log of a copy, as it is now, and the manifest that lists it.

    Raises ArtifactError where the log is damaged.
    """
    requests = history.read_sound().requests
    log = b"".join(history.log.pack(requests))
    counts = {"requests": len(requests), "tokens": sum(len(each.tokens) for each in requests)}
    files = {LOG: FileRecord(len(log), hashlib.sha256(log).hexdigest())}
    return replace(manifest_of(history.tokenizer), counts=counts, files=files), log


def copied_log(where: object, manifest: Manifest) -> FileRecord:
    """Return what the manifest of a copy lists of its log. Raises ArtifactError, naming `where`."""
    require(manifest.files.keys() == {LOG}, where, f"a copy of a history lists {LOG} alone")
    record = manifest.files[LOG]
    require(record.bytes <= LIMITS.log_bytes, where, f"its log has {record.bytes:,} bytes")
    return record


def restore(path: Path, manifest: Manifest) -> None:
    """Make a history of the folder `path`, which holds the log of a copy: requests are written
    anew.

    Raises ArtifactError where the log is not what `manifest` lists, or not wholly of valid
    requests.
    """
    log, record = log_of(path, manifest.tokenizer), copied_log(path, manifest)
    if sha256_of(log.path) != record.sha256:
        raise WrongFileError(log.path, "its checksum is not the listed one")
    reading = log.read()
    require(not reading.damaged and not reading.torn, log.path, "it holds no valid request")
    create(path, manifest.tokenizer, reading.requests)


def require_no_other(path: Path) -> None:
    """Raise ArtifactError where something stands at `path` that is no history, and not the begin of
    one, or a history that has lost its manifest."""
    if not path.exists() or (path / NAME).exists():
        return
    log = path / LOG
    if log.is_file() and log.stat().st_size > HEADER.size:
        raise ArtifactError(
            f"{path} holds requests but no {NAME}",
            f"copy the {NAME} of a history of the same tokenizer there, or move {LOG} away",
        )
    own = {NAME, LOG, *STRAYS, *itertools.chain(*STRAYS.values())}
    if not path.is_dir() or any(entry.name not in own for entry in path.iterdir()):
        raise ArtifactError(f"{path} exists and is no history", "choose another folder")


def clear_partials(path: Path) -> None:
    """Delete histories that a killed merge or pull left unfinished in the folder of `path`."""
    for partial in path.absolute().parent.glob("*.partial"):
        if partial.name.endswith(".replaced.partial") or not _holds_log(partial):
            continue
        out = partial.with_suffix("")
        tidy(out)
        if _holds_log(partial):
            LOGGER.warning("%s is being written, and may hold what was forgotten", out)


def _holds_log(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LOG, f"{LOG}.tmp"))


@lru_cache(64)  # a command may read one log several times
def _warn_of_damage(path: Path, damaged: int) -> None:
    LOGGER.warning(
        "%s is damaged: %s bytes hold no valid request; all others are used "
        "(`ngramkit history trim` puts the damage aside)",
        path,
        f"{damaged:,}",
    )


def join_requests(requests: Sequence[Array], separator: int) -> Array:
    """Return the requests one behind the other, u16 | u32, a separator after each."""
    ends = np.cumsum([len(request) + 1 for request in requests])
    tokens = np.full(ends[-1] if len(ends) else 0, separator, token_dtype(separator))
    for request, end in zip(requests, ends, strict=True):
        tokens[end - 1 - len(request) : end - 1] = request
    return tokens


def _clear_strays(path: Path) -> None:
    """Delete temporary files of a killed process; a running one holds their lock."""
    for lock, names in STRAYS.items():
        strays = [path / name for name in names]
        if any(stray.exists() for stray in (*strays, path / lock)):
            with locked(path / lock):
                for stray in strays:
                    stray.unlink(missing_ok=True)


def _append_damage(path: Path, damage: Sequence[bytes]) -> None:
    if not damage:
        return
    with open(path, "ab", opener=owner_only) as file:
        file.writelines(damage)
        file.flush()
        os.fsync(file.fileno())


def _checksum(arrays: dict[str, Array]) -> int:
    total = 0
    for name in (*SHARD_LAYOUT, "mark"):
        total = zlib.crc32(np.ascontiguousarray(arrays[name]).view(np.uint8).data, total)
    return total


def merge_histories(sources: Sequence[History], out: Path) -> tuple[History, int]:
    """Merge histories into a new one, with the newest requests of each at its end; return it, and
    how many copies of requests were dropped.

    Copies of a history hold the same requests. So of equal ones as many stay as the history that
    has most of them holds: samples of one prompt may be equal, and count.

    Raises UsageError where `out` exists, ArtifactError where the tokenizers differ or a log is
    damaged.
    """
    require_one_tokenizer(sources)
    held = [source.read_sound().requests for source in sources]
    rows = itertools.zip_longest(*(_numbered(reversed(requests)) for requests in held))
    # By content and number; of equal ones the newest stands.
    newest_first: dict[tuple[bytes, int], PastRequest] = {}
    for row in rows:
        for found in filter(None, reversed(row)):
            newest_first.setdefault(*found)
    inputs = [source.path for source in sources]
    with Replacement(out, inputs=inputs, forcible=False) as new:
        new.empty(PRIVATE)
        create(new.partial, sources[0].tokenizer, list(newest_first.values())[::-1])
        new.put_in_place()
    return History.open(out), sum(map(len, held)) - len(newest_first)


def _numbered(
    requests: Iterable[PastRequest],
) -> Iterator[tuple[tuple[bytes, int], PastRequest]]:
    """Yield a key of each request, its content's sha256 and how many equal ones came before it, and
    the request."""
    counts: Counter[bytes] = Counter()
    for request in requests:
        content = hashlib.sha256(b"%d " % request.prompt + request.tokens.tobytes()).digest()
        yield (content, counts[content]), request
        counts[content] += 1
