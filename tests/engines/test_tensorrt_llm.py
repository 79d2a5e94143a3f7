"""TensorRT-LLM's drafter, against stand-ins of its classes: no real engine was used."""

from __future__ import annotations

import json
import pickle
import sys
from abc import ABC, abstractmethod
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.growing_history import tenant_folder
from ngramkit.engines.tensorrt_llm import BASE_MODULE, make_drafter
from ngramkit.formats.history import History

VOCABULARY, MOST = 12, 5


class Base(ABC):
    @abstractmethod
    def prepare_draft_tokens(self, scheduled_requests, resource_manager=None): ...


class First(Base):
    """The Drafter of 1.0."""

    def __init__(self, max_concurrency=None):
        self.max_concurrency = max_concurrency


class Second(Base):
    """The Drafter of 1.2 and main."""

    _needs_padding_kv_extension = False

    def __init__(
        self,
        max_draft_len=None,
        max_total_draft_tokens=None,
        max_concurrency=None,
        draft_len_schedule=None,
    ):
        self.max_draft_len = max_draft_len
        self.max_total_draft_tokens = max_total_draft_tokens
        self.static = max_total_draft_tokens
        self.max_concurrency = max_concurrency
        self.draft_len_schedule = draft_len_schedule

    def pad_draft_tokens_for_cuda_graph(self, scheduled_requests):
        for request in scheduled_requests.generation_requests:
            request.py_draft_tokens.extend([0] * (self.static - len(request.py_draft_tokens)))
        self.extended = self._needs_padding_kv_extension

    def update_max_total_draft_tokens(self, most):
        self.max_total_draft_tokens = self.max_draft_len = most


class Bare(Base):
    """A Drafter without arguments."""


class Request:
    """The part of an LlmRequest that a drafter sees."""

    def __init__(self, name, prompt, most=60):
        self.request_id = name
        self.py_orig_prompt_len, self.py_max_new_tokens = len(prompt), most
        self.py_draft_tokens = [0] * MOST  # what resources were prepared for
        self.said = list(prompt)
        self.is_generation_complete_state = False

    def get_tokens(self, beam):
        assert beam == 0
        return self.said

    @property
    def finished(self):
        return len(self.said) >= self.py_orig_prompt_len + self.py_max_new_tokens


def scheduled(*requests, prompts=()):
    return SimpleNamespace(generation_requests=list(requests), context_requests=list(prompts))


@pytest.fixture
def version(monkeypatch):
    """version(base): TensorRT-LLM is installed, and that is its Drafter."""

    def install(base):
        parts = BASE_MODULE.split(".")
        for end in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        module.Drafter = base

    install(Second)
    return install


@pytest.fixture
def configured(monkeypatch, token_store, tmp_path, version):
    """A datastore in NGRAMKIT_DRAFT; nothing is learnt, so a text alone decides its draft."""
    text = [0, 1, 2, 3, 4, 5, 6, 7] * 3
    build_datastore(token_store([text, text[::-1]], VOCABULARY), tmp_path / "d")
    said = {"datastores": [f"{tmp_path}/d"], "vocabulary": VOCABULARY}
    monkeypatch.setenv(
        CONFIG_VARIABLE, json.dumps({**said, "min_probability": 0.1, "pause": False})
    )


def drafted(drafter, *requests):
    drafter.prepare_draft_tokens(scheduled(*requests), resource_manager=None)
    return [request.py_draft_tokens for request in requests]


def step(request, random):
    """The engine verifies: the draft is accepted up to a slip, and one token of its own follows."""
    n, kept = len(request.said), []
    up = request.request_id % 2
    for token in [*request.py_draft_tokens, None]:
        right = (n + len(kept) if up else -n - len(kept)) % 8
        if random.random() < 0.15:
            right = 8 + request.request_id % 3
        kept.append(right)
        if token != right:  # rejected, as is all behind it
            break
    left = request.py_orig_prompt_len + request.py_max_new_tokens - n
    request.said += kept[:left]


def test_a_draft_depends_on_its_request_alone(configured):
    random, drafter = np.random.default_rng(4), make_drafter(MOST)
    running, begun, total, finished = [], 0, 0, 0
    for turn in range(100):
        while len(running) < 5:
            prompt = [(i if begun % 2 else -i) % 8 for i in range(3 + begun % 4)]
            running.append(Request(begun, prompt, most=int(random.integers(5, 40))))
            begun += 1
        random.shuffle(running)
        asked = [request for request in running if random.random() < 0.9]  # others are paused
        drafter.prepare_draft_tokens(scheduled(*asked, prompts=running[:1]))
        for place, request in enumerate(asked):
            chain = request.py_draft_tokens
            assert all(type(token) is int for token in chain)
            left = request.py_orig_prompt_len + request.py_max_new_tokens - len(request.said) - 1
            assert len(chain) <= min(MOST, max(left, 0))
            if place % 3 == turn % 3:
                alone = Request(request.request_id, request.said)
                alone.py_orig_prompt_len = request.py_orig_prompt_len
                alone.py_max_new_tokens = request.py_max_new_tokens
                assert drafted(make_drafter(MOST), alone) == [chain]
            total += len(chain)
            step(request, random)
        finished += sum(request.finished for request in running)
        running = [request for request in running if not request.finished]
    counts = drafter.statistics
    assert counts.draft_tokens == total > 100
    assert counts.accepted_tokens > 50
    assert finished > 5
    assert counts.requests < counts.rows / 3  # found again


@pytest.mark.parametrize("base", [First, Second, Bare])
def test_the_constructor_takes_what_its_version_does(configured, version, base):
    version(base)
    drafter = make_drafter(MOST)
    assert isinstance(drafter, base)
    assert drafted(drafter, Request(1, [0, 1, 2, 3])) == [[4, 5, 6, 7, 0]]
    if base is Second:
        assert (drafter.max_draft_len, drafter.max_total_draft_tokens) == (MOST, MOST)


def test_options_of_another_version_are_refused(configured, version):
    assert make_drafter(MOST, draft_len_schedule={4: 2}).draft_len_schedule == {4: 2}
    version(First)
    assert make_drafter(MOST, max_concurrency=3).max_concurrency == 3
    with pytest.raises(UsageError, match="cannot set draft_len_schedule"):
        make_drafter(MOST, draft_len_schedule={4: 2})
    with pytest.raises(UsageError, match="max_draft_len must be 1 to 64"):
        make_drafter(0)


def test_drafts_keep_to_the_schedule_and_max_tokens(configured):
    drafter, request = make_drafter(MOST), Request(1, [0, 1, 2, 3], most=3)
    batch = scheduled(request)
    drafter.prepare_draft_tokens(batch)
    drafter.pad_draft_tokens_for_cuda_graph(batch)
    assert request.py_draft_tokens == [4, 5, 0, 0, 0]  # and one of the model's own
    assert drafter.extended  # the cache, for what is padded
    drafter.update_max_total_draft_tokens(1)
    assert drafted(drafter, Request(1, [0, 1, 2, 3])) == [[4]]
    drafter.update_max_total_draft_tokens(0)
    assert drafted(drafter, Request(1, [0, 1, 2, 3])) == [[]]


def test_it_can_be_switched_off_and_pickled(configured):
    drafter, request = make_drafter(MOST), Request(1, [0, 1, 2, 3])
    there = pickle.loads(pickle.dumps(drafter))
    assert drafted(there, request) == drafted(drafter, request) == [[4, 5, 6, 7, 0]]
    drafter.enabled = False
    assert drafted(drafter, request) == [[]]
    assert drafted(drafter) == []


def held(path):
    return sorted((r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0])


def test_finished_requests_join_the_history(version, tmp_path):
    config = DraftConfig(history=str(tmp_path / "h"), min_probability=0.05, pause=False)
    drafter = make_drafter(MOST, config, vocabulary=VOCABULARY)
    requests = [Request(name, [9, name, 8], most=20) for name in range(3)]
    answer = [1, 4, 2, 7, 0, 3, 3, 5]
    for token in answer[:4]:
        for each in requests:
            each.said.append(token)
        drafted(drafter, *requests)
    drafted(drafter, requests[0])  # the others are paused, one of them for good
    requests[1].said += answer[4:]
    drafted(drafter, *requests[:2])
    requests[2].is_finished_due_to_cancellation = True
    for each in requests[1:]:
        each.is_generation_complete_state = True
    drafted(drafter, requests[0])
    drafted(drafter, requests[0])
    drafter.history.flush()
    assert held(tmp_path / "h") == [(answer, 0)]
    later, right = Request(5, [6, 6], most=20), 0
    for i, token in enumerate(answer[:-1]):
        later.said.append(token)
        right += drafted(drafter, requests[0], later)[1][:1] == answer[i + 1 : i + 2]
    assert right >= 3


def test_one_rank_writes_and_tenants_are_told_apart(version, tmp_path, monkeypatch):
    config = DraftConfig(history=str(tmp_path / "h"), history_by="lora")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    with pytest.raises(UsageError, match='history_by="key": tensorrt-llm'):
        make_drafter(MOST, DraftConfig(history=True, history_by="key"), vocabulary=VOCABULARY)
    for rank in ("1", "0"):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        drafter = make_drafter(MOST, config, vocabulary=VOCABULARY)
        one = Request(1, [1, 2])
        one.lora_task_id = 77
        one.said.append(3)
        drafted(drafter, one)
        one.is_generation_complete_state = True
        drafted(drafter)
        drafter.history.flush()
        assert held(tmp_path / "h" / tenant_folder("77")) == [([3], 0)] * (rank == "0")


def test_the_configuration_is_checked_at_once(monkeypatch, version, caplog):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    drafter = make_drafter(3, DraftConfig(min_probability=0.01, budget=9), vocabulary=VOCABULARY)
    assert "chains in TensorRT-LLM: these keys have no effect: budget" in caplog.messages
    assert drafted(drafter, Request(1, [0, 1, 2, 0, 1])) == [[2, 0, 1]]
    with pytest.raises(ArtifactError):
        make_drafter(3, DraftConfig(datastores=("/nowhere",)), vocabulary=VOCABULARY)
    with pytest.raises(UsageError, match="vocabulary must be known"):
        make_drafter(3, DraftConfig())


def test_without_tensorrt_llm_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(UsageError, match="cannot import TensorRT-LLM"):
        make_drafter(3)
