"""The table of drafters: what each looks up, the sources it needs, its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import UsageError, hint_for_unknown
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.basics.results import Result, Rows
from ngramkit.drafters.base import BaseDrafter, DraftTree, Evidence, TokenArray
from ngramkit.drafters.options import (
    AutomatonOptions,
    BigramOptions,
    BlendOptions,
    CachebackOptions,
    ContextOptions,
    DrafterOption,
    NgrammysOptions,
    Options,
    PromptLookupOptions,
    RecyclingOptions,
    RestOptions,
    SsdOptions,
)


@dataclass(frozen=True)
class Entry:
    home: str  # module:class
    looks_up: str
    sources: tuple[str, ...] = ()
    required: bool = True  # False: without its sources it drafts from the context
    own_text: bool = False  # it drafts from the request's own text
    references: bool = False  # it can draft from references, see drafters.references
    needs_evidence: bool = False  # without a model's Evidence it drafts little or nothing
    options: type[Options] = Options

    def uses(self, role: str) -> bool:
        """Return whether it drafts from a role of artifacts, or from `history`."""
        return ("past" if role == "history" else role) in self.sources

    @property
    def artifacts(self) -> tuple[str, ...]:
        return tuple(source for source in self.sources if source in KIND_OF_ROLE)


DEFAULT_DRAFTER = "blend"
EVERYTHING = ("datastores", "frozen_table", "bigram", "past", "tokenizer")

DRAFTERS = {
    "none": Entry("ngramkit.drafters.registry:NoDraft", "Nothing: one token a pass."),
    "blend": Entry(
        "ngramkit.drafters.blend:Blend",
        "All sources, mixed to one calibrated probability: artifacts, the text so far, past "
        "requests, the model's top-k.",
        EVERYTHING,
        required=False,
        references=True,
        own_text=True,
        options=BlendOptions,
    ),
    "rest": Entry(
        "ngramkit.drafters.rest:Rest",
        "The longest suffix of the context in a corpus, and what followed it, most frequent first "
        "(REST, arXiv:2311.08252).",
        ("datastores",),
        options=RestOptions,
    ),
    "cacheback": Entry(
        "ngramkit.drafters.cacheback:Cacheback",
        "The latest continuations of the last tokens in this text, then the most frequent in a "
        "corpus (Cacheback, arXiv:2511.21699).",
        ("frozen_table",),
        required=False,
        own_text=True,
        options=CachebackOptions,
    ),
    "ngrammys": Entry(
        "ngramkit.drafters.ngrammys:Ngrammys",
        "Earlier continuations of the last tokens in this text, then the model's own bigrams "
        "(N-Grammys, arXiv:2411.03786).",
        ("bigram",),
        own_text=True,
        options=NgrammysOptions,
    ),
    "bigram": Entry(
        "ngramkit.drafters.ngrammys:Bigram",
        "The model's most likely tokens after the last token (part of N-Grammys).",
        ("bigram",),
        options=BigramOptions,
    ),
    "unigram": Entry(
        "ngramkit.drafters.ngrammys:Unigram",
        "The tokens that the model's embeddings make likely anywhere (part of N-Grammys).",
        ("unigram",),
    ),
    "context": Entry(
        "ngramkit.drafters.context:Context",
        "Earlier continuations of the last tokens in this text, by count (part of N-Grammys).",
        references=True,
        own_text=True,
        options=ContextOptions,
    ),
    "prompt-lookup": Entry(
        "ngramkit.drafters.context:PromptLookup",
        "The earliest match of the last tokens in this text, as one chain, as in transformers.",
        references=True,
        own_text=True,
        options=PromptLookupOptions,
    ),
    "recycling": Entry(
        "ngramkit.drafters.recycling:Recycling",
        "The model's top-k after each token when it was last verified, as a fixed tree "
        "(Token Recycling, arXiv:2408.08696).",
        needs_evidence=True,
        options=RecyclingOptions,
    ),
    "automaton": Entry(
        "ngramkit.drafters.automaton:Automaton",
        "The continuation of the longest match in this text or a corpus, as one chain; recycling "
        "if there is no match (SAM-Decoding, arXiv:2411.10666).",
        ("datastores",),
        required=False,
        needs_evidence=True,
        own_text=True,
        options=AutomatonOptions,
    ),
    "ssd": Entry(
        "ngramkit.drafters.ssd:Ssd",
        "Continuations in past requests of the model, trusted by how often they were accepted.",
        ("past",),
        references=True,
        options=SsdOptions,
    ),
}


def drafter_entry(name: str) -> Entry:
    check_types(str, name=name)
    if name in DRAFTERS:
        return DRAFTERS[name]
    raise UsageError(f"unknown drafter {name!r}", hint_for_unknown(name, DRAFTERS))


@dataclass(frozen=True)
class AboutDrafter(Result):
    """A drafter: what it looks up, its sources and its options."""

    name: str
    looks_up: str
    sources: tuple[str, ...]  # parameters of `load_drafter`
    options: tuple[DrafterOption, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `ngramkit drafters --json` prints them."""
        described = [
            {
                "name": option.name,
                "type": option.type.__name__,
                "default": option.default,
                "bounds": option.bounds,
                "help": option.help,
            }
            for option in self.options
        ]
        return {
            "name": self.name,
            "looks_up": self.looks_up,
            "artifacts": [role for role in self.sources if role in KIND_OF_ROLE],
            "options": described,
        }


def drafters(name: str | None = None) -> Rows[AboutDrafter]:
    """Return the drafters, or one by name: what they look up, their sources and options.

    Raises UsageError for an unknown name.
    """
    chosen = DRAFTERS if name is None else {name: drafter_entry(name)}
    return Rows(
        AboutDrafter(each, entry.looks_up, entry.sources, tuple(entry.options.listed()))
        for each, entry in chosen.items()
    )


class NoDraft(BaseDrafter):
    def start(self, prompt: TokenArray) -> None:
        """Do nothing."""

    def draft(self, budget: int) -> DraftTree:
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        """Do nothing."""
