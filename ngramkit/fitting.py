"""Which artifacts that lie there fit a tokenizer, and which of them are taken.

Every datastore that adds a corpus; of the other kinds one, the model's own before the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ngramkit.formats.manifest import Manifest, TokenizerRecord
from ngramkit.formats.places import ARTIFACTS, AUTOMATIC, Found, artifacts_in
from ngramkit.models import DEFAULT, HUB_IDS
from ngramkit.sources import ROLES

SHOWN = 5  # artifacts in a line, and lines of what was left out


def candidates(tokenizer: TokenizerRecord) -> list[Found]:
    """Everything under artifacts/; what commands made by themselves for the embedded model only."""
    made = artifacts_in(AUTOMATIC) if tokenizer.id == DEFAULT else ()
    return [*artifacts_in(ARTIFACTS), *made]


def select(
    candidates: Iterable[Found], roles: Sequence[str], tokenizer: TokenizerRecord
) -> tuple[dict[str, list[Path]], list[str]]:
    """The folders to draft from by role, and a line for everything of those kinds left out."""
    taken: dict[str, list[Path]] = {role: [] for role in roles}
    left_out: list[str] = []
    others: list[str] = []  # tokenizers
    corpora: dict[Any, Path] = {}
    by_role: dict[str, list[tuple[Path, Manifest]]] = {role: [] for role in roles}
    for each in candidates:
        if each.manifest is None:
            left_out.append(f"{each.path} ({each.problem})")
        elif ROLES.get(each.manifest.kind) in by_role:
            if each.manifest.tokenizer.agrees(tokenizer):
                by_role[ROLES[each.manifest.kind]].append((each.path, each.manifest))
            else:
                others.append(each.manifest.tokenizer.id)
    for role, fitting in by_role.items():
        for path, manifest in sorted(
            fitting, key=lambda pair: _rank(pair[0], pair[1], tokenizer.id)
        ):
            same = corpora.get(_corpus_of(manifest)) if manifest.corpus else None
            if same is not None:
                left_out.append(f"{path} (of the same corpus as {same})")
            elif role != "datastores" and taken[role]:
                left_out.append(f"{path} ({taken[role][0]} is {_why(role)})")
            else:
                taken[role].append(path)
                corpora.setdefault(_corpus_of(manifest), path)
    if others:
        left_out.append(f"{len(others)} for other tokenizers ({listed(sorted(set(others)))})")
    return taken, _bounded(left_out)


def _rank(path: Path, manifest: Manifest, model: str) -> tuple[Any, ...]:
    """The model's own tables first, then the largest by tokens, then by bytes, then by name."""
    own = manifest.parameters.get("model") in (model, HUB_IDS.get(model))
    return (not own, -manifest.counts.get("tokens", 0), -manifest.bytes, str(path))


def _why(role: str) -> str:
    return "larger" if role == "frozen_table" else "the model's own, or larger"


def _corpus_of(manifest: Manifest) -> Any:
    """What tells corpora apart, as far as manifests do; frozen tables know no documents' order."""
    counts = {name: manifest.counts.get(name) for name in ("documents", "tokens")}
    return repr((sorted(manifest.corpus.items()), counts))


def listed(names: Sequence[str]) -> str:
    """Some of them in a line, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _bounded(lines: Sequence[str]) -> list[str]:
    more = [f"{len(lines) - SHOWN + 1} more"] if len(lines) > SHOWN else []
    return [*lines[: SHOWN - len(more)], *more]
