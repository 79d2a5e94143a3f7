"""Build a datastore: suffix arrays of a token store (REST, section 3.1).

With 16-bit ids, a shard takes 12 bytes per token (`kernels.suffix.sort`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, require_between
from ngramkit.basics.machine import free_memory
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.thread_counts import build_threads
from ngramkit.builders.tasks import (
    BASE_MEMORY,
    Executor,
    StageRunner,
    WrittenFile,
    open_executor,
    require_shared,
    write_file,
)
from ngramkit.builders.tokens import (
    PlannedStore,
    TokenSource,
    parameters_of_tokens,
    parse_memory,
    require_unreplaced,
    token_store,
)
from ngramkit.corpus.open import CorpusOptions
from ngramkit.formats.artifact import require, require_layout, token_dtype
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.manifest import Manifest, build_id
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, open_arrays
from ngramkit.formats.tokens import LAYOUT, TokenStore
from ngramkit.remote.publishing import build_at, require_out

BYTES_PER_TOKEN = 16  # planned, with the pages of the written file
MAX_SHARD_BITS = 27  # of the tokens of a shard; larger ones hardly draft faster
MIN_SHARD_TOKENS = 1 << 16
MIN_SPLIT_TOKENS = 1 << 20  # a smaller corpus is one shard


def build_datastore(
    source: TokenSource,
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    eos: bool = True,
    shard_tokens: int | None = None,
    memory: int | str | None = None,
    workers: int | None = None,
    executor: str | Executor = "local",
    ray_address: str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
    split: str | None = None,
    column: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    join_turns: bool = False,
    name: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Path | str | Sequence[Path | str] | None = None,
    dedup: str | None = None,
    max_document: int | str | None = None,
    skip_bad: bool = False,
    private: bool = False,
) -> Datastore:
    """Build a datastore (REST): suffix arrays that find any phrase of a corpus.

    `source` is a token store, its folder or URL; or a corpus or texts in memory, tokenised with
    `model`, `eos` and the options of `open_corpus` as in `tokenize`. `out` is a folder or a URL, by
    default under artifacts/. A finished build of the same plan is opened.

    `shard_tokens` is the size of a shard with separators; a document that ends soon after is not
    cut. Its default follows from `memory` (bytes, or "4G"; default: half of the free memory) and
    `workers` (default: the number of cores), up to 2**27; an existing build keeps its own.
    `executor` and `ray_address` are as in `tokenize`. `recipe` is the content of recipe.json.

    Raises InputError if the store has no tokens, UsageError if `out` holds something else.
    """
    text = CorpusOptions(
        split=split, column=column, revision=revision, language=language, join_turns=join_turns,
        name=name, sample=sample, seed=seed, limit=limit, licenses=licenses, exclude=exclude,
        dedup=dedup, max_document=max_document, skip_bad=skip_bad, private=private,
    )  # fmt: skip
    shard_tokens, workers = check_types(int, shard_tokens=shard_tokens, workers=workers)
    check_types(bool, eos=eos)
    check_types(Reporter, reporter=reporter)
    memory = parse_memory(memory)
    require_out(out, Datastore.kind, force=force)
    if shard_tokens is not None:
        require_between("shard_tokens", shard_tokens, 2)

    def is_same(planned: PlannedStore, there: Manifest) -> bool:
        size = there.counts.get("documents", 0) + there.counts.get("tokens", 0)
        plans = possible_plans(planned.build, size, shard_tokens, memory, workers)
        return there.build in map(build_id, plans)

    with (
        open_executor(executor, ray_address, workers, reporter) as runner,
        token_store(
            source,
            model,
            eos,
            runner,
            reporter,
            text,
            kind=Datastore.kind,
            out=out,
            is_same=is_same,
            force=force,
        ) as (store, place),
    ):
        counts, tokens = store.manifest.counts, store.manifest.build
        if not counts["tokens"]:
            raise InputError(
                f"cannot build a datastore: {store.path} has no tokens",
                "Check the corpus and its options.",
            )
        size = counts["documents"] + counts["tokens"]
        build = Build(
            kind=Datastore,
            plans=possible_plans(tokens, size, shard_tokens, memory, workers),
            write=partial(_write_suffix_arrays, store, runner, reporter),
            inputs=[store.path],
            recipe=recipe,
            private=store.manifest.private,
        )
        return build_at(build, place, reporter=reporter, force=force)


def possible_plans(
    tokens: str, size: int, shard_tokens: int | None, memory: int | None, workers: int | None
) -> list[dict[str, Any]]:
    """Return the plans of a datastore of `size` tokens with separators, the best first.

    A plan is everything that decides the bytes; `tokens` is the build of the token store. Without
    `shard_tokens` these follow from the memory, then those of builds with other memory.
    """
    if shard_tokens is not None:
        limits, least = [shard_tokens], 1
    else:
        most = (memory or free_memory() // 2) // (BYTES_PER_TOKEN * build_threads(workers))
        # A power of two, so that similar memory gives the same bytes.
        best = min(max(most, MIN_SHARD_TOKENS).bit_length() - 1, MAX_SHARD_BITS)
        limits = [1 << bits for bits in (best, *range(MAX_SHARD_BITS, 15, -1))]
        least = 2 if size > MIN_SPLIT_TOKENS else 1
    fills = [math.ceil(size / max(math.ceil(size / limit), least)) for limit in limits]
    return [
        {"kind": Datastore.kind, "parameters": {"shard_tokens": fill}, "tokens": tokens}
        for fill in dict.fromkeys(fills)
    ]


class ShardSpan(NamedTuple):
    """A part of the stream; `cut` if it ends inside a document."""

    begin: int
    end: int
    cut: bool


class StorePart(NamedTuple):
    """A file, and its first document's place in the stream."""

    file: str
    base: int


def shard_spans(ends: Array, fill: int) -> Iterator[ShardSpan]:
    """Yield spans of about `fill` tokens; only longer documents are cut."""
    begin = 0
    while begin < ends[-1]:
        index = int(np.searchsorted(ends, begin + fill))
        after = int(ends[min(index, len(ends) - 1)])
        before = int(ends[index - 1]) if index else 0
        if after <= begin + fill + fill // 8:
            piece = ShardSpan(begin, after, False)
        elif before > begin:
            piece = ShardSpan(begin, before, False)
        else:  # one token less, for the piece's separator
            piece = ShardSpan(begin, begin + fill - 1, True)
        yield piece
        begin = piece.end


def separate_documents_and_sort(
    store: str, parts: Sequence[StorePart], piece: ShardSpan, separator: int, folder: str, name: str
) -> WrittenFile:
    """Read the tokens of a span from its files, and write their suffix array."""
    from ngramkit.kernels.suffix.sort import sort_shard

    tokens = np.full(piece.end - piece.begin + piece.cut, separator, token_dtype(separator))
    for part in parts:
        file = require_shared(Path(store) / part.file)
        arrays = open_arrays(file)
        require_layout(file, arrays, LAYOUT)
        documents = arrays["documents"].astype(np.int64)
        ends = part.base + documents[1:] + np.arange(1, len(documents))  # in the stream
        first, last = np.searchsorted(ends, [piece.begin, piece.end], side="right").tolist()
        for i in range(first, min(last + 1, len(ends))):
            source_begin, source_end = int(documents[i]), int(documents[i + 1])
            shift = int(ends[i]) - 1 - source_end  # of the file to the stream
            begin = max(piece.begin, source_begin + shift)
            end = min(piece.end, source_end + shift)
            if begin < end:
                target = slice(begin - piece.begin, end - piece.begin)
                tokens[target] = arrays["tokens"][begin - shift : end - shift]
    require(tokens.max() <= separator, store, "it was changed while it was read")
    return write_file(folder, name, sort_shard(tokens, separator))


def _write_suffix_arrays(
    store: TokenStore, executor: Executor, reporter: Reporter, writer: ArtifactWriter
) -> None:
    """Sort the stream: every document of the store, followed by a separator."""
    stages, parameters = StageRunner(writer, executor, reporter), writer.plan["parameters"]
    path, separator = str(store.path.absolute()), store.tokenizer.separator
    lengths = [np.diff(shard.documents.astype(np.int64)) + 1 for shard in store.shards]
    bases = np.cumsum([0, *(each.sum() for each in lengths[:-1])]).tolist()
    files = list(map(StorePart, sorted(store.manifest.files), bases))
    ends, tasks = np.cumsum(np.concatenate(lengths)), []
    pieces = list(shard_spans(ends, parameters["shard_tokens"]))
    for index, piece in enumerate(pieces):
        parts = files[bisect_right(bases, piece.begin) - 1 : bisect_left(bases, piece.end)]
        size = piece.end - piece.begin
        tasks.append(
            stages.task(
                f"suffix array {index + 1} of {len(pieces)}",
                f"shard-{index:05d}",
                separate_documents_and_sort,
                (path, parts, piece, separator),
                memory=BASE_MEMORY + size * BYTES_PER_TOKEN,
                size=size,
            )
        )
    list(stages.run("suffix arrays", tasks))
    require_unreplaced(store, writer)
    manifest = store.manifest
    writer.commit(
        store.tokenizer,
        parameters={**parameters, **parameters_of_tokens(store)},
        corpus=manifest.corpus,
        counts=manifest.counts,
    )
