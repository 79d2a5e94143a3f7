"""Counters beside the engine's own, in its registry of prometheus_client."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from ngramkit.engines import metrics
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.metrics import COUNTERS, EngineCounters, Statistics


class Counter:
    """A stand-in for prometheus_client.Counter, which refuses a name that is taken, and to fall."""

    made: ClassVar[dict[str, Counter]] = {}

    def __init__(self, name, documentation):
        assert name not in self.made
        assert documentation
        self.made[name], self.value = self, 0.0

    def inc(self, amount=1):
        assert amount >= 0
        self.value += amount


@pytest.fixture
def client(monkeypatch):
    metrics.registered_counters.cache_clear()
    Counter.made.clear()
    monkeypatch.setitem(sys.modules, "prometheus_client", SimpleNamespace(Counter=Counter))
    yield Counter.made
    metrics.registered_counters.cache_clear()


def serve(**options):
    drafter = BatchDrafter.open(DraftConfig("context"), vocabulary=100, **options)
    for end in range(30, 36):
        drafter.chain_batch([[*range(10)] * 3 + [*range(end - 30)]], [4])
    return drafter.statistics


def test_counters_are_the_statistics_of_all_drafters(client):
    drafters = [serve(counters=EngineCounters()) for _ in range(2)]
    assert drafters[0].draft_tokens > 0
    assert list(client) == list(COUNTERS)
    for name, (_, attribute) in COUNTERS.items():
        total = sum(getattr(each, attribute) for each in drafters)
        assert client[name].value == pytest.approx(total)
    assert client["ngramkit_draft_calls_total"].value == 12


def test_without_prometheus_client_there_are_none(monkeypatch):
    metrics.registered_counters.cache_clear()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert serve(counters=EngineCounters()).calls == 6
    metrics.registered_counters.cache_clear()


def test_the_real_client_shows_them():
    client = pytest.importorskip("prometheus_client")
    metrics.registered_counters.cache_clear()
    EngineCounters().show(Statistics(draft_tokens=5))
    assert b"ngramkit_draft_tokens_total 5.0" in client.generate_latest()
