import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ngramkit.decode.ends import StopStrings
from ngramkit.decode.text import TextStream

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
TEXTS = [
    "def main():\n    return 1\n",
    "naïve café — “quotes”",
    "👩‍👩‍👧 and 漢字, then\ttabs",
    "🎉🎊🥳🎈 done",
    f"x = '{REPLACEMENT}'\n",
    f"{REPLACEMENT}{REPLACEMENT} twice",
]


def with_byte_fallback() -> Tokenizer:
    """A tokenizer of Llama 2's kind: words, letters, and byte tokens for everything else."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁adeghlnost,", "▁a", "▁do"]
    made = Tokenizer(
        models.BPE(
            {word: i for i, word in enumerate(words)},
            [("▁", "a")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    return made


def with_byte_level() -> Tokenizer:
    """A tokenizer of GPT-2's kind that splits every text into bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    return made


def with_unigram() -> Tokenizer:
    """A tokenizer of SentencePiece's kind without byte tokens."""
    pieces = [("<unk>", 0.0), *((letter, -4.0) for letter in "▁abdeon🎉🎊漢,"), ("▁a", -2.0)]
    made = Tokenizer(models.Unigram(pieces, 0, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    return made


BACKENDS = {make.__name__: make() for make in (with_byte_fallback, with_byte_level, with_unigram)}


def streamed(backend, prompt, tokens, **options):
    stream = TextStream(backend, prompt, **options)
    return "".join([*map(stream.push, tokens), stream.flush()])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("prompt", ["", "# é and before\n", "🎉🎊"])
def test_pieces_join_to_the_text_and_hold_whole_characters(tokenizer, text, prompt):
    stream = TextStream(tokenizer.backend, tokenizer.encode(prompt))
    pieces = [stream.push(int(token)) for token in tokenizer.encode(text)]
    pieces.append(stream.flush())
    assert "".join(pieces) == text
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in pieces)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@given(data=st.data())
def test_the_stream_is_what_decode_gives(backend, data):
    """For any tokens: special ones, characters cut anywhere, bytes that are none of a character."""
    whole = backend.encode("a 🎉🎊漢, 🥳a\u200d🎈e do", add_special_tokens=False).ids
    odd = st.sampled_from([*whole, backend.token_to_id("<|end|>")])
    ids = data.draw(st.one_of(st.just(whole), st.lists(odd, max_size=30)))
    cut = data.draw(st.integers(0, len(ids)))
    before, after = backend.decode(ids[:cut]), backend.decode(ids)
    got = streamed(backend, ids[:cut], ids[cut:])
    if after.startswith(before):
        assert before + got == after
    elif ids is whole:  # the prompt ends inside a character: it is completed
        prefixes = (backend.decode(ids[: cut - count]) for count in range(1, 4))
        assert next(filter(after.startswith, prefixes)) + got == after
    assert streamed(backend, [], ids) == after


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_the_stream_shows_text_before_its_end(backend):
    stream = TextStream(backend, [])
    pieces = [stream.push(token) for token in backend.encode("a 🎉🎊, do, 🎉 a").ids]
    assert sum(map(bool, pieces)) >= 5


def test_an_unfinished_character_comes_with_the_rest(tokenizer):
    stream = TextStream(tokenizer.backend)
    tokens = tokenizer.encode("漢").tolist()
    assert len(tokens) > 1
    assert [stream.push(token) for token in tokens[:-1]] == [""] * (len(tokens) - 1)
    assert stream.flush()


class Watched:
    """A tokenizer that keeps the largest number of tokens that it was asked to decode at once."""

    def __init__(self, backend):
        self.backend, self.most = backend, 0

    def token_to_id(self, token):
        return self.backend.token_to_id(token)

    def decode(self, ids, **options):
        self.most = max(self.most, len(ids))
        return self.backend.decode(ids, **options)


def test_a_model_that_writes_no_characters_is_decoded_in_small_parts():
    watched = Watched(BACKENDS["with_byte_level"])
    stream = TextStream(watched, [])
    lone = watched.backend.encode("漢").ids[1]
    pieces = [stream.push(lone) for _ in range(100)]
    assert "".join([*pieces, stream.flush()]) == REPLACEMENT * 100
    assert watched.most < 20


def test_special_tokens_have_no_text(tokenizer):
    stream = TextStream(tokenizer.backend)
    assert stream.push(tokenizer.record.eos) == ""
    assert stream.flush() == ""


def test_stop_strings_end_with_the_token_that_completes_them(tokenizer):
    text = "for i in range(10):\n    print(i)\n\nclass A:"
    tokens = tokenizer.encode(text).tolist()
    for stop in ["\n\nclass", "range(10", "):\n    p", "i"]:
        stops = StopStrings(tokenizer.backend, [], ["never", stop])
        ends = next(n for n, token in enumerate(tokens, 1) if stops.completed_by(token))
        assert stop in tokenizer.decode(tokens[:ends])
        assert stop not in tokenizer.decode(tokens[: ends - 1])


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("stop", ["🎊", "🎉🎊", "<|end|>", "a<|end|>", "🎉🎊<|end|>"])
def test_stop_strings_see_emojis_and_special_tokens(backend, stop):
    ids = backend.encode("do 🎉🎊<|end|>, a<|end|> do", add_special_tokens=False).ids
    stops = StopStrings(backend, [], ["never", stop])
    ends = next(n for n, token in enumerate(ids, 1) if stops.completed_by(token))
    assert stop in backend.decode(ids[:ends], skip_special_tokens=False)
    assert stop not in backend.decode(ids[: ends - 1], skip_special_tokens=False)


def test_a_stop_string_in_the_prompt_does_not_count(tokenizer):
    stops = StopStrings(tokenizer.backend, tokenizer.encode("return"), ["return"])
    assert not any(stops.completed_by(int(token)) for token in tokenizer.encode(" None\n"))
