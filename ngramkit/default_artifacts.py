"""The artifacts that a drafter uses if none are named.

They are under artifacts/ and have the tokenizer's ids: the datastores, the largest frozen table,
and the model's own tables first. An artifact is left out if others hold the corpora that it was
built from: it is one of their copies, a sample, pruned, or a part of a merge or mixture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.kinds import ROLES
from ngramkit.basics.models import HUB_IDS
from ngramkit.basics.terminal_text import join_some
from ngramkit.corpus.naming import planned_corpus, whole_corpus
from ngramkit.formats.manifest import Manifest, parts_of
from ngramkit.formats.outputs import Found
from ngramkit.formats.tokenizer_record import TokenizerRecord

MAX_LINES = 5  # about artifacts left out


class _Text(NamedTuple):
    """Three ids of an artifact's text from one corpus. Texts that share one are the same text."""

    corpus: str
    selection: str  # of the corpus
    build: str  # the artifact's, unpruned, with the corpus


class _Candidate(NamedTuple):
    path: Path
    manifest: Manifest
    texts: list[_Text]
    holds: set[str]


def select_default_artifacts(
    candidates: Iterable[Found], roles: Sequence[str], tokenizer: TokenizerRecord
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the folders to draft from by role, and lines about the others."""
    left_out: list[str] = []
    others: list[str] = []  # tokenizers
    by_role: dict[str, list[_Candidate]] = {role: [] for role in roles}
    for folder in candidates:
        manifest = folder.manifest
        if manifest is None:
            left_out.append(f"{folder.path} ({folder.problem})")
        elif ROLES.get(manifest.kind) in by_role:
            if manifest.tokenizer.is_same_tokenizer(tokenizer):
                by_role[ROLES[manifest.kind]].append(_candidate(folder.path, manifest))
            else:
                others.append(manifest.tokenizer.id)
    taken: list[_Candidate] = []  # of all roles so far
    chosen: dict[str, list[Path]] = {}
    for role, fitting in by_role.items():
        held: list[str] = []
        fitting.sort(key=lambda each: _rank_own_then_largest(each, tokenizer.id))
        kept = list(fitting)
        smallest_first = fitting[::-1]
        for each in sorted(smallest_first, key=_is_whole):
            rest = [*taken, *(other for other in kept if other is not each)]
            if holders := _holders(each, rest):
                kept.remove(each)
                held.insert(0, f"{each.path} (its corpus is in {join_some(holders)})")
        left_out += held
        if role != "datastores":
            better = "larger" if role == "frozen_table" else "the model's own, or larger"
            left_out += [f"{each.path} ({kept[0].path} is {better})" for each in kept[1:]]
            del kept[1:]
        taken += kept
        chosen[role] = [each.path for each in kept]
    if others:
        left_out.append(f"{len(others)} for other tokenizers ({join_some(sorted(set(others)))})")
    more = [f"{len(left_out) - MAX_LINES + 1} more"] if len(left_out) > MAX_LINES else []
    return chosen, [*left_out[: MAX_LINES - len(more)], *more]


def _is_whole(candidate: _Candidate) -> bool:
    return all(text.corpus in candidate.holds for text in candidate.texts)


def _holders(candidate: _Candidate, others: Sequence[_Candidate]) -> list[str]:
    """Return the first artifact that holds each text of a candidate, [] if one is not held."""
    holders: dict[str, None] = {}
    for text in candidate.texts:
        holder = next((other for other in others if not other.holds.isdisjoint(text)), None)
        if holder is None:
            return []
        holders[str(holder.path)] = None
    return list(holders)


def _candidate(path: Path, manifest: Manifest) -> _Candidate:
    corpus = {name: value for name, value in manifest.corpus.items() if name != "pruned"}
    texts = list(_texts(corpus, _unpruned_build(manifest)))
    holds = {text.build for text in texts}
    if "pruned" not in manifest.corpus:
        holds.update(text.selection for text in texts)
        holds.update(text.corpus for text in texts if text.selection == text.corpus)
    return _Candidate(path, manifest, texts, holds)


def _unpruned_build(manifest: Manifest) -> str:
    """Return the build that an artifact was pruned from, its own if it is not pruned."""
    build: Any = manifest.build
    pruned = manifest.corpus.get("pruned")
    while isinstance(pruned, Mapping) and isinstance(whole := pruned.get("of"), Mapping):
        build, pruned = whole.get("build"), whole.get("pruned")
    return str(build)


def _texts(corpus: Mapping[str, Any], build: str, cut: str = "") -> Iterator[_Text]:
    """Yield the texts of a corpus, of each part of a merge or mixture."""
    if not corpus.keys().isdisjoint(("sample", "weight", "limit")):
        cut += repr(planned_corpus(corpus))
    parts = parts_of(corpus)
    for part in parts:
        yield from _texts(part, build, cut)
    if not parts:
        key = repr(sorted(whole_corpus(corpus).items()))
        name = key if corpus else build  # a model's table has no corpus
        yield _Text(name, name + cut, build + name)


def _rank_own_then_largest(candidate: _Candidate, model: str) -> tuple[Any, ...]:
    path, manifest = candidate.path, candidate.manifest
    own = manifest.parameters.get("model") in (model, HUB_IDS.get(model))
    return (not own, -manifest.counts.get("tokens", 0), -manifest.bytes, str(path))
