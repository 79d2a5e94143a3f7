"""The corpora that have names. Says what each is and where; reads nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedCorpus:
    """`hub` is a dataset's id on the Hub; None: embedded."""

    name: str
    summary: str
    hub: str | None = None
    column: str | None = None
    split: str = "train"
    languages: str | None = None  # the data_dir of a language, with {language} in it
    language: str | None = None  # the default one
    gated: bool = False
    turns: bool = False


STDLIB = "python-stdlib"

NAMED = {
    corpus.name: corpus
    for corpus in (
        NamedCorpus(
            STDLIB,
            "the running interpreter's standard library; splits train (nine tenths of the files, "
            "the default), held-out, all",
        ),
        NamedCorpus(
            "openwebtext",
            "web pages that Reddit linked to, 8 million documents",
            hub="Skylion007/openwebtext",
            column="text",
        ),
        NamedCorpus(
            "the-stack",
            "permissively licensed source files; language chooses (default python)",
            hub="bigcode/the-stack-dedup",
            column="content",
            languages="data/{language}",
            language="python",
            gated=True,
        ),
        NamedCorpus(
            "ultrachat",
            "1.5 million generated conversations; each turn is a document unless join_turns",
            hub="stingning/ultrachat",
            column="data",
            turns=True,
        ),
        NamedCorpus(
            "ultrachat-200k",
            "UltraChat, filtered to 200,000 conversations; splits train_sft, test_sft, ...",
            hub="HuggingFaceH4/ultrachat_200k",
            column="messages",
            split="train_sft",
            turns=True,
        ),
    )
}
