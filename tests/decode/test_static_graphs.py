"""Capture and replay, without a GPU: on a stand-in for torch.cuda, and on tensors that have a
device and a shape only."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from scripted import tree_of
from tape import FakeCuda, HostWaitsError, Noting, Tape, tensors
from test_static import CLOSE, PROMPT, compared
from tiny_models import FEW, tiny_model

from ngramkit.decode import static
from ngramkit.decode.static import FIRST_REACH, StaticVerifier
from ngramkit.decode.static_cache import StaticCache, layer_shapes
from ngramkit.decode.static_graphs import CudaGraphs
from ngramkit.decode.static_pass import StaticPass, packed
from ngramkit.decode.verify_tree import TreeVerifier

# The frequencies grow with the longest position seen, for which transformers asks the device.
WAITING = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}


@pytest.fixture
def graphs(monkeypatch):
    """graphs(finds_waits=...) -> FakeCuda; everything opened from then on is captured on it."""

    def install(**options):
        monkeypatch.setattr(static, "POOLS", weakref.WeakKeyDictionary())
        monkeypatch.setattr(
            static, "recorder_for", lambda model: CudaGraphs("tiny", torch.device("cpu"))
        )
        return FakeCuda(**options).install(monkeypatch)

    return install


def test_captured_passes_are_replayed(graphs):
    cuda = graphs()
    model = tiny_model("qwen2")
    verifier = compared(model, 1, [5, 0, 3, 20, 0, 8, 30])
    assert len(cuda.graphs) == 3  # 1, 9 and 33 rows
    assert len({pool for _, pool in cuda.graphs}) == 1
    assert cuda.current == "the caller's"
    compared(model, 2, [5, 0], room=200)  # beside the first, which is still there
    assert len({pool for _, pool in cuda.graphs}) == 2
    verifier.require(FIRST_REACH + 1)
    assert cuda.synchronized == torch.device("cpu")


@pytest.mark.parametrize("finds_waits", [True, False])
def test_what_cannot_be_captured_runs_as_it_is_and_that_is_said_once(graphs, finds_waits, caplog):
    cuda = graphs(finds_waits=finds_waits)
    model = tiny_model("llama", **WAITING)
    compared(model, 1, [5, 0, 3, 20, 0])
    compared(model, 2, [5, 40])
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 2)  # another pool
    compared(model, 3, [5])
    assert len(cuda.graphs) == (0 if finds_waits else 1)
    assert cuda.current == "the caller's"
    assert [record.getMessage() for record in caplog.records] == [
        "a pass of tiny cannot be captured as a CUDA graph "
        "(aten._local_scalar_dense.default makes the host wait); it runs uncaptured"
    ]


def test_errors_of_the_pass_itself_are_raised(graphs):
    graphs()
    model = tiny_model("llama")
    verifier = StaticVerifier(model, room=40)
    verifier.prefill(PROMPT)

    def forward(*args, **kwargs):
        raise torch.OutOfMemoryError("out of memory")

    model.forward = forward
    with pytest.raises(torch.OutOfMemoryError):
        verifier.verify(1, tree_of([(3, -1)]))


def test_the_tape_finds_what_a_recording_would_get_wrong():
    """Or the tests that use it prove nothing."""
    numbers = torch.arange(6.0)
    host = {"factor": 2}
    replay = Tape().record(lambda: (numbers * host["factor"]).sum(0, keepdim=True), None)
    host["factor"] = 3
    numbers += 1
    assert replay().item() == 2 * 21
    for body in (
        lambda: numbers[numbers > 2],
        lambda: numbers.nonzero(),
        lambda: numbers[1].item(),
    ):
        with pytest.raises(HostWaitsError):
            Tape().record(body, None)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("nodes", [0, 5])
def test_a_pass_stays_on_its_device(name, nodes):
    """On tensors without content: what would ask for it, or copy from the host, is found."""
    with torch.device("meta"):
        model = tiny_model(name)
    with torch.inference_mode():
        cache = StaticCache(layer_shapes(model), 512, model.device)
        tree = tree_of([(7, node - 1) for node in range(nodes)])
        told = torch.zeros(len(packed(9, 3, tree)), dtype=torch.int64, device="meta")
        with Noting() as noting:
            logits = StaticPass(model).run(cache, told, 256)
    assert logits.is_meta
    seen = tensors([[args, kwargs, result] for _, args, kwargs, result in noting.operations])
    assert len(seen) > 100
    # A number may come from the host, it is an argument like others; a tensor may not.
    assert all(each.is_meta for each in seen if each.dim())


def test_tokens_that_do_not_matter_change_nothing():
    """What lies behind the accepted tokens, from a rejected draft, is never seen."""
    model = tiny_model("gemma2")
    ours, other = StaticVerifier(model, room=40), TreeVerifier(model, room=40)
    rejected = tree_of([(token, -1) for token in range(50, 90)])
    with torch.inference_mode():
        for each in (ours, other):
            each.prefill(PROMPT)
            each.verify(1, rejected)
            each.keep([])
        tree = tree_of([(3, -1), (4, 0)])
        torch.testing.assert_close(ours.verify(7, tree), other.verify(7, tree), **CLOSE)
    assert np.isfinite(ours.verify(7, tree).numpy()).all()
