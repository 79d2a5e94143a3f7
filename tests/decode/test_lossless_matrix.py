"""Every drafter x every way to verify x every architecture: model.generate's tokens, in float32.

What is asked for is a tree or rows; a model that counts columns is given rows
whatever is asked.
"""

from __future__ import annotations

import numpy as np
import pytest
from attacks import tally
from knowing_drafters import knowing_drafters
from lossless import decoded, references
from scripted import WideOracle
from tiny_models import ARCHITECTURES, ROWS_ONLY, tiny_model

from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.verifiers import choose_verify_mode, open_verifier
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.registry import DRAFTERS

WAYS = {
    "tree": ({"mode": "tree"}, TreeVerifier),
    "batch": ({"mode": "batch"}, BatchVerifier),
}
CASES = [
    *((name, way) for name in ARCHITECTURES for way in WAYS),
    *((name, "tree") for name in ROWS_ONLY),
]
cases = pytest.mark.parametrize(
    ("architecture", "way"), CASES, indirect=["architecture"], scope="module"
)
BUDGET_OF_KNOWN, OTHER_BUDGETS = 64, (1, 4, 16)


@pytest.fixture(scope="module")
def architecture(request, token_store, tokenizer, tmp_path_factory):
    """(name, model, references, drafters); the drafters know every other answer."""
    model = tiny_model(request.param)
    found = references(model, tokenizer, count=4)
    texts = [np.concatenate([each.prompt, each.answer]) for each in found[::2]]
    folder = tmp_path_factory.mktemp("knowing")
    drafters = knowing_drafters(texts, token_store, tokenizer.record, folder)
    return request.param, model, found, drafters


def opened(name, way):
    """What a user gets who asks for `way`, as a verifier class."""
    asked, expected = WAYS[way]
    expected = BatchVerifier if name in ROWS_ONLY else expected

    def verifier(model, *, room):
        found = open_verifier(model, choose_verify_mode(model, **asked), room=room)
        assert type(found) is expected
        return found

    return verifier


@cases
def test_drafts_change_nothing_but_the_passes(architecture, way):
    """Each drafter decodes an answer that it knows, every second one also one that it does not;
    which ones, and their budgets, change from case to case."""
    name, model, found, drafters = architecture
    for i, drafter in enumerate(DRAFTERS, CASES.index((name, way))):
        known, other = found[i % 2 * 2], found[i // 2 % 2 * 2 + 1]
        steps = []
        tried = [(known, BUDGET_OF_KNOWN), (other, OTHER_BUDGETS[i // 2 % 3])][: 1 + i % 2]
        for reference, budget in tried:
            run = decoded(
                model, drafters[drafter], reference, budget, verified_by=opened(name, way)
            )
            np.testing.assert_array_equal(run.token_ids, reference.answer, f"{drafter} {budget}")
            steps.append(run.tokens_per_step)
        # Without an accepted draft nothing would have been proven.
        assert (max(steps) > 1) == (drafter != "none"), drafter


@pytest.mark.attack
@cases
def test_sixty_siblings_change_nothing(architecture, way):
    name, model, found, _ = architecture
    for reference in found:
        answer = reference.answer
        left = iter(range(len(answer) - 1, -1, -1))
        # More tokens than are asked for, or the draft would be cut to what is left of them.
        request = Request(
            reference.prompt, 80, 66, eos=frozenset({0}), stop=lambda _, left=left: not next(left)
        )
        verifier = opened(name, way)(model, room=len(reference.prompt) + 2)
        run = decode(verifier, WideOracle(answer), request)
        np.testing.assert_array_equal(run.token_ids, answer)
        assert run.accepted_per_pass[0] == min(7, len(answer) - 1)
        tally(f"drafts of 66 nodes, {len(ARCHITECTURES) + len(ROWS_ONLY)} architectures",
              "the model's own text")  # fmt: skip
