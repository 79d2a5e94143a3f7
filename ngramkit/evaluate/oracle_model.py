"""A loaded model as an oracle's: asked for what is not on record, a pass at a time."""

from __future__ import annotations

import numpy as np
import torch

from ngramkit.decode.base import ResumableVerifier
from ngramkit.decode.load import DTYPES, LanguageModel
from ngramkit.decode.pass_options import PassOptions
from ngramkit.decode.task import Task
from ngramkit.decode.tops import best_and_tops
from ngramkit.decode.verify import TreeVerifier
from ngramkit.drafters.base import NOTHING, DraftTree, TokenArray, common_beginning
from ngramkit.errors import UsageError
from ngramkit.evaluate.branches import Branches, by_place, in_parts
from ngramkit.evaluate.oracle import Likeliest
from ngramkit.evaluate.recording import BUDGET
from ngramkit.formats.evidence import KEPT, EvidenceFolder
from ngramkit.progress import Reporter

MOST_ROWS = 512  # of a pass: logits of a large vocabulary take 100 MB


class AskedModel:
    """Texts that begin alike are read once as far as they do; a draft's rows take one pass, and so
    do branches of many drafts."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._verifier: ResumableVerifier | None = None
        self._prompt = self._held = NOTHING

    def begin(self, prompt: TokenArray) -> None:
        self._prompt = prompt

    def after_prompt(self) -> Likeliest:
        with torch.inference_mode():
            self._verifier, self._held = self._task.open(self._prompt), self._prompt
            return _likeliest(self._verifier.prefill(self._prompt))

    def after_draft(self, written: TokenArray, tree: DraftTree) -> Likeliest:
        with torch.inference_mode():
            read = np.concatenate([self._prompt, written[:-1]])
            return _likeliest(self._having_read(read).verify(int(written[-1]), tree))

    def after_branches(self, written: TokenArray, branches: Branches) -> Likeliest:
        with torch.inference_mode():
            held = np.concatenate([self._prompt, written])
            if isinstance(self._having_read(held), TreeVerifier):
                parts = [self._of_branches(held, part) for part in in_parts(branches, MOST_ROWS)]
            else:
                parts = [self._one_place(written, part) for part in by_place(branches)]
        ids, log_probs = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(log_probs)

    def _of_branches(self, held: TokenArray, branches: Branches) -> Likeliest:
        verifier = self._having_read(held)
        assert isinstance(verifier, TreeVerifier)
        after = branches.after + np.int32(len(self._prompt))
        wanted = np.flatnonzero(branches.wanted)
        return _likeliest(
            verifier.verify_branches(branches.tokens, branches.parents, after, wanted)
        )

    def _one_place(self, written: TokenArray, branches: Branches) -> Likeliest:
        """Of branches that hang in one place: a draft's nodes, as any verifier knows them."""
        nothing = np.zeros(len(branches.tokens), np.float32)
        tree = DraftTree(branches.tokens, branches.parents, nothing, nothing.astype(np.uint8))
        ids, log_probs = self.after_draft(written[: branches.after[0]], tree)
        return ids[1:][branches.wanted], log_probs[1:][branches.wanted]

    def _having_read(self, tokens: TokenArray) -> ResumableVerifier:
        shared = common_beginning(self._held, tokens)
        if self._verifier is None or shared == 0:
            self._verifier = self._task.open(self._prompt)
        elif shared < self._verifier.length:
            self._verifier.rewind(shared)
        if self._verifier.length < len(tokens):
            self._verifier.prefill(tokens)
        self._held = tokens
        return self._verifier


def _likeliest(logits: torch.Tensor) -> Likeliest:
    tops = best_and_tops(logits, KEPT)[1]
    return tops.ids, tops.log_probs


def asked_model(
    folder: EvidenceFolder, model: str | LanguageModel, reporter: Reporter
) -> AskedModel:
    """The model that `folder` was recorded of, loaded as it was then.

    Raises UsageError where it is another, or one whose passes verify no trees.
    """
    dtype = folder.plan.get("dtype")
    passes = PassOptions(budget=BUDGET, dtype=dtype if dtype in DTYPES else "auto")
    loaded = passes.load(model, reporter)
    named = folder.plan.get("model")
    if loaded.name != named:
        raise UsageError(
            f"{folder.path} was recorded of {named!s:.80}, not of {loaded.name}",
            f"give model={named!s:.80}, or none",
            option="model",
        )
    folder.tokenizer.require(loaded.tokenizer.record, str(folder.path))
    runner = passes.runner(loaded, reporter)
    if runner.verify == "chain":
        raise UsageError(f"{loaded.name} verifies no trees", "leave out model", option="model")
    return AskedModel(Task(loaded, runner, folder.plan.get("max_new_tokens", 1)))
