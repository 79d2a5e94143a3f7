"""What test_kills kills: every command that writes or replaces something, on a few bytes each.

Imported once by the process that forks them all. Every `run` is what the command line calls.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders import saved_rows
from ngramkit.builders import tokens as token_builder
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge
from ngramkit.builders.tokens import build_tokens
from ngramkit.corpus import tokenizer as tokenizers
from ngramkit.corpus.open import open_corpus
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.errors import UsageError
from ngramkit.evaluate.results import write_answers, write_results
from ngramkit.evaluate.runs import Run, Runs, TurnRun
from ngramkit.exchange.jsonl import export_jsonl
from ngramkit.exchange.llama_cpp import import_cache
from ngramkit.exchange.lookup_export import export_cache
from ngramkit.exchange.parquet import export_parquet
from ngramkit.exchange.rest_idx import export_rest_idx, import_rest_idx
from ngramkit.exchange.transformers import export_folder
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.history import History
from ngramkit.formats.history_merge import merge as merge_histories
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.verify import verify_artifact
from ngramkit.formats.writer import write_text
from ngramkit.hub import fetch
from ngramkit.hub_pull import pull
from ngramkit.hub_push import push
from ngramkit.recipe_files import read_recipe
from ngramkit.recipes import build, resolve

from .killing import Command, files_below

# Threads do not live on in a fork, and what is slow here is not what is killed.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
token_builder.use_cores = lambda workers: None
tokenizers.load_tokenizer = cache(tokenizers.load_tokenizer)
token_builder.load_tokenizer = tokenizers.load_tokenizer
RECORD = TokenizerRecord("small", 100, "f" * 64, 1)
RECIPE = """
kind = "frozen-table"
model.id = "demo"
corpus.name = "c.jsonl"
parameters = {leaders = 20, followers = %d}
"""
MODEL = tokenizers.load_tokenizer("demo")
LINES = [f"def name_{n}(self): return self.value_{n % 3} + {n}" for n in range(16)]


def texts(name: str = "c.jsonl", lines: list[str] = LINES) -> None:
    Path(name).write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))


def tokens(out: str = "tokens", **options: Any) -> TokenStore:
    return build_tokens(open_corpus("c.jsonl"), "demo", out, **options)


def frozen(out: str = "x", leaders: int = 30, **options: Any) -> FrozenTable:
    store = TokenStore.open("tokens")
    return build_frozen(store, out, leaders=leaders, followers=3, workers=1, **options)


def datastore(out: str = "x", shard_tokens: int = 120, **options: Any) -> Datastore:
    store = TokenStore.open("tokens")
    return build_datastore(store, out, shard_tokens=shard_tokens, workers=1, **options)


def each(*steps: Callable[[], Any]) -> Callable[[], None]:
    return lambda: [step() for step in steps] and None


def source() -> None:
    texts()
    tokens(shard_tokens=150)


@cache
def tiny() -> tuple[Any, Any]:
    """A random model and its tokenizer."""
    from builders.tiny_lms import tiny_lm, tiny_tokenizer

    return tiny_lm("llama"), tiny_tokenizer()


def bigram(k: int) -> None:
    from ngramkit.builders import model_bigram

    model_bigram.matmul_peak = lambda *device: 1.0  # measured, which takes seconds
    saved_rows.SAVE_AFTER = 0.0  # every part of the work is kept
    model_bigram.build_model_bigram(*tiny(), "x", k=k, width=2, force=True)


def unigram(k: int) -> None:
    from ngramkit.builders import model_unigram

    model_unigram.matmul_peak = lambda *device: 1.0
    model_unigram.build_model_unigram(*tiny(), "x", k=k, force=True)


def recipe(followers: int) -> None:
    Path("x.toml").write_text(RECIPE % followers)
    made = read_recipe("x.toml")
    build(resolve(made), Path(), workers=1)


def remember() -> None:
    """What decode --history does with two requests."""
    past = PastRequests(History.at("x", RECORD), rebuild_tokens=8, background=False)
    for begin in (0, 10):
        past.remember(np.arange(begin, begin + 10, dtype=np.int32), 3)
    past.wait()


def requests() -> Any:
    """Those of the history at x, all of it verified."""
    if not Path("x/manifest.json").exists():
        return None
    list(verify_artifact("x"))
    return [request.tokens.tolist() for request in History.open("x").log.read().requests]


def some_requests() -> Any:
    """Of decode --history: whole requests, the first of the two first; a rerun adds both again."""
    found = requests()
    each_one = [list(range(10)), list(range(10, 20))]
    assert found is None or all(request in each_one for request in found), found
    return found if found and len(found) % 2 == 0 and found[:2] == each_one else None


def bench(seed: int, *, force: bool = False) -> None:
    """The files of a benchmark, without the seconds that a model takes."""
    plan = {"model": "a", "seed": seed, "drafters": ["none"]}
    runs = Runs(Path("x"), plan, force=force)
    for question in range(3):
        if ("none", str(question)) not in runs.found:
            turn = TurnRun("text", [1, 2, 3], [1, 1], 1.0, 0.5, 0.1, 0.4)
            runs.add(Run("none", question, "all", [turn]))
    write_answers(Path("x"), "a", runs, "none")
    write_results(Path("x"), [], plan=plan)
    write_text(Path("x/report.html"), f"<p>{seed}</p>")


def measured() -> Any:
    """Which benchmark stands at x; every line of it is whole, or will be dropped."""
    first = Path("x/runs.jsonl").read_text().splitlines() if Path("x/runs.jsonl").exists() else []
    if not first:
        return None
    plan = json.loads(first[0])["plan"]
    Runs(Path("x"), plan)
    return plan["seed"]


def finished() -> Any:
    found = {name: files_below(Path()).get(f"x/{name}") for name in ("runs.jsonl", "report.html")}
    return {"names": sorted(files_below(Path())), **found}


def at_the_hub(endpoint: str) -> None:
    """Points the real client at the stand-in, with a cache in the working directory."""
    from huggingface_hub import constants

    home = str(Path("home").absolute())
    constants.ENDPOINT = endpoint
    constants.HUGGINGFACE_CO_URL_TEMPLATE = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    constants.HF_HOME, constants.HF_HUB_CACHE = home, f"{home}/hub"
    constants.HF_TOKEN_PATH = f"{home}/token"
    constants.HF_HUB_DISABLE_XET = True
    os.environ["HF_TOKEN"] = "hf_standin"


def repository(*names: str) -> str:
    return "-".join(("acme/kills", *names)).replace("_", "-")


def without_the_hubs() -> Any:
    """Everything but what the Hub's own client keeps; a proof holds times."""
    found = files_below(Path())
    return {k: "home/" in k or v for k, v in found.items() if not k.startswith("home/hub")}


def hub_commands(endpoint: str) -> dict[str, Command]:
    @cache
    def published() -> str:
        push(Path("first"), repository("pull"))
        return repository("pull")

    def pulled() -> None:
        at_the_hub(endpoint)
        pull(published(), Path("x"), force=True)

    def own() -> str:
        return repository(*Path().absolute().parts[-2:])

    def there() -> Any:
        """What anybody would fetch, whole."""
        at_the_hub(endpoint)
        return fetch(f"hf://{own()}").path.joinpath("manifest.json").read_text()

    def pushed(name: str) -> Callable[[], None]:
        return each(lambda: at_the_hub(endpoint), lambda: push(Path(name), own()))

    two = each(source, lambda: frozen("first", 20), lambda: frozen("second", 25))
    older = each(two, lambda: frozen("x", 5))
    done = without_the_hubs
    return {
        "pull": Command("x", two, pulled, settled=done),
        "pull --force": Command("x", older, pulled, settled=done),
        "push": Command("x", two, pushed("second"), pushed("first"), state=there, settled=there),
    }


def exported(to: str) -> Command:
    kind = "x" if to == "transformers" else f"x.{to}"

    def run() -> None:
        path = Path(kind)
        if to == "transformers":
            export_folder(open_artifact("frozen"), path, force=True)
        elif to == "jsonl":
            export_jsonl(Datastore.open("store"), MODEL, path, force=True)
        elif to == "parquet":
            export_parquet(open_artifact("frozen"), MODEL, path, force=True)
        elif to == "llama.cpp":
            export_cache(open_artifact("frozen"), path, dynamic=True, force=True)
        else:
            export_rest_idx(Datastore.open("store"), path, force=True)

    def prepare() -> None:
        source()
        frozen("frozen", 3)
        datastore("store")
        run()
        for name in ("frozen", "store"):
            for entry in Path(name).iterdir():
                entry.unlink()
            Path(name).rmdir()
        texts(lines=LINES[:9])
        tokens("tokens", shard_tokens=150, force=True)
        frozen("frozen", 30)
        datastore("store")

    return Command(kind, prepare, run)


def imported(to: str) -> Command:
    def prepare() -> None:
        source()
        frozen("frozen", 20)
        datastore("store", 1000)
        frozen("x", 5)
        export_cache(open_artifact("frozen"), Path("llama.cpp"), dynamic=True)
        export_rest_idx(Datastore.open("store"), Path("rest-idx"))

    def run() -> None:
        if to == "llama.cpp":
            import_cache(Path(to), MODEL, Path("x"), order=1, force=True)
        else:
            import_rest_idx(Path(to), MODEL, Path("x"), force=True)

    return Command("x", prepare, run)


def several_requests() -> None:
    for name in ("x", "other"):
        past = PastRequests(History.at(name, RECORD), rebuild_tokens=8, background=False)
        for n in range(4):
            past.remember(np.arange(n, n + 9, dtype=np.int32), 2)


def merged_tables() -> None:
    merge([FrozenTable.open("one"), FrozenTable.open("two")], "x", force=True)


def merged_histories() -> None:
    try:
        merge_histories([History.open("x"), History.open("other")], Path("y"))
    except UsageError:  # it has no --force: what is there is whole, and stays
        assert Path("y").exists()


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
        "history trim": Command(
            "x", several_requests, lambda: History.open("x").trim(20), state=requests,
            settled=names_and_requests,
        ),
        "history merge": Command("y", several_requests, merged_histories),
        "bench": Command("x", lambda: None, lambda: bench(1), state=measured, settled=finished),
        "bench --force": Command(
            "x", lambda: bench(1), lambda: bench(2, force=True), state=measured, settled=finished,
        ),
        **{f"export --to {to} --force": exported(to) for to in
           ("jsonl", "rest-idx", "llama.cpp", "parquet", "transformers")},
        **{f"import --from {to} --force": imported(to) for to in ("llama.cpp", "rest-idx")},
        **hub_commands(endpoint),
    }  # fmt: skip
