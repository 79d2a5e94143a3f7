"""Artifacts that a command makes by itself, where a drafter needs one and there is none.

For the embedded model from the standard library; for any other from a token store that is at hand,
or read off the model where that takes seconds. Else an error names the command to run: data that
nobody chose would speak for the drafter. What is made here lies under artifacts/automatic/, see
ngramkit.formats.places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.places import ARTIFACTS, AUTOMATIC, artifacts_in, corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.models import DEFAULT, resolve_model
from ngramkit.progress import Reporter

CORPUS = "python-stdlib"  # what the embedded model was made for
BUILDERS = {"datastore": "build-datastore", "frozen-table": "build-frozen"}
# Bytes of weights times tokens of the vocabulary: a bigram table is one pass per token.
CHEAP = {"model-bigram": 2e11, "model-unigram": 2e14}

LoadModel = Callable[[], Any]  # gives a decode.load.LanguageModel


def provide(
    kind: str, tokenizer: TokenizerRecord, reporter: Reporter, load_model: LoadModel | None = None
) -> Artifact:
    """A new artifact of `kind`, or one that was made here before; says what it is made from.

    Raises ArtifactError, with the command to run, where it would take a corpus that nobody chose,
    a download or long work.
    """
    missing = f"no {kind} for {tokenizer.id} under {ARTIFACTS}/"
    if kind not in BUILDERS:
        return _read_off(kind, tokenizer, missing, reporter, load_model)
    store = token_store_of(tokenizer)
    if store is not None:
        reporter.note(f"{missing}: building one from {store.path}")
    elif tokenizer.id == DEFAULT:
        reporter.note(f"{missing}: building one from {CORPUS}")
        store = _stdlib_store(reporter)
    else:
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    place = default_place(corpus, tokenizer.id, kind, folder=AUTOMATIC)
    return _built(kind, store, place, reporter)


def command(kind: str, model: str) -> str:
    """What builds an artifact of `kind`."""
    if kind in BUILDERS:
        return f"ngramkit {BUILDERS[kind]} --corpus CORPUS --model {model}"
    return f"ngramkit {kind} {model}"


def token_store_of(tokenizer: TokenizerRecord) -> TokenStore | None:
    """The largest under artifacts/ that has the tokenizer's ids."""
    fitting = [
        (each.manifest.counts.get("tokens", 0), each.path)
        for each in artifacts_in(ARTIFACTS)
        if each.manifest is not None
        and each.manifest.kind == TokenStore.kind
        and each.manifest.tokenizer.agrees(tokenizer)
    ]
    return TokenStore.open(max(fitting)[1]) if fitting else None


def _stdlib_store(reporter: Reporter) -> TokenStore:
    from ngramkit.builders.tokens import build_tokens
    from ngramkit.corpus.open import open_corpus

    place = default_place(CORPUS, DEFAULT, "tokens", folder=AUTOMATIC)
    return build_tokens(open_corpus(CORPUS), DEFAULT, place, reporter=reporter, force=True)


def _built(kind: str, store: TokenStore, place: Path, reporter: Reporter) -> Artifact:
    """What is there already, of the same store, is kept."""
    if kind == "datastore":
        from ngramkit.builders.datastore import build_datastore

        return build_datastore(store, place, reporter=reporter, force=True)
    from ngramkit.builders.frozen import build_frozen

    return build_frozen(store, place, reporter=reporter, force=True)


def _read_off(
    kind: str,
    tokenizer: TokenizerRecord,
    missing: str,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> Artifact:
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.builders.model_unigram import build_model_unigram

    source = Path(resolve_model(tokenizer.id))
    weights = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    if load_model is None or not 0 < weights * tokenizer.vocabulary <= CHEAP[kind]:
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    reporter.note(f"{missing}: reading one off the model")
    model = load_model()
    place = default_place(tokenizer.id, kind, folder=AUTOMATIC)
    build: Any = build_model_bigram if kind == "model-bigram" else build_model_unigram
    table, _ = build(model.model, model.tokenizer, place, reporter=reporter, force=True)
    return table  # type: ignore[no-any-return]
