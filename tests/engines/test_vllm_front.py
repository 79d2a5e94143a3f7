"""What the plugin adds to vLLM's front end, over stand-ins of its classes and in its sources."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import pytest
from test_vllm import released
from test_vllm_v2 import functions, text_of

from ngramkit.engines import vllm_front
from ngramkit.engines.config import CONFIG_VARIABLE

NGRAM = SimpleNamespace(method="ngram")
PREDICTION = {"type": "content", "content": "ab"}


class VLLMValidationError(Exception):
    pass


class Tokenizer:
    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return [ord(each) - ord("a") for each in text]


@pytest.fixture
def front(monkeypatch):
    """vLLM's modules as its API server has them when plugins run."""

    class SamplingParams(SimpleNamespace):
        def verify(self, model_config, speculative_config, structured_outputs_config, tokenizer):
            self.verified = True

    class ChatCompletionRequest(SimpleNamespace):
        def to_sampling_params(self, max_tokens, default_sampling_params):
            return SamplingParams(extra_args=self.vllm_xargs or None)

    class CompletionTokenUsageInfo(SimpleNamespace):
        pass

    class UsageInfo(SimpleNamespace):
        pass

    UsageInfo.__module__ = "vllm.usage"

    class OpenAIServingChat:
        def __init__(self, counts, v2=True):
            self.asked = []

            async def collective_rpc(method, args=()):
                self.asked.append((method, args))
                if isinstance(counts, Exception):
                    raise counts
                return counts

            config = SimpleNamespace(speculative_config=NGRAM, use_v2_model_runner=v2)
            self.engine_client = SimpleNamespace(vllm_config=config, collective_rpc=collective_rpc)

        async def chat_completion_full_generator(self, request, results, name, *given, **named):
            return SimpleNamespace(choices=[1], usage=UsageInfo(completion_tokens_details=None))

        async def chat_completion_stream_generator_raw(self, request, results, name, *given):
            yield SimpleNamespace(choices=[1], usage=None)
            yield SimpleNamespace(
                choices=[], usage=UsageInfo(completion_tokens_details=CompletionTokenUsageInfo())
            )

    contents = {
        "vllm": {},
        "vllm.exceptions": {"VLLMValidationError": VLLMValidationError},
        "vllm.sampling_params": {"SamplingParams": SamplingParams},
        "vllm.usage": {"CompletionTokenUsageInfo": CompletionTokenUsageInfo},
        vllm_front.PROTOCOL_MODULE: {"ChatCompletionRequest": ChatCompletionRequest},
        vllm_front.SERVING_MODULE: {"OpenAIServingChat": OpenAIServingChat},
    }
    for name, attributes in contents.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm_front.Served, "by_options", False)
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    vllm_front.carry_texts()
    vllm_front.carry_texts()
    return SimpleNamespace(
        parameters=SamplingParams, chats=ChatCompletionRequest, serving=OpenAIServingChat
    )


def checked(front, extra, speculative=NGRAM, tokenizer=None):
    made = front.parameters(extra_args=extra)
    model = SimpleNamespace(get_vocab_size=lambda: 26)
    made.verify(model, speculative, None, tokenizer or Tokenizer())
    assert made.verified
    return made.extra_args


def chat(front, **given):
    fields = {"vllm_xargs": None, "tools": None, "tool_choice": "none", "response_format": None}
    fields |= {name: given.pop(name) for name in list(fields) if name in given}
    return front.chats(model_extra=given, n=1, **fields)


def test_texts_become_ids_and_the_callers_object_stays(front):
    said = {"ngramkit_reference": ["ab", "c"], "other": 1}
    assert checked(front, said) == {**said, "ngramkit_reference_ids": [0, 1, -1, 2]}
    assert said == {"ngramkit_reference": ["ab", "c"], "other": 1}
    again = checked(front, {**said, "ngramkit_reference_ids": [9]})
    assert again["ngramkit_reference_ids"] == [0, 1, -1, 2]
    assert checked(front, {"ngramkit_reference_ids": [9]}) == {}
    assert checked(front, None) is None
    assert checked(front, {"other": 1}) == {"other": 1}


@pytest.mark.parametrize("wrong", [5, [1.5], ["a", None], [26], "x" * (1 << 20)])
def test_a_wrong_value_is_an_error_of_its_request(front, wrong):
    with pytest.raises(VLLMValidationError, match=r"ngramkit_reference|a request's texts"):
        checked(front, {"ngramkit_reference": wrong})


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (
            {"ngramkit_histroy": 0},
            r"unknown parameter 'ngramkit_histroy'. Did you mean ngramkit_history\?",
        ),
        ({"Ngramkit": 0}, "unknown parameter 'Ngramkit'"),
        ({"ngramkit": "maybe"}, "ngramkit must be true or false, got 'maybe'"),
        ({"ngramkit": [0]}, r"ngramkit must be true or false, got \[0\]"),
    ],
)
def test_a_misspelt_parameter_is_an_error_of_its_request(front, said, wrong):
    with pytest.raises(VLLMValidationError, match=wrong):
        checked(front, said)
    for right in (True, 1, 1.0, "on", "True", 0, "off", None):
        assert checked(front, {"ngramkit": right, 5: 6}) == {"ngramkit": right, 5: 6}


def test_texts_are_left_alone_where_ngramkit_does_not_draft(front, monkeypatch):
    wrong = {"ngramkit_reference": 5}
    for method, model in (("eagle", None), ("custom_class", "others.Proposer")):
        given = SimpleNamespace(method=method, model=model)
        assert checked(front, wrong, given) is wrong
    assert checked(front, wrong, None) is wrong
    ours = SimpleNamespace(method="custom_class", model="ngramkit.engines.vllm.Proposer")
    with pytest.raises(VLLMValidationError):
        checked(front, wrong, ours)
    monkeypatch.delenv(CONFIG_VARIABLE)
    assert checked(front, wrong) is wrong
    request = chat(front, prediction=PREDICTION, vllm_xargs={"a": 1})
    assert request.to_sampling_params(5, {}).extra_args == {"a": 1}
    monkeypatch.setattr(vllm_front.Served, "by_options", True)
    assert "ngramkit_prediction" in request.to_sampling_params(5, {}).extra_args


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("ab", "ab"),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
    ],
)
def test_a_prediction_is_carried_and_the_clients_parameters_stay(front, content, text):
    said = {"ngramkit_reference": "c"}
    request = chat(front, prediction={"type": "content", "content": content}, vllm_xargs=said)
    made = request.to_sampling_params(5, {})
    assert made.extra_args == {**said, "ngramkit_prediction": text}
    assert said == {"ngramkit_reference": "c"}
    once = checked(front, made.extra_args)
    for found in once, checked(front, once):
        assert found["ngramkit_reference_ids"] == ([0, 1, -1, 2] if text else [2])
        assert found["ngramkit_prediction"] == ([0, 1] if text else "")


@pytest.mark.parametrize(
    "wrong",
    ["ab", 5, [], {}, {"content": 5}, {"content": [5]}, {"content": [{"type": "image_url"}]},
     {"content": [{"type": "text", "text": 5}]}, {"content": None}],
)  # fmt: skip
def test_a_wrong_prediction_is_an_error_of_its_request(front, wrong):
    with pytest.raises(VLLMValidationError, match="prediction must be"):
        chat(front, prediction=wrong).to_sampling_params(5, {})


def tool(name, parameters):
    return SimpleNamespace(function=SimpleNamespace(name=name, parameters=parameters))


def test_templates_of_tools_and_of_a_schema_become_ids(front):
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    request = chat(front, tools=[tool("f", schema), tool("g", None)], tool_choice="auto")
    made = request.to_sampling_params(5, {})
    assert made.extra_args["ngramkit_templates"] == [
        '{"name": "f", "arguments": {"a":"","b":0}}',
        '{"name": "f", "arguments": {"a": "", "b": 0}}',
        '{"name": "g", "arguments": {}}',
    ]
    said = checked(front, {**made.extra_args, "ngramkit_template_ids": [9]})
    assert list(said) == ["ngramkit_template_ids"]
    assert said["ngramkit_template_ids"].count(-1) == 2
    assert checked(front, {"ngramkit_templates": "x", "a": 1, "ngramkit_template_ids": [1]}) == {
        "a": 1, "ngramkit_template_ids": [23],
    }  # fmt: skip
    answered = SimpleNamespace(json_schema=SimpleNamespace(json_schema=schema))
    made = chat(front, response_format=answered).to_sampling_params(5, {})
    assert made.extra_args["ngramkit_templates"] == ['{"a":"","b":0}', '{"a": "", "b": 0}']
    named = SimpleNamespace(function=SimpleNamespace(name="g"))
    request = chat(front, tools=[tool("f", schema), tool("g", None)], tool_choice=named)
    made = request.to_sampling_params(5, {})
    assert made.extra_args["ngramkit_templates"] == ['{"name": "g", "arguments": {}}']
    request = chat(front, tools=[tool("f", schema)], tool_choice="none")
    assert request.to_sampling_params(5, {}).extra_args is None


def test_a_chat_brings_its_prediction_and_its_tools(front):
    request = chat(front, prediction=PREDICTION, tools=[tool("g", None)], tool_choice="auto")
    said = checked(front, request.to_sampling_params(5, {}).extra_args)
    template = [ord(each) - ord("a") for each in '{"name": "g", "arguments": {}}']
    assert said == {
        "ngramkit_prediction": [0, 1],
        "ngramkit_reference_ids": [0, 1],
        "ngramkit_template_ids": [min(each, 26) for each in template],
    }


def usage(front, serving, request):
    """Return the details of `usage` in an answer and in a stream."""
    request.to_sampling_params(5, {})

    async def both():
        answer = await serving.chat_completion_full_generator(request, None, "chat-1", 2, a=3)
        streamed = serving.chat_completion_stream_generator_raw(request, None, "chat-1", 2)
        return answer, [chunk async for chunk in streamed]

    answer, chunks = asyncio.run(both())
    assert len(chunks) == 2
    details = [answer.usage.completion_tokens_details, chunks[-1].usage.completion_tokens_details]
    return [vars(each) if each else {} for each in details]


def test_usage_reports_the_tokens_of_a_prediction(front):
    serving = front.serving([None, (7, 2)])
    found = usage(front, serving, chat(front, prediction=PREDICTION))
    assert found == [{"accepted_prediction_tokens": 7, "rejected_prediction_tokens": 2}] * 2
    assert serving.asked == [("ngramkit_predicted", ("chat-1", 1))] * 2


@pytest.mark.parametrize(
    ("counts", "v2", "given"),
    [
        ([None, None], True, {"prediction": PREDICTION}),
        (RuntimeError("dead"), True, {"prediction": PREDICTION}),
        ([(7, 2)], False, {"prediction": PREDICTION}),
        ([(7, 2)], True, {}),
    ],
    ids=["not known", "no reply", "V1", "no prediction"],
)
def test_usage_reports_nothing_that_is_not_known(front, counts, v2, given):
    chat(front, prediction=PREDICTION).to_sampling_params(5, {})
    assert usage(front, front.serving(counts, v2), chat(front, **given)) == [{}, {}]


def test_the_worker_answers_with_its_speculators_counts(monkeypatch):
    module = ModuleType(vllm_front.WORKER_MODULE)
    module.WorkerBase = type("WorkerBase", (), {})
    monkeypatch.setitem(sys.modules, vllm_front.WORKER_MODULE, module)
    vllm_front.register_prediction_counts()
    worker, requests = module.WorkerBase(), SimpleNamespace(report_predicted=lambda *given: given)
    worker.model_runner = SimpleNamespace(speculator=SimpleNamespace(requests=requests))
    assert worker.ngramkit_predicted("chat-1", 2) == ("chat-1", 2)
    worker.model_runner = SimpleNamespace()
    assert worker.ngramkit_predicted("chat-1", 2) is None


# vLLM's sources.

CHAT = "vllm/entrypoints/openai/chat_completion"


def test_vllms_front_end_has_what_is_wrapped():
    verify = functions("vllm/sampling_params.py")["SamplingParams.verify"]
    assert verify == [
        "self", "model_config", "speculative_config", "structured_outputs_config", "tokenizer",
    ]  # fmt: skip
    processor = released("vllm/v1/engine/input_processor.py")
    assert processor.index("params.verify(") < processor.index("sampling_params = params.clone()")
    assert "to_sampling_params" in released(f"{CHAT}/serving.py")
    assert "extra_args: dict[str, Any] = self.vllm_xargs if" in text_of(
        f"{CHAT}/protocol.py", "to_sampling_params"
    )
    serving = released(f"{CHAT}/serving.py")
    for name in ("full_generator", "stream_generator_raw"):
        assert f"async def chat_completion_{name}(\n        self,\n        request: " in serving
        begin = serving.index(f"async def chat_completion_{name}(")
        assert serving.index("request_id: str", begin) < serving.index("model_name: str", begin)
    assert "choices=[]," in serving
    chats = released(f"{CHAT}/protocol.py")
    for field in ("tools: list[ChatCompletionToolsParam] | None", "tool_choice: (",
                  "response_format: AnyResponseFormat | None"):  # fmt: skip
        assert f"    {field}" in chats
    assert "class ChatCompletionNamedToolChoiceParam(OpenAIBaseModel):\n    function: " in chats
    formats = released("vllm/entrypoints/generate/base/protocol.py")
    assert 'json_schema: dict[str, Any] | None = Field(default=None, alias="schema")' in formats
    assert 'extra="allow"' in released("vllm/entrypoints/serve/engine/protocol.py")
    assert "class VLLMValidationError(VLLMClientError)" in released("vllm/exceptions.py")
    client = released("vllm/v1/engine/async_llm.py")
    assert "async def collective_rpc(\n        self,\n        method: str,\n" in client
