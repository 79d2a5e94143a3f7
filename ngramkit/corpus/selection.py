"""Selection of documents by index, licences, repository and text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, reason, require_between
from ngramkit.basics.limits import SHA256
from ngramkit.basics.untrusted import read_plain

MAX_EXCLUSIONS_BYTES = 1 << 28  # about four million lines
UNLICENSED, OPTED_OUT = "unlicensed", "opted_out"


@dataclass(frozen=True)
class Selection:
    """The documents to keep; by default all.

    `weight` multiplies `sample`. `excluded` holds lower-case repository names (owner/name) and
    sha256 hex digests of UTF-8 texts.
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
                f"sample must be above 0 and at most 1, got {self.sample:g}",
                "Give 0.01 to keep a hundredth.",
                option="sample",
            )
        require_weight("a corpus", self.weight)
        require_between("seed", self.seed, 0, (1 << 64) - 1)
        if self.limit is not None:
            require_between("limit", self.limit, 1)

    @property
    def share(self) -> float:
        return self.sample * self.weight

    def samples(self, index: int) -> bool:
        if self.share == 1.0:
            return True
        digest = hashlib.sha256(f"{self.seed}:{index}".encode()).digest()
        return int.from_bytes(digest[:8], "little") < self.share * 2**64

    def why_left_out(self, text: str, licenses: Iterable[str], repository: str) -> str | None:
        """Return UNLICENSED, OPTED_OUT, or None for a document that is kept."""
        if self.licenses:
            names = {licence.lower() for licence in licenses}
            if not names or not names <= self.licenses:
                return UNLICENSED
        if not self.excluded:
            return None
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return None if self.excluded.isdisjoint((repository.lower(), digest)) else OPTED_OUT

    def record(self) -> dict[str, Any]:
        shares = {"sample": self.sample, "weight": self.weight}
        record: dict[str, Any] = {name: share for name, share in shares.items() if share != 1.0}
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
    if not isinstance(weight, float | int) or isinstance(weight, bool) or not 0 < weight <= 1:
        raise UsageError(
            f"the weight of {corpus} must be above 0 and at most 1, got {weight!r:.40}",
            "Give 0.3 to keep three documents in ten.",
            option="corpus",
        )


def read_exclusions(path: Path) -> frozenset[str]:
    """Read repository names and sha256 digests, one per line, or raise InputError."""
    try:
        raw = read_plain(path, MAX_EXCLUSIONS_BYTES, error=InputError)
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the exclude list {path}: {reason(error)}",
            "Check the path.",
            option="exclude",
        ) from error
    entries = set()
    for number, line in enumerate(lines, 1):
        entry = line.split("#")[0].strip().lower()
        if entry and not SHA256.fullmatch(entry) and "/" not in entry:
            raise InputError(
                f"{path}, line {number}: must be a repository or a sha256, got {entry!r}",
                "Write one owner/name or 64 hex digits per line.",
            )
        if entry:
            entries.add(entry)
    return frozenset(entries)
