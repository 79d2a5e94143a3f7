"""The selection of a corpus's documents, by their index, licences, repository and text.

It does not depend on the order of work: a sample keeps a document by a hash of (seed, index), so
shards, workers and resumed runs all agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, reason, require_between
from ngramkit.basics.untrusted import read_plain
from ngramkit.formats.admission import SHA256

MOST_LIST = 1 << 28  # bytes of a list of exclusions, some four million lines


@dataclass(frozen=True)
class Selection:
    """A choice of a corpus's documents; the default keeps all.

    `limit` counts kept documents; `weight` is the corpus's in a mixture, a share like `sample`
    (they are multiplied); `licenses` and `excluded` are lower-case. `excluded` holds repository
    names (owner/name) and sha256 hex digests of UTF-8 texts.
    """

    sample: float = 1.0
    seed: int = 0
    limit: int | None = None
    licenses: frozenset[str] = field(default_factory=frozenset)
    excluded: frozenset[str] = field(default_factory=frozenset)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise UsageError(
                f"sample must be above 0 and at most 1, is {self.sample:g}",
                "0.01 keeps a hundredth",
                option="sample",
            )
        require_weight("a corpus", self.weight)
        require_between("seed", self.seed, 0, (1 << 64) - 1)
        if self.limit is not None:
            require_between("limit", self.limit, 1)

    @property
    def share(self) -> float:
        """The share of documents that is kept by their index alone."""
        return self.sample * self.weight

    def samples(self, index: int) -> bool:
        """Return whether document `index` of the corpus falls into the sample."""
        if self.share == 1.0:
            return True
        digest = hashlib.sha256(f"{self.seed}:{index}".encode()).digest()
        return int.from_bytes(digest[:8], "little") < self.share * 2**64

    def admits(self, text: str, licenses: Iterable[str], repository: str) -> bool:
        """Return whether licences and exclusions let the document in.

        With several licences every one must be listed, since any of them may govern.
        """
        if self.licenses:
            names = {licence.lower() for licence in licenses}
            if not names or not names <= self.licenses:
                return False
        if not self.excluded:
            return True
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return self.excluded.isdisjoint((repository.lower(), digest))

    def record(self) -> dict[str, Any]:
        """Return JSON for the manifest: only what differs from keeping everything."""
        record: dict[str, Any] = {}
        if self.sample != 1.0:
            record["sample"] = self.sample
        if self.weight != 1.0:
            record["weight"] = self.weight
        if record:
            record["seed"] = self.seed
        if self.limit is not None:
            record["limit"] = self.limit
        if self.licenses:
            record["licenses_kept"] = sorted(self.licenses)
        if self.excluded:
            lines = "\n".join(sorted(self.excluded))
            record["excluded"] = hashlib.sha256(lines.encode()).hexdigest()
        return record


def require_weight(corpus: str, weight: Any) -> None:
    """Raise UsageError where the weight is not a number in (0, 1]."""
    if not isinstance(weight, float | int) or isinstance(weight, bool) or not 0 < weight <= 1:
        raise UsageError(
            f"the weight of {corpus} must be above 0 and at most 1, is {weight!r:.40}",
            "0.3 keeps three documents in ten",
            option="corpus",
        )


def read_exclusions(path: Path) -> frozenset[str]:
    """Read repository names and sha256 digests of documents, one a line; `#` begins a comment.

    Raises InputError where the file cannot be read or a line is neither.
    """
    try:
        raw = read_plain(path, MOST_LIST, error=InputError)
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the exclude list {path} cannot be read: {reason(error)}",
            "check the path",
            option="exclude",
        ) from error
    entries = set()
    for number, line in enumerate(lines, 1):
        entry = line.split("#")[0].strip().lower()
        if entry and not SHA256.fullmatch(entry) and "/" not in entry:
            raise InputError(
                f"{path}, line {number}: {entry!r} is neither a repository nor a sha256",
                "one owner/name or 64 hex digits a line",
            )
        if entry:
            entries.add(entry)
    return frozenset(entries)
