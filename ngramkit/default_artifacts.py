"""The artifacts that a drafter uses if none are named.

They are under artifacts/ and have the tokenizer's ids: every datastore with its own corpus, the
largest frozen table, and the model's own tables first, but no pruned copies or parts of a present
merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngramkit.basics.kinds import ROLES
from ngramkit.basics.models import HUB_IDS
from ngramkit.basics.terminal_text import join_some
from ngramkit.corpus.naming import selection_text, whole_corpus
from ngramkit.formats.manifest import Manifest
from ngramkit.formats.outputs import Found
from ngramkit.formats.tokenizer_record import TokenizerRecord

MAX_LINES = 5  # about artifacts left out


def select_default_artifacts(
    candidates: Iterable[Found], roles: Sequence[str], tokenizer: TokenizerRecord
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the folders to draft from by role, and lines about the others."""
    taken: dict[str, list[Path]] = {role: [] for role in roles}
    left_out: list[str] = []
    others: list[str] = []  # tokenizers
    corpora: dict[Any, Path] = {}
    whole_corpora: dict[str, Path] = {}  # of which nothing was left out
    wholes: dict[tuple[str, str], tuple[Path, Manifest]] = {}  # by role and unpruned build
    by_role: dict[str, list[tuple[Path, Manifest]]] = {role: [] for role in roles}
    for folder in candidates:
        manifest = folder.manifest
        if manifest is None:
            left_out.append(f"{folder.path} ({folder.problem})")
        elif ROLES.get(manifest.kind) in by_role:
            if manifest.tokenizer.is_same_tokenizer(tokenizer):
                by_role[ROLES[manifest.kind]].append((folder.path, manifest))
            else:
                others.append(manifest.tokenizer.id)
    for role, fitting in by_role.items():
        merges: list[tuple[Path, list[Any]]] = []  # with the corpora of their parts
        for path, manifest in sorted(
            fitting, key=lambda pair: _rank_own_then_largest(pair[0], pair[1], tokenizer.id)
        ):
            key = manifest.corpus_key if manifest.corpus else None
            twin = corpora.get(key) if key else None
            whole = wholes.setdefault((role, _unpruned_build(manifest)), (path, manifest))
            of_corpus, is_part = _whole_key(manifest.corpus), bool(selection_text(manifest.corpus))
            merge = next((at for at, parts in merges if key and manifest.corpus in parts), None)
            if twin is not None:
                left_out.append(f"{path} (of the same corpus as {twin})")
            elif is_part and of_corpus in whole_corpora:
                left_out.append(f"{path} (a part of the corpus of {whole_corpora[of_corpus]})")
            elif whole[0] != path:
                copy = whole[1].build == _unpruned_build(manifest)
                of = "a pruned copy of" if copy else "pruned from the same artifact as"
                left_out.append(f"{path} ({of} {whole[0]})")
            elif merge is not None:
                left_out.append(f"{path} (a part of {merge})")
            elif role != "datastores" and taken[role]:
                better = "larger" if role == "frozen_table" else "the model's own, or larger"
                left_out.append(f"{path} ({taken[role][0]} is {better})")
            else:
                taken[role].append(path)
                merged = _merged_corpora(manifest.corpus)
                merges.append((path, merged))
                if key:
                    corpora.setdefault(key, path)
                for corpus in (manifest.corpus, *merged):
                    if isinstance(corpus, Mapping) and not selection_text(corpus):
                        whole_corpora.setdefault(_whole_key(corpus), path)
    if others:
        left_out.append(f"{len(others)} for other tokenizers ({join_some(sorted(set(others)))})")
    more = [f"{len(left_out) - MAX_LINES + 1} more"] if len(left_out) > MAX_LINES else []
    return taken, [*left_out[: MAX_LINES - len(more)], *more]


def _unpruned_build(manifest: Manifest) -> str:
    build: Any = manifest.build
    pruned = manifest.corpus.get("pruned")
    while isinstance(pruned, Mapping) and isinstance(of := pruned.get("of"), Mapping):
        build, pruned = of.get("build"), of.get("pruned")
    return str(build)


def _whole_key(corpus: Mapping[str, Any]) -> str:
    return repr(sorted(whole_corpus(corpus).items()))


def _merged_corpora(corpus: Mapping[str, Any]) -> list[Any]:
    """Return the corpora of a merge, recursively."""
    merged = corpus.get("merged")
    parts = merged if isinstance(merged, list) else []
    return [
        *parts,
        *(each for part in parts if isinstance(part, dict) for each in _merged_corpora(part)),
    ]


def _rank_own_then_largest(path: Path, manifest: Manifest, model: str) -> tuple[Any, ...]:
    own = manifest.parameters.get("model") in (model, HUB_IDS.get(model))
    return (not own, -manifest.counts.get("tokens", 0), -manifest.bytes, str(path))
