"""`ngramkit replay`: tokens/step of drafters on recorded answers, without the model."""

from __future__ import annotations

from ngramkit_cli.option_groups import takes_groups
from ngramkit_cli.options import Debug, Json, Limit, Model, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import TemplateOfQuestions
from ngramkit_cli.replay_options import (
    Answers,
    Budgets,
    DropLeaked,
    KeepState,
    Plot,
    Questions,
    RecordFolder,
    Repeat,
    ReplaySources,
    Seed,
    parse_budgets,
)
from ngramkit_cli.replay_output import say
from ngramkit_cli.source_options import DrafterNames
from ngramkit_cli.staging_options import takes_urls


@takes_urls
@takes_groups
def replay(
    *,
    answers: Answers = None,
    questions: Questions = None,
    oracle: RecordFolder = None,
    template: TemplateOfQuestions = "auto",
    drafter: DrafterNames = None,
    budget: Budgets = "8,16,32,64,96",
    sources: ReplaySources,
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

    With --oracle DIR in place of --answers, drafters also get the evidence that ngramkit record
    has kept: the model's top-k at verified nodes.

    Example: ngramkit replay --questions question.jsonl --answers model_answer.jsonl
    --model vicuna-7b --drafter blend --drafter rest:max_match=8 --budget 16,64
    """
    with Output("replay", json=json, debug=debug) as out:
        from ngramkit.choose import DRAFTER
        from ngramkit.evaluate import replay

        budgets = parse_budgets(budget)
        if plot is not None:
            from ngramkit.evaluate.plots import require_picture

            require_picture(plot)
        results = replay.replay(
            answers,
            questions,
            model=model if oracle is not None else the_model(model, out),
            drafters=drafter or DRAFTER,
            budgets=budgets,
            artifacts=sources.sources(),
            template=template,
            keep_state=replay.KeepState(seed, repeat) if keep_state else None,
            drop_leaked=drop_leaked,
            limit=limit,
            oracle=oracle,
            reporter=out.reporter,
        )
        out.reporter.close()
        say(results, out)
        if plot is not None:
            from ngramkit.evaluate.plots import plot as draw

            draw(results.results, plot, learning=keep_state, by_bytes=results.by_bytes())
            out.say(f"picture: {plot}")
        out.result(plot, **results.to_dict())
