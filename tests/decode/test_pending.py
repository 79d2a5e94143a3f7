"""A model that is loaded later, and says so while it is."""

from __future__ import annotations

from ngramkit.basics.progress import Reporter
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import open_pending_model


def test_loading_is_a_stage_once():
    stages = []

    class Stages(Reporter):
        def stage(self, name, total=None, unit="tokens"):
            stages.append(name)

    pending = open_pending_model(DecodeOptions("demo", reporter=Stages()))
    assert stages == []
    assert pending.load() is pending.load()
    assert stages == ["loading demo"]
