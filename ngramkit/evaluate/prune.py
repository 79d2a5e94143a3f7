"""`ngramkit.prune`: make an artifact smaller, judged by recorded answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import parse_size
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import require_template
from ngramkit.corpus.tokenizer import load_tokenizer_of
from ngramkit.drafters.base import TokenArray
from ngramkit.evaluate.records import read_records
from ngramkit.formats.artifact import Artifact
from ngramkit.remote.fetch import default_output, fetch_artifact
from ngramkit.remote.publishing import require_out

PROMPT_CONTEXT = 8  # tokens of the prompt, for an answer's first n-grams


def prune(
    source: str | Path | Artifact,
    bytes: int | str,
    out: str | Path | None = None,
    *,
    answers: str | Path | None = None,
    questions: str | Path | None = None,
    model: str | Path | None = None,
    template: str = "auto",
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
) -> Artifact:
    """Write a datastore or frozen table of at most `bytes` ("2G"), with the best drafts per byte.

    `answers`, `questions`: recorded answers as in `replay`, to measure drafts (default: the
    artifact's own text), read with `model` (default: the artifact's) and `template`. `out`: default
    next to the artifact. Raises UsageError for other kinds, and for `bytes` that are too few.
    """
    size = parse_size(bytes) if isinstance(bytes, str) else check_type("bytes", bytes, [int])
    require_template(template)
    artifact = fetch_artifact(source, reporter=reporter)
    place = out or f"{default_output(source)}-{bytes}"
    require_out(place, force=force)
    texts: list[TokenArray] = []
    if answers is not None:
        texts = _answers_to_judge_by(artifact, answers, questions, model, template, reporter)
    else:
        unused = {"questions": questions, "model": model, "template": template}
        for name in [name for name, value in unused.items() if value not in (None, "auto")]:
            raise UsageError(
                f"cannot use {name} without answers", "Give both, or neither.",
                option=(name, "answers"),
            )  # fmt: skip
    from ngramkit.builders.prune_by_worth import prune_artifact

    return prune_artifact(artifact, place, size, answers=texts, reporter=reporter, force=force)


def _answers_to_judge_by(
    artifact: Artifact,
    answers: str | Path,
    questions: str | Path | None,
    model: str | Path | None,
    template: str,
    reporter: Reporter,
) -> list[TokenArray]:
    tokenizer = load_tokenizer_of(artifact, model)
    records, _ = read_records(answers, questions, tokenizer, template, reporter=reporter)
    turns = [turn for record in records for turn in record.turns]
    return [np.concatenate([turn.prompt[-PROMPT_CONTEXT:], turn.answer]) for turn in turns]
