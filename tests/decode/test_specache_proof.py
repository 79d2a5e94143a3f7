"""Copies that run beside the passes prove themselves first; a stand-in for each fault."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_model

from ngramkit.decode.specache import proof
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.store import InLine
from ngramkit.errors import UsageError

OPTIONS = SpeCache(bits=1, group=8, top_k=4, residual=8)


class Beside(InLine):
    """A copy happens when its mark is waited for, as late as on a stream it may."""

    def __init__(self):
        self.begun, self.marks, self.waits = [], 0, 0

    def copy(self, target, source, *, now=False):
        self.begun.append((target, source.clone()))

    def mark(self):
        self.marks += 1
        return self.marks

    def wait(self, mark):
        self.waits += 1
        for target, source in self.begun:
            target.copy_(source)
        self.begun.clear()

    wait_here = wait


class NeverThere(Beside):
    """What comes back to the device is not there when it is read."""

    def wait(self, mark):
        self.waits += 1


class Torn(Beside):
    """The last head of what is stored is not copied."""

    def copy(self, target, source, *, now=False):
        if source.dtype.is_floating_point and not now:
            target, source = target[:-1], source[:-1]
        super().copy(target, source, now=now)


class Failing(InLine):
    def copy(self, target, source, *, now=False):
        raise RuntimeError("CUDA error: invalid argument\nand more")


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama", head_dim=8)


def test_copies_as_late_as_a_stream_makes_them_are_found_right(model):
    late = Beside()
    assert proof.fault(model, OPTIONS, late) == ""
    assert late.waits > proof.STEPS


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (NeverThere, "lead to other logits in pass"),
        (Torn, "other"),
        (Failing, "fail (RuntimeError: CUDA error: invalid argument)"),
    ],
)
def test_a_fault_ends_in_copies_in_line_and_is_said(model, kind, said, caplog):
    assert type(proof.proven(model, OPTIONS, kind)) is InLine
    [line] = [record.getMessage() for record in caplog.records]
    assert said in line
    assert line.startswith("copies beside the passes of llama")
    assert line.endswith("; they are made in line")


def test_what_was_proven_is_not_tried_again():
    model, made = tiny_model("llama", head_dim=8), []

    def make():
        made.append(Beside())
        return made[-1]

    assert proof.proven(model, OPTIONS, make) is made[-1]
    tried = len(made)
    assert proof.proven(model, OPTIONS, make) is made[-1]
    assert len(made) == tried + 1
    assert made[-1].waits == 0


def test_a_cpu_copies_in_line_without_a_trial(model, monkeypatch):
    monkeypatch.setattr(proof, "fault", None)
    assert type(proof.copies_of(model, OPTIONS)) is InLine


def test_memory_that_runs_out_is_raised(model):
    class Full(InLine):
        def copy(self, target, source, *, now=False):
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        proof.fault(model, OPTIONS, Full())


def test_options_that_do_not_fit_are_told_before_any_trial(model):
    from ngramkit.decode.specache.decoding import specache_verifier

    with (
        pytest.raises(UsageError, match="group"),
        specache_verifier(model, SpeCache(bits=1, group=24, residual=24), room=64),
    ):
        pass
