"""Texts of `inspect` where tokens end inside characters."""

from __future__ import annotations

from pathlib import Path

import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.basics.terminal_text import quoted
from ngramkit.corpus.tokenizer import load_tokenizer

TEXT = "a \N{GRINNING FACE} \u4f60\u597d"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "'plain'"),
        (TEXT.encode(), repr(TEXT)),
        ("\u4f60".encode()[:2], r"'\xe4\xbd'"),
        ("\u4f60".encode()[2:] + b"b", r"'\xa0b'"),
        (rb"\udce4", r"'\\udce4'"),
        (rb"\ ".strip() + b"\xe4", r"'\\\xe4'"),
        (b"it's", '"it\'s"'),
    ],
)
def test_incomplete_characters_are_shown_as_bytes(raw, shown):
    assert quoted(raw) == shown


def test_the_bytes_of_tokens_are_those_of_their_text():
    tokenizer = load_tokenizer("demo")
    ids = tokenizer.encode(TEXT).tolist()
    assert tokenizer.raw(ids) == TEXT.encode()
    assert tokenizer.shown(ids) == TEXT
    assert tokenizer.shown(ids[-1:]) == r"\x" + tokenizer.raw(ids[-1:]).hex()
    assert b"".join(tokenizer.raw([each]) for each in ids) == TEXT.encode()


def test_byte_tokens_and_spaces_of_sentencepiece():
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"\u2581the": 256}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    tokenizer = ngramkit.load_tokenizer("demo").__class__(None, backend)
    assert tokenizer.raw([256, 0xE4, 0xBD]) == b" the\xe4\xbd"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    text = "\u4f60\u597d\u4f60\u597d \N{GRINNING FACE} done\n" * 5
    return ngramkit.build_frozen(
        iter([text]), tmp_path_factory.mktemp("inspected") / "f", model="demo", follower_len=2
    )


def test_no_text_of_an_inspection_is_empty_or_unknown(table):
    found = ngramkit.inspect(table, top=20)
    tokenizer = load_tokenizer("demo")
    for phrase in found.most_frequent:
        assert "\N{REPLACEMENT CHARACTER}" not in phrase.shown
        for each in phrase.continuations:
            assert "\N{REPLACEMENT CHARACTER}" not in each.shown
            assert each.shown != "''"
            whole = tokenizer.raw(each.token_ids)
            assert each.shown == quoted(whole)
            assert each.text == whole.decode("utf-8", "replace")


def test_rows_of_parquet_hold_no_unknown_letters(table, tmp_path):
    import pyarrow.parquet

    ngramkit.export(table, "parquet", tmp_path / "x.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "x.parquet").to_pylist()
    texts = [row[name] for row in rows for name in ("leader_text", "follower_text")]
    assert not any("\N{REPLACEMENT CHARACTER}" in text for text in texts)
    assert any("\\xe4" in text for text in texts)


def test_a_text_is_looked_up_only_where_phrases_are_counted():
    golden = Path(__file__).parent / "golden"
    for kind in ("tokens", "model-bigram", "model-unigram"):
        with pytest.raises(UsageError, match="cannot look up a text in a") as refused:
            ngramkit.inspect(golden / kind, "def")
        assert refused.value.option == ("query",)


def test_a_text_that_is_too_short_to_look_up_is_refused(table, tmp_path):
    text = "import os\nimport sys\n" * 3
    pairs = ngramkit.build_frozen(iter([text]), tmp_path / "pairs", model="demo", leader_len=2)
    assert ngramkit.inspect(pairs, "import os").query.matches == 3
    for artifact, query, least in ((pairs, "import", 2), (table, "", 1)):
        with pytest.raises(UsageError, match=f"query must have at least {least} token") as refused:
            ngramkit.inspect(artifact, query)
        assert refused.value.option == ("query",)
