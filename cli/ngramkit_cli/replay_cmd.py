"""`ngramkit replay`: tokens/step of drafters on recorded answers, without the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli.artifact_options import (
    BigramPath,
    Datastores,
    DrafterChoice,
    FrozenTablePath,
    UnigramPath,
    choose_drafter,
)
from ngramkit_cli.history_options import TOKENS, HistoryPath, HistoryTokens, HistoryUse, NoStore
from ngramkit_cli.options import Debug, Json, Model, said_model
from ngramkit_cli.output import Output
from ngramkit_cli.rest_options import Continuation, MaxMatch, MinMatch, bound

if TYPE_CHECKING:
    from ngramkit.evaluate.records import Record
    from ngramkit.evaluate.replay import Replay

Answers = Annotated[
    Path,
    typer.Option(
        "--answers",
        metavar="FILE",
        help="Recorded answers, jsonl: FastChat or Spec-Bench (with --questions), or lines with "
        "prompt and output, or with messages.",
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option("--questions", metavar="FILE", help="FastChat's or Spec-Bench's questions."),
]
TemplateName = Annotated[
    str,
    typer.Option(help="How prompts were built: vicuna, chatml, llama-2, mistral, none, tokenizer."),
]
DrafterNames = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="NAME", help="May be repeated. Default: blend."),
]
Budgets = Annotated[str, typer.Option("--budget", metavar="N,N,...", help="Draft nodes per pass.")]
KeepState = Annotated[
    bool,
    typer.Option("--keep-state", help="One drafter for all questions, for those that learn."),
]
Seed = Annotated[int, typer.Option("--seed", help="The questions' order with --keep-state.")]
Repeat = Annotated[
    int,
    typer.Option("--repeat", min=1, help="With --keep-state: every question comes N times."),
]
DropLeaked = Annotated[
    bool, typer.Option("--drop-leaked", help="Leave out answers that stand in a datastore.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N questions.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the results.")]


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
    model: Model = "demo",
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

        budgets = _budgets(budget)
        out.say(said_model(model))
        tokenizer = load_tokenizer(model)
        form = find_template(template, tokenizer.full)
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
        _say(results, out)
        if plot is not None:
            from ngramkit.evaluate.plot import plot as draw

            draw(results, plot, learning=keep_state)
            out.say(f"picture: {plot}")
        out.result(plot, results=[_as_json(r) for r in results], **leakage)


def _budgets(text: str) -> list[int]:
    from ngramkit.errors import UsageError

    try:
        budgets = [int(part) for part in text.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 1:
        raise UsageError(f"--budget {text!r} is not a list of numbers of nodes", "like 8,16,64")
    return list(dict.fromkeys(budgets))


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
    from ngramkit.drafters import load_drafter
    from ngramkit.formats.kinds import open_artifact

    opened = {
        kind: [open_artifact(p) for p in paths] if isinstance(paths, list) else open_artifact(paths)
        for kind, paths in choice.artifacts.items()
    }
    return lambda: load_drafter(choice.name, **opened, **choice.parameters)


def _say(results: list[Replay], out: Output) -> None:
    from ngramkit.evaluate.replay import categories

    names = list(dict.fromkeys(r.drafter for r in results))
    budgets = sorted({r.budget for r in results})
    cell = {(r.drafter, r.budget): r for r in results}
    width = max(map(len, names)) + 2
    passes = f"{results[0].total.tokens:,} tokens after the prefills'"
    out.say(f"\ntokens/step by draft nodes per pass ({passes})")
    out.say(" " * width + "".join(f"{b:>8}" for b in budgets))
    for name in names:
        row = "".join(f"{cell[name, b].total.tokens_per_step:8.3f}" for b in budgets)
        out.say(name.ljust(width) + row)
    widest = [cell[name, budgets[-1]] for name in names]
    out.say(f"\nwith {budgets[-1]} nodes")
    out.say(" " * width + "draft p50    p99   empty   accepted 0, 1, 2, ... of passes")
    for r in widest:
        t = r.total
        shares = " ".join(f"{_share(t.accepted[i], t.passes):.0%}" for i in range(8))
        more = sum(n for i, n in t.accepted.items() if i >= 8)
        out.say(
            f"{r.drafter.ljust(width)}{t.draft_us(50):6.0f} us {t.draft_us(99):5.0f} us  "
            f"{_share(t.empty, t.passes):4.0%}   {shares}, more {_share(more, t.passes):.0%}"
        )
    out.say("\nby category")
    shown = categories(results)
    out.say(" " * width + "".join(f"{c[:11]:>12}" for c in shown))
    for r in widest:
        out.say(
            r.drafter.ljust(width)
            + "".join(f"{r.by_category[c].tokens_per_step:12.3f}" for c in shown)
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _as_json(result: Replay) -> dict[str, Any]:
    total = result.total
    return {
        "drafter": result.drafter,
        "budget": result.budget,
        "tokens": total.tokens,
        "passes": total.passes,
        "tokens_per_step": total.tokens_per_step,
        "draft_us_p50": total.draft_us(50),
        "draft_us_p99": total.draft_us(99),
        "empty_share": _share(total.empty, total.passes),
        "accepted_lengths": {str(n): total.accepted[n] for n in sorted(total.accepted)},
        "reliability": result.reliability.rows(),
        "by_category": {
            category: {
                "tokens": tally.tokens,
                "passes": tally.passes,
                "tokens_per_step": tally.tokens_per_step,
            }
            for category, tally in result.by_category.items()
        },
    }
