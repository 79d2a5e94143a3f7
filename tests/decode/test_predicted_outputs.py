"""Predicted outputs: the model's own text in fewer passes, wherever references are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lossless import references
from tiny_models import tiny_model

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.loop import decode
from ngramkit.decode.reference_files import MAX_REFERENCE_FILE_BYTES, read_reference
from ngramkit.decode.request import Request
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import DRAFTERS

ABLE = [name for name, entry in DRAFTERS.items() if entry.references]
LONG = 40
CODE = "def read(path):\n    return open(path).read()\n"


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["demo", "mistral"])
def test_greedy_text_is_the_same_with_references_and_without(demo, name):
    """The answer itself, with some tokens changed, and what has nothing to do with it."""
    model = demo.model if name == "demo" else tiny_model(name)
    rng = np.random.default_rng(1)
    count = 1 if name == "demo" else 2  # its passes take most of the time
    found = references(model, demo.tokenizer, new_tokens=LONG, count=count)
    for drafter_name in ABLE:
        steps = []
        for each in found:
            edited = each.answer.copy()
            edited[7::15] = rng.integers(1, 400, len(edited[7::15]))
            given = ([each.answer], [edited[::-1], edited], [edited[::-1]])
            for number, texts in enumerate(given[: 2 if name == "demo" else 3]):
                past = PastRequests(tokenizer=demo.tokenizer.record, background=False)
                drafter = load_drafter(drafter_name, tokenizer=demo.tokenizer.record, past=past)
                request = Request(
                    each.prompt, LONG, (16, 4, 9)[number], eos=frozenset({0}), references=texts
                )
                run = decode(TreeVerifier(model, room=len(each.prompt) + 2), drafter, request)
                np.testing.assert_array_equal(run.token_ids, each.answer)
                if number == 0 and len(each.answer) == LONG:
                    steps.append(run.tokens_per_step)
        assert min(steps) > 5


def test_decode_takes_texts_files_and_ids(demo, tmp_path):
    said = []

    class Notes(Reporter):
        def note(self, text):
            said.append(text)

    options = {"max_new_tokens": 24, "drafter": "context", "budget": 8}
    alone = ngramkit.decode("def main(", demo, **options)
    file = tmp_path / "old.py"
    file.write_text(alone.text)
    ids = demo.tokenizer.encode(alone.text)
    for given in ([alone.text], [file], [ids], ["nothing like it", alone.text]):
        found = ngramkit.decode("def main(", demo, references=given, reporter=Notes(), **options)
        assert found.text == alone.text
        assert found.run.passes < alone.run.passes
    assert f"drafting from 1 reference too, {len(ids)} tokens" in said
    assert any(line.startswith("drafting from 2 references too, ") for line in said)
    assert found.compared().comparison.identical


def test_an_id_that_the_model_does_not_have_is_never_drafted(demo):
    """A reference or an artifact may come from a tokenizer with more tokens than the model has."""
    options = {"max_new_tokens": 24, "drafter": "context", "budget": 8}
    alone = ngramkit.decode("def main(", demo, **options)
    ids = demo.tokenizer.encode(alone.text).tolist()
    reference = [*ids[:4], demo.vocabulary, *ids[4:], 70_000]
    found = ngramkit.decode("def main(", demo, references=[reference], **options)
    assert found.text == alone.text


def test_a_prompt_with_an_id_that_the_model_does_not_have_is_refused(demo):
    with pytest.raises(InputError, match=f"must have ids below .* got {demo.vocabulary:,}"):
        Decoder.settle(demo).request(np.array([1, demo.vocabulary], np.int32))


def test_a_conversation_and_model_generate_take_them_too(demo):
    talk = ngramkit.Conversation(
        demo, drafter="context", template="chatml", max_new_tokens=16, references=[CODE]
    )
    alone = ngramkit.Conversation(demo, drafter="none", template="chatml", max_new_tokens=16)
    for text in ("Repeat: " + CODE, "And again."):
        assert talk.ask(text).text == alone.ask(text).text
    prompt = demo.tokenizer.encode_prompt("def main(")
    options = {"do_sample": False, "max_new_tokens": 24, "budget": 8}
    expected = ngramkit.generate(demo, prompt, drafter="none", **options)
    found = ngramkit.generate(
        demo,
        prompt,
        drafter="context",
        references=iter([expected[0, len(prompt) :].numpy()]),
        **options,
    )
    assert found.tolist() == expected.tolist()


def test_those_that_cannot_use_them_are_refused_before_a_model_is_loaded(demo):
    for drafter in ("rest", "cacheback:keep=true", "none"):
        with pytest.raises(
            UsageError, match=r"cannot draft from references with .*: only blend, context,"
        ):
            ngramkit.decode("x", "no/such-model", drafter=drafter, references=[CODE])
        with pytest.raises(UsageError, match="cannot draft from references"):
            ngramkit.Conversation("no/such-model", drafter=drafter, references=[CODE])
        with pytest.raises(UsageError, match="cannot draft from references"):
            ngramkit.generate(demo, [1, 2], drafter=drafter, references=[[1]], max_new_tokens=2)
    with pytest.raises(UsageError, match="cannot use references"):
        ngramkit.decode("x", "no/such-model", references=[CODE], cache=SpeCache())
    with pytest.raises(UsageError, match="references must be a list"):
        ngramkit.decode("x", demo, references=CODE)
    with pytest.raises(UsageError, match="references must not be empty"):
        ngramkit.decode("x", demo, references=[""])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "must not be empty"),
        (b"a\0b", "got binary data"),
        (b"\xff\xfe\x01", "as UTF-8"),
        (b"a" * (MAX_REFERENCE_FILE_BYTES + 1), "has more than 4,194,304 bytes"),
        (None, "No such file"),
    ],
)
def test_files_that_are_no_text(tmp_path, raw, said):
    file = tmp_path / "file"
    if raw is not None:
        file.write_bytes(raw)
    with pytest.raises(InputError, match=said):
        read_reference(file)


def test_files_are_read_as_text():
    Path("a").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_reference(Path("a")) == "a\nb\nc\n"
