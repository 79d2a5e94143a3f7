"""Uses of a stranger's file that is no artifact: a model's, a corpus's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf_files
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.gguf_weights import _require_sane
from ngramkit.gguf.header import read_header
from ngramkit.gguf.tokenizer import write_tokenizer

FILE_KINDS = ("gguf", "tokenizer.json", "parquet", "arrow")
TEXTS = ("def f(self): return 1", "", "größer  \n\t 漢字 12345 <s> <unk>", "a" * 300)
WORDS = ("self", "return", "def", "name", "value", "(", ")", ":", " ", "größer", "1")
LONGEST = 1 << 20  # bytes of a document, where a corpus is read
TURNS = [{"role": "user", "content": "hello"}]


def build_files(folder: Path) -> dict[str, Path]:
    """Write one folder per kind, with a few whole files of it."""
    made = {"gguf": _ggufs, "tokenizer.json": _tokenizers, "parquet": _parquets, "arrow": _arrows}
    for kind, build in made.items():
        (folder / kind).mkdir()
        build(folder / kind)
    return {kind: folder / kind for kind in FILE_KINDS}


def use_file(path: Path, scratch: Path) -> None:
    """Read all of it, as commands do. Raises NgramkitError where it is refused."""
    if path.suffix == ".gguf":
        folder = _emptied(scratch)
        header = read_header(path)
        write_tokenizer(header, folder)
        _speak(load_tokenizer(str(folder)))
        _require_sane(header)
    elif path.suffix == ".json":
        folder = _emptied(scratch)
        shutil.copyfile(path, folder / "tokenizer.json")
        _speak(load_tokenizer(str(folder)))
    else:
        for options in ({}, {"column": "turns"}, {"column": "text", "join_turns": True}):
            corpus: Any = open_corpus(path, **options, max_document=LONGEST)
            corpus.source.count()
            for piece in corpus.pieces():
                for document in piece.documents():
                    document.text.encode()


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _speak(tokenizer: TextTokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        tokenizer.encode_prompt(text)
        tokenizer.decode(ids)
    tokenizer.decode([0, 1, 5, tokenizer.record.vocabulary - 1, tokenizer.record.vocabulary + 9])
    assert tokenizer.adds_bos in (True, False)


def _ggufs(folder: Path) -> None:
    """Write one of 300 tokens, and one for transformers' conversion."""
    import numpy as np

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["d e", "de f", "s e", "l f", "se lf", "r e", "t u", "Ġ r"]
    tokens = ["<|end|>", *alphabet, *(merge.replace(" ", "") for merge in merges)]
    changed = {
        "llama.block_count": 1,
        "llama.embedding_length": 8,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3, *[1] * (len(tokens) - 1)],
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    tensors = {
        "token_embd.weight": np.zeros((len(tokens), 8), np.float32),
        "output_norm.weight": np.zeros(8, np.float32),
    }
    for name, pre in {"a": "gpt-2", "b": "llama-bpe", "c": "qwen2"}.items():
        metadata = {**gguf_files.demo_metadata(), **changed, "tokenizer.ggml.pre": pre}
        gguf_files.write_gguf(folder / f"{name}.gguf", metadata, tensors)


def _tokenizers(folder: Path) -> None:
    """Write every kind of model, with every part that a file may have."""
    special = [AddedToken(each, special=True) for each in ("<unk>", "<s>", "</s>")]
    characters = sorted({*"".join(TEXTS), *"".join(WORDS)})
    vocabulary = dict.fromkeys(["<unk>", "<s>", "</s>", *characters, *WORDS, "se", "lf", "##e"])
    ids = {text: i for i, text in enumerate(vocabulary)}
    alphabet = {text: i for i, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    shapes = {
        "byte-level": Tokenizer(models.BPE(alphabet | {"se": 256, "lf": 257, "self": 258},
                                           [("s", "e"), ("l", "f"), ("se", "lf")])),
        "pieces": Tokenizer(models.BPE(ids, [("s", "e"), ("l", "f")], unk_token="<unk>",
                                       fuse_unk=True, byte_fallback=True)),
        "unigram": Tokenizer(models.Unigram([(t, -float(i)) for t, i in ids.items()], 0, False)),
        "words": Tokenizer(models.WordPiece(ids, unk_token="<unk>")),
        "whole": Tokenizer(models.WordLevel(ids, unk_token="<unk>")),
    }  # fmt: skip
    parts: dict[str, tuple[Any, Any, Any, Any]] = {
        "byte-level": (
            normalizers.NFC(),
            pre_tokenizers.Sequence([
                pre_tokenizers.Split(_regex(r"\p{N}{1,3}|\s+(?!\S)"), "isolated"),
                pre_tokenizers.ByteLevel(False)]),
            processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()),
        "pieces": (
            normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
            None, processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)]),
            decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                               decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
        "unigram": (
            normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
            pre_tokenizers.Metaspace(), processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
            decoders.Metaspace()),
        "words": (
            normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(),
            processors.BertProcessing(("</s>", 2), ("<s>", 1)), decoders.WordPiece()),
        "whole": (
            normalizers.Strip(), pre_tokenizers.Sequence([
                pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True),
                pre_tokenizers.Punctuation()]), None, decoders.CTC()),
    }  # fmt: skip
    for name, tokenizer in shapes.items():
        normalizer, splitting, post, decoder = parts[name]
        tokenizer.normalizer, tokenizer.decoder = normalizer, decoder
        if splitting is not None:
            tokenizer.pre_tokenizer = splitting
        if post is not None:
            tokenizer.post_processor = post
        if name != "byte-level":
            tokenizer.add_special_tokens(special)
        tokenizer.enable_padding(length=8)
        tokenizer.enable_truncation(6)
        (folder / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str())))


def _regex(pattern: str) -> Any:
    from tokenizers import Regex

    return Regex(pattern)


def table() -> pa.Table:
    turns = [[{"role": "user", "content": f"turn {n}"}] * (n % 3) for n in range(40)]
    return pa.table({
        "text": [f"text {n % 7} " * (n % 5) for n in range(40)],
        "turns": turns,
        "license": [["mit"] if n % 2 else None for n in range(40)],
        "n": pa.array(range(40), pa.int64()),
    })  # fmt: skip


def _parquets(folder: Path) -> None:
    pq.write_table(table(), folder / "zstd.parquet", compression="zstd", row_group_size=15)
    pq.write_table(table(), folder / "plain.parquet", compression="none", use_dictionary=False)
    pq.write_table(table(), folder / "snappy.parquet", data_page_version="2.0")
    pq.write_table(table(), folder / "gzip.parquet", compression="gzip", store_schema=False)
    pq.write_table(
        table(), folder / "delta.parquet", compression="none", use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"},
    )  # fmt: skip


def _arrows(folder: Path) -> None:
    for compression in (None, "lz4", "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        for form, writer in {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}.items():
            with writer(folder / f"{form}-{compression}.arrow", table().schema,
                        options=options) as written:  # fmt: skip
                written.write_table(table(), max_chunksize=15)
    folded = table().set_column(0, "text", table()["text"].dictionary_encode())
    with pa.ipc.new_file(folder / "folded.arrow", folded.schema) as written:
        written.write_table(folded)
    views = table().set_column(0, "text", table()["text"].cast(pa.string_view()))
    with pa.ipc.new_stream(folder / "views.arrow", views.schema) as written:
        written.write_table(views)
