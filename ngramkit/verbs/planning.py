"""What a recipe will take: stages, sizes and hours, computed from measured rates per core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ngramkit.builders import rates
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.sifting import Sifted
from ngramkit.errors import NgramkitError, UsageError, require_between
from ngramkit.formats.artifact import token_dtype
from ngramkit.machine import cores as all_cores
from ngramkit.progress import SILENT, Reporter
from ngramkit.recipe_files import Recipe, read_recipe
from ngramkit.results import Result, Rows

if TYPE_CHECKING:
    from ngramkit.corpus.document import Corpus
    from ngramkit.corpus.open import AnyCorpus

MOST_CORES = 1 << 20
PACKED = {".gz": 4.0, ".zst": 4.0}  # text for each byte of a compressed file, as a guess


@dataclass(frozen=True)
class Stage(Result):
    """One stage of a build: what it takes, and what it leaves on the disk."""

    name: str
    tokens_per_second: float  # of one core
    cores: int  # that it can use
    hours: float
    core_hours: float
    bytes: int  # written


@dataclass(frozen=True)
class Plan(Result):
    """Of one recipe on so many cores. Stages follow each other; `bottleneck` takes longest."""

    recipe: str
    kind: str
    tokens: int
    tokens_from: str  # how they were counted or guessed
    cores: int
    machine: str  # where the rates were measured
    stages: Rows[Stage]
    hours: float
    core_hours: float
    bottleneck: str
    bytes: int  # of the artifact, at most
    cost: float | None  # core_hours at `price`

    @property
    def longest(self) -> Stage:
        """The bottleneck."""
        return _longest(self.stages)


def plan(
    recipe: str | Path | Recipe,
    cores: int | None = None,
    *,
    tokens: int | None = None,
    price: float | None = None,
    reporter: Reporter = SILENT,
) -> Plan:
    """Stages, sizes and hours of `recipe` on `cores` (default: this machine's). Builds nothing.

    `tokens` says how many the corpus has; by default as many as its local files have text for.
    `price` is that of one core for an hour. Rates are those of ngramkit.builders.rates. Raises
    UsageError where `tokens` is not given and cannot be told, and for kinds without a corpus. Notes
    where cores have nothing to sort.
    """
    wanted = recipe if isinstance(recipe, Recipe) else read_recipe(str(recipe))
    count = all_cores() if cores is None else cores
    require_between("cores", count, 1, MOST_CORES)
    if price is not None:
        require_between("price", price, 0)
    if not wanted.corpus or wanted.kind not in ("datastore", "frozen-table"):
        raise UsageError(
            f"a {wanted.kind} is made from a model, not from tokens",
            "plan a datastore or a frozen table",
        )
    if wanted.kind == "datastore":
        require_between("shard_tokens", wanted.parameters["shard_tokens"], 2)
    if tokens is None:
        tokens, origin = _tokens_of(wanted, reporter)
    else:
        require_between("tokens", tokens, 1, 1 << 60)
        origin = "as given"
    fast, wide = _of_tokenizer(wanted, reporter)
    stages = Rows([*stages_of(wanted, tokens, count, fast=fast, wide=wide)])
    _say_idle(stages, count, reporter)
    core_hours = sum(stage.core_hours for stage in stages)
    return Plan(
        recipe=wanted.name,
        kind=wanted.kind,
        tokens=tokens,
        tokens_from=origin,
        cores=count,
        machine=rates.MACHINE,
        stages=stages,
        hours=sum(stage.hours for stage in stages),
        core_hours=core_hours,
        bottleneck=_longest(stages).name,
        bytes=stages[-1].bytes,
        cost=None if price is None else core_hours * price,
    )


def stages_of(
    recipe: Recipe, tokens: int, cores: int, *, fast: bool, wide: bool = False
) -> Iterator[Stage]:
    """In order; the last one writes the artifact. `fast`: gigatoken encodes. `wide`: ids take 4
    bytes, not 2."""
    width = 4 if wide else 2
    encode = rates.TOKENIZE_FAST if fast else rates.TOKENIZE
    yield _stage(rates.READ, tokens, cores)
    yield _stage(encode, tokens, cores, written=tokens * width)
    writers = 1
    if recipe.kind == "datastore":
        size = tokens * (width + 4)
        writers = min(cores, -(-tokens // recipe.parameters["shard_tokens"]))
        yield _stage(rates.SORT, tokens, writers)
    else:
        parameters = recipe.parameters
        followers = min(parameters["leaders"] * parameters["followers"], tokens)
        row = width * parameters["follower_len"] + 4
        head = width * parameters["leader_len"] + 12
        size = followers * row + min(parameters["leaders"], tokens) * head
        yield _stage(rates.COUNT, tokens, cores)
    yield _stage(rates.WRITE, size // (width + 4), writers, written=size)
    if recipe.prune is not None and recipe.prune < size:
        kept = recipe.prune // (width + 4)
        if recipe.kind == "datastore":
            yield _stage(rates.CHOOSE, tokens, 1)
            yield _stage(rates.SORT, kept, 1)
        yield _stage(rates.WRITE, kept, 1, written=recipe.prune)


def _longest(stages: Iterable[Stage]) -> Stage:
    return max(stages, key=lambda stage: stage.hours)


def _of_tokenizer(recipe: Recipe, reporter: Reporter) -> tuple[bool, bool]:
    """Whether gigatoken encodes, and whether ids take 4 bytes; of a tokenizer that is not to be had
    now, what takes longer."""
    from ngramkit.corpus.encoders import is_fast
    from ngramkit.corpus.tokenizer import load_tokenizer

    try:
        tokenizer = load_tokenizer(recipe.model, recipe.revision)
    except NgramkitError:
        reporter.note(
            f"the tokenizer of {recipe.model} is not here: as if gigatoken did not take it, and "
            "ids had 4 bytes"
        )
        return False, True
    return is_fast(tokenizer.backend), token_dtype(tokenizer.record.vocabulary).itemsize == 4


def _say_idle(stages: Iterable[Stage], cores: int, reporter: Reporter) -> None:
    for stage in stages:
        if stage.name == rates.SORT and stage.cores < cores:
            reporter.note(
                f"{stage.cores:,} of {cores:,} cores can sort: a smaller shard_tokens in the "
                "recipe's parameters makes more shards"
            )
            return


def _stage(name: str, tokens: int, cores: int, written: int = 0) -> Stage:
    """`cores` that it can use."""
    core_hours = tokens / rates.RATES[name] / 3600
    return Stage(name, rates.RATES[name], cores, core_hours / cores, core_hours, written)


def _tokens_of(recipe: Recipe, reporter: Reporter) -> tuple[int, str]:
    """By the text of the corpus's local files, samples and weights taken into account."""
    corpus = recipe.open_corpus(reporter)
    text = sum(_text(each) for each in _corpora(corpus))
    if not text:
        raise UsageError(
            f"how many tokens {corpus.id} has is not known here", "say it", option="tokens"
        )
    said = "guessed from the files' text"
    if corpus.selection.limit is not None or isinstance(corpus, Sifted):
        said += ", as if nothing were left out by limit, dedup or exclude"
    return max(int(text / rates.TEXT_BYTES), 1), said


def _corpora(corpus: AnyCorpus) -> tuple[Corpus, ...]:
    if isinstance(corpus, Sifted):
        return _corpora(corpus.corpus)
    return corpus.corpora if isinstance(corpus, Mixture) else (corpus,)


def _text(corpus: Corpus) -> float:
    """Bytes of text that are kept, as far as local files tell without being read."""
    paths = getattr(corpus.source, "paths", ())
    share = corpus.selection.sample * corpus.selection.weight
    return share * sum(_unpacked(path, getattr(corpus.source, "column", None)) for path in paths)


def _unpacked(path: Path, column: str | None) -> float:
    if path.suffix.lower() == ".parquet":
        return _parquet_text(path, column)
    return path.stat().st_size * PACKED.get(path.suffix.lower(), 1.0)


def _parquet_text(path: Path, column: str | None) -> float:
    """By the footer: the size of the column, or of all of them, before compression."""
    import pyarrow.parquet as parquet

    found = 0
    metadata = parquet.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if column is None or chunk.path_in_schema.split(".")[0] == column:
                found += chunk.total_uncompressed_size
    return float(found)
