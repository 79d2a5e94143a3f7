"""`ngramkit replay`: tokens/step of drafters on recorded answers, without the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngramkit_cli.artifact_options import (
    BigramPath,
    Datastores,
    DrafterChoice,
    FrozenTablePath,
    UnigramPath,
    choose_drafter,
)
from ngramkit_cli.history_options import TOKENS, HistoryPath, HistoryTokens, HistoryUse, NoStore
from ngramkit_cli.options import Debug, Json, Model, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.replay_options import (
    Answers,
    Budgets,
    DrafterNames,
    DropLeaked,
    KeepState,
    Limit,
    Plot,
    Questions,
    Repeat,
    Seed,
    TemplateName,
    parse_budgets,
)
from ngramkit_cli.replay_output import as_json, say
from ngramkit_cli.rest_options import Continuation, MaxMatch, MinMatch, bound

if TYPE_CHECKING:
    from ngramkit.evaluate.records import Record
    from ngramkit.evaluate.replay import Replay


def replay(
    answers: Answers,
    questions: Questions = None,
    template: TemplateName = "vicuna",
    drafter: DrafterNames = None,
    budget: Budgets = "8,16,32,64,96",
    datastore: Datastores = None,
    frozen_table: FrozenTablePath = None,
    bigram: BigramPath = None,
    unigram: UnigramPath = None,
    history: HistoryPath = None,
    history_tokens: HistoryTokens = TOKENS,
    no_store: NoStore = False,
    max_match: MaxMatch = None,
    min_match: MinMatch = None,
    continuation: Continuation = None,
    keep_state: KeepState = False,
    seed: Seed = 0,
    repeat: Repeat = 1,
    drop_leaked: DropLeaked = False,
    limit: Limit = None,
    plot: Plot = None,
    model: Model = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Replay recorded answers: tokens/step of any drafter, without the model.

    Example: ngramkit replay --questions question.jsonl --answers model_answer.jsonl
    --model vicuna-7b --drafter blend --drafter rest --budget 16,64
    """
    with Output("replay", json=json, debug=debug) as out:
        from ngramkit.corpus.tokenizer import load_tokenizer
        from ngramkit.evaluate.records import read_records
        from ngramkit.evaluate.replay import shuffled
        from ngramkit.evaluate.templates import find_template

        budgets = parse_budgets(budget)
        tokenizer = load_tokenizer(the_model(model, out))
        form = find_template(template, tokenizer)
        records = read_records(answers, questions, tokenizer, form)[:limit]
        choices = [
            choose_drafter(
                name,
                tokenizer.record,
                out,
                datastores=datastore,
                frozen_table=frozen_table,
                bigram=bigram,
                unigram=unigram,
                history=HistoryUse(history, history_tokens, store=not no_store, recorded=True),
            )
            for name in drafter or ["blend"]
        ]
        bound(choices, max_match=max_match, min_match=min_match, continuation=continuation)
        records, leakage = _without_leaks(records, choices, drop_leaked, out)
        if keep_state:
            records = shuffled(records * repeat, seed)
        results = _run(choices, budgets, records, keep_state, out)
        say(results, out)
        if plot is not None:
            from ngramkit.evaluate.plot import plot as draw

            draw(results, plot, learning=keep_state)
            out.say(f"picture: {plot}")
        out.result(plot, results=[as_json(r) for r in results], **leakage)


def _without_leaks(
    records: list[Record], choices: list[DrafterChoice], drop: bool, out: Output
) -> tuple[list[Record], dict[str, Any]]:
    """The records to replay, and what the JSON says of leakage."""
    from ngramkit.errors import InputError
    from ngramkit.evaluate.leakage import leaked
    from ngramkit.formats.datastore import Datastore

    paths = {path for choice in choices for path in choice.artifacts.get("datastores", [])}
    flags = leaked(records, [Datastore.open(path) for path in sorted(paths)])
    found = sum(flags)
    if found:
        done = "left out" if drop else "they flatter the figures; --drop-leaked leaves them out"
        out.say(
            f"warning: {found} of {len(records)} answers stand verbatim in a datastore's corpus "
            f"({found / len(records):.1%}): {done}"
        )
    if drop:
        records = [record for record, flag in zip(records, flags, strict=True) if not flag]
        if not records:
            raise InputError("every answer stands in a datastore", "nothing is left to replay")
    return records, {"records": len(records), "leaked": found, "leaked_dropped": drop}


def _run(
    choices: list[DrafterChoice],
    budgets: list[int],
    records: list[Record],
    keep_state: bool,
    out: Output,
) -> list[Replay]:
    from ngramkit.evaluate.replay import replay as replayed

    results = []
    for choice in choices:
        make = _factory(choice)
        for nodes in budgets:
            out.reporter.stage(f"{choice.name}, {nodes} nodes", len(records), "questions")
            result = replayed(
                choice.name, make, records, nodes, keep_state=keep_state, reporter=out.reporter
            )
            results.append(result)
    out.reporter.close()
    return results


def _factory(choice: DrafterChoice) -> Callable[[], Any]:
    """Opens the artifacts once; every drafter that it makes has seen nothing."""
    from ngramkit.formats.kinds import open_artifact

    opened = {
        kind: [open_artifact(p) for p in paths] if isinstance(paths, list) else open_artifact(paths)
        for kind, paths in choice.artifacts.items()
    }
    return replace(choice, artifacts=opened).load
