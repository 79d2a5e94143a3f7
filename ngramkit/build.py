"""What builders read: text by name, several corpora as one, or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ngramkit.builders.executors import Executor, executing
from ngramkit.builders.model_passes import require_bigram_options, require_unigram_options
from ngramkit.builders.tokens import build_tokens
from ngramkit.corpus.open import AnyCorpus, Part, is_artifact, open_corpus
from ngramkit.errors import UsageError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.outputs import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.machine import parse_size
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.remote.fetch import fetch
from ngramkit.remote.publishing import written
from ngramkit.results import Result

if TYPE_CHECKING:
    from ngramkit.builders.model_passes import Work
    from ngramkit.decode.load import LanguageModel
    from ngramkit.formats.datastore import Datastore
    from ngramkit.formats.frozen_table import FrozenTable
    from ngramkit.formats.model_bigram import ModelBigram
    from ngramkit.formats.model_unigram import ModelUnigram


# A corpus, opened or by name, or several with weights: ["a", ("b", 0.3)].
Text = AnyCorpus | str | Path | Sequence[Part]
# Tokens or text: a token store, its folder or URL, else text.
Source = TokenStore | Text


def opened(
    corpus: Text,
    reporter: Reporter = SILENT,
    *,
    max_document: int | str | None = None,
    **options: Any,
) -> AnyCorpus:
    """A corpus as it is, the one of that name, or the mixture of several; a text has at most
    `max_document` bytes. Raises UsageError for options of what is open already."""
    if isinstance(corpus, str | Path) or not isinstance(corpus, AnyCorpus):
        corpus = open_corpus(corpus, **options, reporter=reporter)
    elif options:
        name = next(iter(options))
        raise UsageError(f"{name} comes too late for an opened corpus", option=name)
    most = size_of(max_document)
    return corpus if most is None else corpus.bounded(most)


def size_of(memory: int | str | None) -> int | None:
    """Bytes. Raises UsageError where it is no size."""
    return parse_size(memory) if isinstance(memory, str) else memory


# Corpus to tokens to artifact, and a model's weights to its tables.

Table = TypeVar("Table", bound=Artifact)


@dataclass(frozen=True)
class BuiltTable(Result, Generic[Table]):
    """A table read off a model; `work` says what it took, None where it was there already."""

    table: Table
    work: Work | None


def tokenize(
    corpus: Text,
    model: str | None = None,
    out: str | Path | None = None,
    *,
    eos: bool = True,
    workers: int | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
    **options: Any,
) -> TokenStore:
    """Tokenises a corpus once: the input of every builder.

    `corpus` is an opened one, or what `open_corpus` takes, with its `options`; a list of corpora
    and weights is a mixture, `["a", ("b", 0.3)]`. `model` is a short name, a Hub id (or
    ID@REVISION) or a folder, by default the chosen one. `eos` ends every document with the
    tokenizer's EOS; `workers` bounds the threads. The store is written to `out`, a folder or a URL
    (`ngramkit.remote.publishing`), by default under artifacts/; one of the same plan is opened as
    it is. `executor` is "local", or "ray" for the nodes of the cluster at `ray_address`, see
    `ngramkit.builders.executors`; the bytes are the same.
    """
    with executing(executor, ray_address, workers, reporter) as where:
        text, name = opened(corpus, reporter, **options), chosen_model(model).name
        build = partial(build_tokens, text, name, eos=eos, workers=workers, executor=where)
        return written(build, out, reporter=reporter, force=force)


def build_datastore(
    source: Source,
    out: str | Path | None = None,
    *,
    model: str | None = None,
    eos: bool = True,
    shard_tokens: int | None = None,
    memory: int | str | None = None,
    workers: int | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
    **options: Any,
) -> Datastore:
    """A datastore (REST): suffix arrays that find any phrase of a corpus at once.

    `source` is a token store, its folder or URL; or a corpus, which is tokenised with `model` as
    `tokenize` does. `shard_tokens`, `memory` (bytes, or "4G") and `workers` as in
    `ngramkit.builders.datastore`, which says what it raises; `executor` and `ray_address` as in
    `tokenize`.
    """
    from ngramkit.builders import datastore

    memory = size_of(memory)
    with executing(executor, ray_address, workers, reporter) as where:
        store = tokens_of(source, model, eos, where, reporter, **options)
        build = partial(
            datastore.build_datastore,
            store,
            shard_tokens=shard_tokens,
            memory=memory,
            workers=workers,
            executor=where,
        )
        place = out or default_out(store, "datastore")
        return written(build, place, reporter=reporter, force=force)


def build_frozen(
    source: Source,
    out: str | Path | None = None,
    *,
    model: str | None = None,
    eos: bool = True,
    leader_len: int = 1,
    leaders: int = 1 << 20,
    follower_len: int = 3,
    followers: int = 128,
    memory: int | str | None = None,
    workers: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
    **options: Any,
) -> FrozenTable:
    """A frozen table (Cacheback): frequent n-grams, each with what follows it most often.

    `source`, `model`, `eos` and `options` as in `build_datastore`; among the options are `executor`
    and `ray_address`, as in `tokenize`. The others, and what is raised, as in
    `ngramkit.builders.frozen`. They are checked before any text is read.
    """
    from ngramkit.builders import frozen

    memory = size_of(memory)
    frozen.validate(leader_len, leaders, follower_len, followers, memory=memory)
    run = {name: options.pop(name) for name in ("executor", "ray_address") if name in options}
    with executing(**run, workers=workers, reporter=reporter) as where:
        store = tokens_of(source, model, eos, where, reporter, **options)
        build = partial(
            frozen.build_frozen,
            store,
            leader_len=leader_len,
            leaders=leaders,
            follower_len=follower_len,
            followers=followers,
            memory=memory,
            workers=workers,
            executor=where,
        )
        place = out or default_out(store, "frozen")
        return written(build, place, reporter=reporter, force=force)


def model_bigram(
    model: str | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = 100,
    width: int = 4,
    prefix: str = "none",
    extend: str = "bigram",
    reporter: Reporter = SILENT,
    force: bool = False,
    **loading: Any,
) -> BuiltTable[ModelBigram]:
    """A model's bigram table (N-Grammys): what it holds likely after every single token.

    `model` is a name, or one that `load_model` gave; `loading` is what `load_model` takes. The
    others, and what is raised, as in `ngramkit.builders.model_bigram`.
    """
    require_bigram_options(k, width, prefix, extend)
    loaded = _loaded(model, **loading)
    from ngramkit.builders.model_bigram import build_model_bigram

    taken: list[Work | None] = [None]

    def build(path: Path, **how: Any) -> ModelBigram:
        options = dict(k=k, width=width, prefix=prefix, extend=extend, **how)
        table, taken[0] = build_model_bigram(loaded.model, loaded.tokenizer, path, **options)
        return table

    place = out or default_place(loaded.name, "bigram")
    return BuiltTable(written(build, place, reporter=reporter, force=force), taken[0])


def model_unigram(
    model: str | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = 100,
    rule: str = "distance",
    reporter: Reporter = SILENT,
    force: bool = False,
    **loading: Any,
) -> BuiltTable[ModelUnigram]:
    """A model's unigram table (N-Grammys): tokens that its embeddings make likely anywhere.

    As `model_bigram`; `k` and `rule` as in `ngramkit.builders.model_unigram`.
    """
    require_unigram_options(k, rule)
    loaded = _loaded(model, **loading)
    from ngramkit.builders.model_unigram import build_model_unigram

    taken: list[Work | None] = [None]

    def build(path: Path, **how: Any) -> ModelUnigram:
        options = dict(k=k, rule=rule, **how)
        table, taken[0] = build_model_unigram(loaded.model, loaded.tokenizer, path, **options)
        return table

    place = out or default_place(loaded.name, "unigram")
    return BuiltTable(written(build, place, reporter=reporter, force=force), taken[0])


def _loaded(model: str | LanguageModel | None, **loading: Any) -> LanguageModel:
    from ngramkit.decode.load import LanguageModel, load_model

    if isinstance(model, LanguageModel):
        return model
    return load_model(chosen_model(model).name, **loading)


def tokens_of(
    source: Source,
    model: str | None,
    eos: bool,
    executor: Executor,
    reporter: Reporter,
    **options: Any,
) -> TokenStore:
    """The token store that `source` is, or becomes."""
    if isinstance(source, TokenStore):
        return source
    if isinstance(source, str | Path) and is_artifact(source):
        return TokenStore.open(fetch(source, reporter=reporter).path)
    corpus, name = opened(source, reporter, **options), chosen_model(model).name
    return build_tokens(corpus, name, eos=eos, executor=executor, reporter=reporter)


def default_out(store: TokenStore, kind: str) -> Path:
    """artifacts/CORPUS-MODEL-KIND."""
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    return default_place(corpus, store.tokenizer.id, kind)
