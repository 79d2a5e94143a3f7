"""Documents of random ids, the same every time, n-grams and a model's tables."""

from __future__ import annotations

import numpy as np

from ngramkit.builders.merge import sum_rows
from ngramkit.exchange.ngrams import Ngrams
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.resumable_writer import ArtifactWriter


def random_documents(*, vocabulary, documents, longest, seed=0):
    draw = np.random.default_rng(seed)
    return [
        draw.integers(0, vocabulary, draw.integers(0, longest + 1)).tolist()
        for _ in range(documents)
    ]


def ngrams(*rows):
    """Make Ngrams of (ids..., count) rows."""
    array = np.array(rows, np.int64)
    return Ngrams(*sum_rows(array[:, :-1].astype(np.int32), array[:, -1]))


def bigram(path, record, even=(0.4, 0.35, 0.0001), odd=(0.6, 0.3, 0.1)):
    """Build a bigram table: after x come x + 1, 0 and 1, with these probabilities."""
    vocabulary = record.vocabulary
    table = np.array([[(x + 1) % vocabulary, *sorted({0, 1, 2} - {(x + 1) % vocabulary})[:2]]
                      for x in range(vocabulary)], np.uint16)  # fmt: skip
    chances = np.where(np.arange(vocabulary)[:, None] % 2, [odd], [even])
    extended = np.stack([table, table[table, 0], table[table[table, 0], 0]], axis=-1)
    arrays = {
        "next_tokens": table, "log_probs": np.log(chances).astype(np.float16), "extended": extended
    }  # fmt: skip
    with ArtifactWriter(path, ModelBigram.kind, {}) as writer:
        writer.write("table.safetensors", arrays)
        parameters = {"k": 3, "width": 3, "extend": "bigram", "prefix": "none"}
        writer.commit(
            record, parameters=parameters, corpus={},
            counts={"rows": vocabulary, "drafts": 3 * vocabulary},
        )  # fmt: skip
    return ModelBigram.open(path)


def unigram(path, record):
    """Build a unigram table of tokens 3 and 4."""
    arrays = {"tokens": np.array([3, 4], np.uint16), "scores": np.array([-1, -2], np.float32)}
    with ArtifactWriter(path, ModelUnigram.kind, {}) as writer:
        writer.write("table.safetensors", arrays)
        writer.commit(record, parameters={"k": 2}, corpus={}, counts={"rows": 2})
    return ModelUnigram.open(path)
