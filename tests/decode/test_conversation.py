"""Turns of a conversation: the model's own text, and nothing read twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import tiny_model

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import Message
from ngramkit.decode.conversation import Conversation
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.prompts import chat_ids
from ngramkit.drafters.base import common_beginning
from ngramkit.drafters.cacheback import Cacheback
from ngramkit.drafters.registry import NoDraft

TURNS = ("def main(", "and again: def main(", "once more")
WAYS = {
    "tree": {"budget": 8},
    "batch": {"budget": 8, "verify": "batch"},
    "chain": {"budget": 8, "verify": "chain"},
}


def talk(model, **options):
    options = {"drafter": lambda: Cacheback(None), "template": "chatml", **options}
    return Conversation(model, max_new_tokens=16, **options)


class Read:
    """Counts the tokens that the model reads, pass by pass."""

    def __init__(self, model):
        self.counts = []
        self.hook = model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, module, args, kwargs):
        self.counts.append(kwargs["input_ids"].numel())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hook.remove()


def alone(model, conversation, messages, **sampling):
    """What the model writes to the same prompt with an empty memory and no drafts."""
    prompt = chat_ids(model.tokenizer, conversation.template, messages)
    options = DecodeOptions(budget=1, max_new_tokens=16, **sampling)
    decoder = Decoder.settle(model, options)
    return decoder.decode(decoder.request(prompt), NoDraft())


@pytest.mark.parametrize("way", WAYS)
def test_every_turn_is_what_the_model_writes_alone(demo, way):
    conversation = talk(demo, **WAYS[way], system="Be brief.")
    drafted = 0
    for turn, text in enumerate(TURNS):
        messages = [*conversation.messages, Message("user", text)]
        shown = []
        reply = conversation.ask(text, lambda piece, _, shown=shown: shown.append(piece))
        assert "".join(shown) == reply.text
        expected = alone(demo, conversation, messages)
        np.testing.assert_array_equal(reply.run.token_ids, expected.token_ids)
        assert conversation.messages == [*messages, Message("assistant", reply.text)]
        assert (reply.held > 0) == (turn > 0)
        drafted += sum(reply.run.accepted_per_pass)
    assert drafted > 0


def test_what_is_held_is_not_read_again(demo):
    conversation = talk(demo)
    for turn, text in enumerate(TURNS):
        with Read(demo.model) as read:
            reply = conversation.ask(text)
        if turn:
            assert read.counts[0] == reply.run.prompt_tokens - reply.held
            assert reply.held > reply.run.prompt_tokens // 2


def test_a_new_conversation_keeps_the_system_message_and_what_begins_alike(demo):
    conversation = talk(demo, system="Be brief, and say nothing twice.")
    first = conversation.ask(TURNS[0])
    conversation.ask(TURNS[1])
    conversation.clear()
    assert conversation.messages == [Message("system", "Be brief, and say nothing twice.")]
    again = conversation.ask(TURNS[0])
    np.testing.assert_array_equal(again.run.token_ids, first.run.token_ids)
    assert again.held == again.run.prompt_tokens - 1


def test_sampled_turns_are_those_of_their_own_seeds(demo):
    conversation = talk(demo, temperature=0.8, seed=5)
    for turn, text in enumerate(TURNS):
        messages = [*conversation.messages, Message("user", text)]
        reply = conversation.ask(text)
        expected = alone(demo, conversation, messages, temperature=0.8, seed=5 + turn)
        np.testing.assert_array_equal(reply.run.token_ids, expected.token_ids)


def test_an_interrupted_answer_is_part_of_the_conversation(demo):
    conversation = talk(demo)

    def interrupt(piece, drafted):
        raise KeyboardInterrupt

    reply = conversation.ask(TURNS[0], interrupt)
    assert reply.run.ended_by == "interrupt"
    for text in TURNS[1:]:
        messages = [*conversation.messages, Message("user", text)]
        found = conversation.ask(text).run.token_ids
        np.testing.assert_array_equal(found, alone(demo, conversation, messages).token_ids)


def test_a_full_context_is_an_error_and_changes_nothing(demo):
    small = tiny_model("llama", max_position_embeddings=96)
    conversation = talk(LanguageModel("small", small, demo.tokenizer))
    conversation.ask("a b")
    said = list(conversation.messages)
    with pytest.raises(InputError, match="context of small, 96 tokens"):
        conversation.ask("x " * 200)
    assert conversation.messages == said
    messages = [*said, Message("user", "c")]
    found = conversation.ask("c").run.token_ids
    expected = alone(conversation.model, conversation, messages)
    np.testing.assert_array_equal(found, expected.token_ids)


def test_a_model_without_a_template_is_refused(demo):
    with pytest.raises(UsageError, match="cannot hold a conversation"):
        Conversation(demo)


def test_messages_of_another_type_are_refused(demo):
    talk = Conversation(demo, drafter="none", template="chatml")
    for messages in ("hello", [{"role": "user", "content": "hello"}]):
        talk.messages = messages
        with pytest.raises(UsageError, match="messages must be Messages, got"):
            talk.ask("hi")


def test_it_is_public(demo):
    assert ngramkit.Conversation is Conversation
    reply = talk(demo).ask("x")
    assert set(reply.to_dict()) >= {"text", "held_tokens", "tokens_per_step"}
    assert "tokens" in repr(reply)


@pytest.mark.parametrize(
    ("one", "other", "count"), [([], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 9], 1)]
)
def test_common_beginnings(one, other, count):
    assert common_beginning(np.array(one, np.int32), np.array(other, np.int32)) == count


@pytest.mark.parametrize("name", ["mistral", "gpt_neo", "mpt", "gemma3"])
def test_windows_and_biases_go_on(demo, name):
    """The kept context is read on as the model reads it whole."""
    model = LanguageModel(name, tiny_model(name), demo.tokenizer)
    conversation = talk(model)
    for text in TURNS:
        messages = [*conversation.messages, Message("user", text)]
        prompt = chat_ids(model.tokenizer, conversation.template, messages)
        with torch.inference_mode():
            whole = model.model.generate(
                torch.from_numpy(prompt.astype(np.int64))[None], do_sample=False, max_new_tokens=16
            )
        found = conversation.ask(text).run.token_ids
        np.testing.assert_array_equal(found, whole[0, len(prompt) :].numpy())
