import pytest

from ngramkit.decode.text import StopStrings, TextStream

TEXTS = [
    "def main():\n    return 1\n",
    "naïve café — “quotes”",
    "👩‍👩‍👧 and 漢字, then\ttabs",
    "x = '\N{REPLACEMENT CHARACTER}'\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("prompt", ["", "# é and before\n"])
def test_pieces_join_to_the_text_and_hold_whole_characters(tokenizer, text, prompt):
    stream = TextStream(tokenizer.backend, tokenizer.encode(prompt))
    pieces = [stream.push(int(token)) for token in tokenizer.encode(text)]
    pieces.append(stream.rest())
    assert "".join(pieces) == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_an_unfinished_character_comes_with_the_rest(tokenizer):
    stream = TextStream(tokenizer.backend)
    tokens = tokenizer.encode("漢").tolist()
    assert len(tokens) > 1
    assert [stream.push(token) for token in tokens[:-1]] == [""] * (len(tokens) - 1)
    assert stream.rest()


def test_special_tokens_have_no_text(tokenizer):
    stream = TextStream(tokenizer.backend)
    assert stream.push(tokenizer.record.eos) == ""
    assert stream.rest() == ""


def test_stop_strings_end_with_the_token_that_completes_them(tokenizer):
    text = "for i in range(10):\n    print(i)\n\nclass A:"
    tokens = tokenizer.encode(text).tolist()
    for stop in ["\n\nclass", "range(10", "):\n    p", "i"]:
        stops = StopStrings(tokenizer.backend, [], ["never", stop])
        ends = next(n for n, token in enumerate(tokens, 1) if stops.completed_by(token))
        assert stop in tokenizer.decode(tokens[:ends])
        assert stop not in tokenizer.decode(tokens[: ends - 1])


def test_a_stop_string_in_the_prompt_does_not_count(tokenizer):
    stops = StopStrings(tokenizer.backend, tokenizer.encode("return"), ["return"])
    assert not any(stops.completed_by(int(token)) for token in tokenizer.encode(" None\n"))
