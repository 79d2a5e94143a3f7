"""What a drafter drafts from, in words: `<Rest 2 datastores, 41.0 M tokens, llama-tokenizer>`."""

from __future__ import annotations

from collections.abc import Sequence

from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import TokenizerRecord

COUNTED = ("tokens", "leaders", "rows", "k")  # what says most of a kind's size


class Described:
    """A drafter whose repr says what it is made of; `over` is set when it is made."""

    over = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.over and ' '}{self.over}>"


def described(artifacts: Sequence[Artifact], tokenizer: TokenizerRecord | None = None) -> str:
    """Kind by kind how many and how large, then the tokenizer: theirs, or the one that is given."""
    said = []
    for kind in dict.fromkeys(artifact.kind for artifact in artifacts):
        alike = [artifact for artifact in artifacts if artifact.kind == kind]
        counts = alike[0].manifest.counts
        unit = next((name for name in COUNTED if name in counts), None)
        said.append(f"{len(alike)} {kind}s" if len(alike) > 1 else kind)
        if unit is not None:
            said.append(f"{short(sum(each.manifest.counts[unit] for each in alike))} {unit}")
    known = tokenizer or (artifacts[0].tokenizer if artifacts else None)
    if known is not None:
        said.append(known.id.rstrip("/").rpartition("/")[2])
    return ", ".join(said)


def short(count: int) -> str:
    """
    >>> short(41_000_000), short(46_111)
    ('41.0 M', '46,111')
    """
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"
