"""Artifacts that the drafters' tests make of token lists."""

from __future__ import annotations

import numpy as np
import pytest
from blend_sources import EOS, VOCABULARY

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord


@pytest.fixture
def datastore(tmp_path_factory, token_store):
    def build(documents, vocabulary=VOCABULARY, **options):
        store = token_store(documents, vocabulary, eos=EOS)
        return build_datastore(store, tmp_path_factory.mktemp("datastore") / "d", **options)

    return build


@pytest.fixture
def frozen(tmp_path_factory, token_store):
    def build(documents, leader_len, follower_len):
        store = token_store(documents, VOCABULARY, eos=EOS)
        path = tmp_path_factory.mktemp("frozen") / "f"
        return build_frozen(store, path, leader_len=leader_len, follower_len=follower_len)

    return build


@pytest.fixture
def bigram(tmp_path_factory):
    """(ModelBigram, {token: {next: p}}) of random bigrams."""

    def build(seed):
        random = np.random.default_rng(seed)
        p = random.dirichlet(np.full(VOCABULARY, 0.5), VOCABULARY)
        order = np.argsort(-p, axis=1, kind="stable")[:, :4]
        log_p = np.log(np.take_along_axis(p, order, 1)).astype(np.float16)
        record = TokenizerRecord(f"none-{VOCABULARY}", VOCABULARY, f"f{VOCABULARY}", EOS)
        parameters = {"k": 4, "width": 1, "extend": "bigram"}
        path = tmp_path_factory.mktemp("bigram") / "b"
        with ArtifactWriter(path, "model-bigram", parameters) as writer:
            tokens = order.astype(np.uint16)
            arrays = {"next_tokens": tokens, "log_probs": log_p, "extended": tokens[:, :, None]}
            writer.write("table.safetensors", arrays)
            counts = {"rows": VOCABULARY, "drafts": 4 * VOCABULARY}
            writer.commit(record, parameters=parameters, corpus={}, counts=counts)
        rounded = np.exp(log_p.astype(np.float64))
        pairs = zip(order.tolist(), rounded.tolist(), strict=True)
        known = {x: dict(zip(*row, strict=True)) for x, row in enumerate(pairs)}
        return ModelBigram.open(path), known

    return build
