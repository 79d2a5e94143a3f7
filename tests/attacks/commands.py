"""The commands that test_kills kills: all that write or replace files, on a few bytes each.

Imported once by the process that forks them all, and by test_kills for their names. Every `run` is
what the command line calls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.builders import model_bigram
from ngramkit.builders.merge import merge
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.evaluate.bench_figures import write_answers
from ngramkit.evaluate.bench_runs import QuestionRun, Runs, TurnRun
from ngramkit.evaluate.provenance import Provenance
from ngramkit.evaluate.result_folder import Contents, replace_folder, write_folder
from ngramkit.formats.eviction import drop_matching, keep_newest_requests
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.history import History, merge_histories as history_merge
from ngramkit.formats.opening import verify_artifact
from ngramkit.formats.replacing import replace_text
from ngramkit.formats.request_log import PastRequest
from ngramkit.logs.history_commands import history_import
from ngramkit.logs.request import LoggedRequest
from ngramkit.logs.request_tokenizer import RequestTokenizer
from ngramkit.recipes import build

from .exchange_commands import exported, imported
from .hub_commands import hub_commands
from .killing import Command, files_below
from .made import RECIPE, RECORD, datastore, each, frozen, source, texts, tiny, tokens


def bigram(k: int) -> None:

    model_bigram.SAVE_SECONDS = 0.0  # every part of the work is kept
    model_bigram.build_model_bigram(*tiny(), "x", k=k, width=2, force=True)


def unigram(k: int) -> None:
    from ngramkit.builders import model_unigram

    model_unigram.build_model_unigram(*tiny(), "x", k=k, force=True)


def recipe(followers: int) -> None:
    Path("x.toml").write_text(RECIPE % followers)
    build("x.toml", ".", workers=1)


def remember() -> None:
    """Do what decode --history does with two requests."""
    past = PastRequests(History.at("x", RECORD), rebuild_tokens=8, background=False)
    for begin in (0, 10):
        past.remember(np.arange(begin, begin + 10, dtype=np.int32), 3)
    past.wait()


def requests() -> Any:
    """Return the requests of the history at x, all of it verified."""
    if not Path("x/manifest.json").exists():
        return None
    list(verify_artifact("x"))
    return [request.tokens.tolist() for request in History.open("x").log.read().requests]


def some_requests() -> Any:
    """Check a history: whole requests, the first of the two first; a rerun adds both again."""
    found = requests()
    each_one = [list(range(10)), list(range(10, 20))]
    assert found is None or all(request in each_one for request in found), found
    return found if found and len(found) % 2 == 0 and found[:2] == each_one else None


def log() -> None:
    rows = [{"prompt": "", "output": text} for text in LOGGED]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def logged_requests() -> Any:
    """Check a history of the log: as `some_requests`."""
    found = requests()
    encode = RequestTokenizer(load_tokenizer("demo"))
    each_one = [encode(LoggedRequest("", text)).output.tolist() for text in LOGGED]
    assert found is None or all(request in each_one for request in found), found
    return found if found and len(found) % 2 == 0 and found[:2] == each_one else None


def bench(seed: int, *, force: bool = False) -> None:
    """Return the files of a benchmark, without the seconds that a model takes."""
    plan = {"model": "a", "seed": seed, "drafters": ["none"]}
    runs = Runs(Path("x"), plan, force=force)
    for question in range(3):
        if ("none", str(question)) not in runs.found:
            turn = TurnRun("text", [1, 2, 3], [1, 1], 1.0, 0.5, 0.1, 0.4)
            runs.add(QuestionRun("none", question, "all", [turn]))
    write_answers(Path("x"), "a", runs, "none")
    provenance = Provenance(None, {}, [], {}, [], {}, {}, date="")
    write_folder(Path("x"), Contents("bench", {"plan": plan}, [], []), provenance)
    replace_text(Path("x/report.html"), f"<p>{seed}</p>")


def replayed(number: int) -> None:
    provenance = Provenance(None, {}, [], {}, [], {}, {}, date="")
    contents = Contents("replay", {"number": number}, [{"number": number}], [])
    replace_folder(Path("x"), contents, provenance, force=True)


def measured() -> Any:
    """Return which benchmark is at x; every line of it is whole, or will be dropped."""
    first = Path("x/runs.jsonl").read_text().splitlines() if Path("x/runs.jsonl").exists() else []
    if not first:
        return None
    plan = json.loads(first[0])["plan"]
    Runs(Path("x"), plan)
    return plan["seed"]


def finished() -> Any:
    found = {name: files_below(Path()).get(f"x/{name}") for name in ("runs.jsonl", "report.html")}
    return {"names": sorted(files_below(Path())), **found}


def several_requests() -> None:
    for name in ("x", "other"):
        past = PastRequests(History.at(name, RECORD), rebuild_tokens=8, background=False)
        for n in range(4):
            past.remember(np.arange(n, n + 9, dtype=np.int32), 2)


def begins_odd(request: PastRequest) -> bool:
    return int(request.tokens[0]) % 2 == 1


def merged_tables() -> None:
    merge([FrozenTable.open("one"), FrozenTable.open("two")], "x", force=True)


def merged_histories() -> None:
    try:
        history_merge([History.open("x"), History.open("other")], Path("y"))
    except UsageError:  # it has no --force: what is there is whole, and stays
        assert Path("y").exists()


LOGGED = ("a = 1\n", "b = 2\n")  # outputs
EXPORTS = (
    "jsonl", "rest-idx", "llama.cpp", "ik_llama.cpp", "exllamav3", "parquet", "transformers",
)  # fmt: skip


def names_and_requests() -> Any:
    return {"names": sorted(files_below(Path())), "requests": requests()}


def commands(endpoint: str) -> dict[str, Command]:
    older = each(source, lambda: frozen("x", 5))
    two = each(lambda: frozen("one", 20), lambda: frozen("two", 25))
    return {
        "tokenize": Command("x", texts, lambda: tokens("x", shard_tokens=150)),
        "tokenize --force": Command("x", older, lambda: tokens("x", shard_tokens=150, force=True)),
        "build-datastore --force": Command("x", older, lambda: datastore(force=True)),
        "build-frozen": Command("x", source, frozen),
        "build-frozen --force": Command("x", older, lambda: frozen(force=True)),
        "model-bigram --force": Command("x", lambda: bigram(2), lambda: bigram(3)),
        "model-unigram --force": Command("x", lambda: unigram(2), lambda: unigram(3)),
        "build RECIPE": Command("x", each(texts, lambda: recipe(2)), lambda: recipe(3)),
        "merge --force": Command("x", each(older, two), merged_tables),
        "decode --history": Command(
            "x", lambda: None, remember, state=some_requests,
            settled=lambda: sorted(files_below(Path())),
        ),
        "history import": Command(
            "x", log, lambda: history_import("log.jsonl", "x", model="demo"),
            state=logged_requests, settled=lambda: sorted(files_below(Path())),
        ),
        "history trim": Command(
            "x", several_requests, lambda: keep_newest_requests(History.open("x"), 20),
            state=requests,
            settled=names_and_requests,
        ),
        "history forget": Command(
            "x", several_requests, lambda: drop_matching(History.open("x"), begins_odd),
            state=requests,
            settled=names_and_requests,
        ),
        "history merge": Command("y", several_requests, merged_histories),
        "bench": Command("x", lambda: None, lambda: bench(1), state=measured, settled=finished),
        "bench --force": Command(
            "x", lambda: bench(1), lambda: bench(2, force=True), state=measured, settled=finished,
        ),
        "replay --force": Command("x", lambda: replayed(1), lambda: replayed(2)),
        **{f"export --to {to} --force": exported(to) for to in EXPORTS},
        **{f"export --to {to}": exported(to, force=False) for to in EXPORTS},
        **{f"import --from {to} --force": imported(to) for to in ("llama.cpp", "rest-idx")},
        **hub_commands(endpoint),
    }  # fmt: skip
