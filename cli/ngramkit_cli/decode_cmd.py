"""`ngramkit decode`: the prompt in, the model's own text out, several tokens a pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from ngramkit_cli import decode_options as opt
from ngramkit_cli.artifact_options import (
    BigramPath,
    Datastores,
    FrozenTablePath,
    UnigramPath,
    choose_drafter,
)
from ngramkit_cli.history_options import TOKENS, HistoryPath, HistoryTokens, HistoryUse, NoStore
from ngramkit_cli.options import Debug, Json, the_model
from ngramkit_cli.output import INTERRUPTED, Output
from ngramkit_cli.prompt import Chat, Prompt, PromptFile, read_prompt
from ngramkit_cli.rest_options import Continuation, MaxMatch, MinMatch, bound
from ngramkit_cli.streaming import Screen

if TYPE_CHECKING:
    from ngramkit.decode.complete import Comparison
    from ngramkit.decode.result import Decoded

ENDS = {"context": "; the model's context is full", "interrupt": "; interrupted"}


def decode(
    drafter: opt.DrafterName = None,
    model: opt.Model = None,
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
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    chat: Chat = False,
    max_new_tokens: opt.NewTokens = 128,
    temperature: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    top_k: opt.TopK = 0,
    seed: opt.Seed = 0,
    budget: opt.BudgetOrAuto = None,
    verify: opt.Verify = None,
    engine: opt.Engine = "auto",
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    stop: opt.Stop = None,
    compare: opt.Compare = False,
    color: opt.Color = True,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Decode with drafts: what the model would have written alone, in fewer passes.

    Example: ngramkit decode --drafter rest --prompt "def main(" --compare
    """
    with Output("decode", json=json, debug=debug) as out:
        from ngramkit.decode.complete import Task, complete, warm_up
        from ngramkit.decode.complete import compare as both
        from ngramkit.decode.load import load_model
        from ngramkit.decode.prompt import chat_ids, prompt_ids
        from ngramkit.decode.sampling import Sampling
        from ngramkit.drafters import drafter_entry

        sampling = Sampling(temperature, top_k, top_p, seed)
        name = the_model(model, out)
        text = read_prompt(prompt, prompt_file, name, out)
        if drafter is not None:
            drafter_entry(drafter)
        loaded = load_model(name, device=device, dtype=dtype)
        tokenizer = loaded.tokenizer
        ids = chat_ids(tokenizer, text) if chat else prompt_ids(tokenizer, text)
        choice = choose_drafter(
            drafter,
            tokenizer.record,
            out,
            datastores=datastore,
            frozen_table=frozen_table,
            bigram=bigram,
            unigram=unigram,
            history=HistoryUse(
                history, history_tokens, store=not no_store, least_score=loaded.least_score
            ),
        )
        bound([choice], max_match=max_match, min_match=min_match, continuation=continuation)
        nodes, profile = opt.chosen_budget(budget, loaded, verify, engine, out)
        stops = tuple(stop or ())
        task = Task(ids, max_new_tokens, nodes, sampling, stops, verify, profile, engine)
        warm_up(loaded, choice.load_to_try(), task)
        screen = Screen(tokenizer.backend, ids, sys.stderr if json else sys.stdout, color=color)
        run = complete(loaded, choice.load(), task, screen.show)
        screen.end()
        comparison = None
        if compare and run.ended_by != "interrupt":
            comparison = both(loaded, choice.load_to_try, task)
            run = comparison.drafted
        say_times(out, run, comparison, greedy=sampling.greedy)
        artifacts = " ".join(map(str, choice.paths)) or None
        out.result(artifacts, text=screen.text, **facts(run, comparison))
        if run.ended_by == "interrupt":
            raise typer.Exit(INTERRUPTED)


def say_times(out: Output, run: Decoded, comparison: Comparison | None, *, greedy: bool) -> None:
    """tokens, passes, tokens/step, tokens/s, where the time went, and what drafts brought."""
    shares = {
        "prefill": run.prefill_seconds,
        "drafting": run.draft_seconds,
        "verifying": run.verify_seconds,
        "the rest": run.other_seconds,
    }
    times = ", ".join(f"{name} {share:.3f} s" for name, share in shares.items())
    out.say(
        f"{len(run.token_ids)} tokens, {run.passes} passes, {run.tokens_per_step:.2f} tokens/step, "
        f"{run.tokens_per_second:,.1f} tokens/s ({times}){ENDS.get(run.ended_by, '')}"
    )
    if comparison is not None:
        out.say(
            f"{comparison.drafted.seconds:.3f} s, without drafts {comparison.baseline.seconds:.3f}"
            f" s: speed-up {comparison.speedup:.2f}, {sameness(comparison, greedy=greedy)}"
        )


def sameness(comparison: Comparison, *, greedy: bool) -> str:
    if comparison.identical:
        return "output identical"
    if greedy:
        return "output NOT identical: in 16 bits a near tie falls either way; try --dtype float32"
    return "output differs: of sampled text only the distribution is the same"


def facts(run: Decoded, comparison: Comparison | None) -> dict[str, Any]:
    """The JSON keys."""
    found: dict[str, Any] = {
        "token_ids": run.token_ids.tolist(),
        "prompt_tokens": run.prompt_tokens,
        "new_tokens": len(run.token_ids),
        "passes": run.passes,
        "tokens_per_step": round(run.tokens_per_step, 4),
        "tokens_per_second": round(run.tokens_per_second, 3),
        "draft_seconds": round(run.draft_seconds, 6),
        "verify_seconds": round(run.verify_seconds, 6),
        "accept_lengths": run.accept_lengths,
    }
    if comparison is not None:
        found["baseline_seconds"] = round(comparison.baseline.seconds, 6)
        found["speedup"] = round(comparison.speedup, 4)
        found["identical"] = comparison.identical
    return found
