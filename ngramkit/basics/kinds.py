"""The kinds of artifacts: their names, builders and drafters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ARTIFACTS = Path("artifacts")  # the default folder


@dataclass(frozen=True)
class Kind:
    name: str  # in manifests
    short: str  # in the names of folders
    command: str  # `ngramkit COMMAND` builds it
    about: str  # a sentence for its card
    role: str | None = None  # keyword of `load_drafter` and `Sources`, if it has drafters
    drafter: str | None = None  # name of its simplest drafter

    @property
    def flag(self) -> str:
        return "--" + (self.role or "").removesuffix("s").replace("_", "-")

    @property
    def of_model(self) -> bool:
        return self.name.startswith("model-")


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "tokens",
            "tokens",
            "tokenize",
            "A corpus, tokenised once: the input of ngramkit's builders.",
        ),
        Kind(
            "datastore",
            "datastore",
            "build-datastore",
            "A REST datastore: suffix arrays over a tokenised corpus "
            "(He et al., 2023, arXiv:2311.08252).",
            "datastores",
            "rest",
        ),
        Kind(
            "frozen-table",
            "frozen",
            "build-frozen",
            "A frozen n-gram table of a corpus, most frequent followers first "
            "(Cacheback, arXiv:2511.21699).",
            "frozen_table",
            "cacheback",
        ),
        Kind(
            "model-bigram",
            "bigram",
            "model-bigram",
            "What a language model holds likely after every single token "
            "(N-Grammys, Stewart et al., 2024, arXiv:2411.03786).",
            "bigram",
            "ngrammys",
        ),
        Kind(
            "model-unigram",
            "unigram",
            "model-unigram",
            "The tokens that a model's embeddings make likely anywhere "
            "(N-Grammys, Stewart et al., 2024, arXiv:2411.03786).",
            "unigram",
            "unigram",
        ),
    )
}
# Role by name of the kind.
ROLES = {kind.name: kind.role for kind in KINDS.values() if kind.role is not None}
KIND_OF_ROLE = {role: name for name, role in ROLES.items()}
TABLES = tuple(role for role in KIND_OF_ROLE if role != "datastores")  # at most one of each


def a_kind(name: str) -> str:
    return "a token store" if name == "tokens" else f"a {name}"
