"""What newcomers give in place of what a function takes: the error says what, at once."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ngramkit

ONE = ["a text of a few words"]


def recorded(turns):
    return [ngramkit.Record("one", "all", turns)]


@pytest.fixture(scope="module")
def datastore(tmp_path_factory):
    out = tmp_path_factory.mktemp("datastore") / "mine"
    return ngramkit.build_datastore(ONE, out, model="demo")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


WRONG_TYPES = [
    (lambda: ngramkit.tokenize(ONE, "demo", limit="3"), "limit"),
    (lambda: ngramkit.tokenize(ONE, "demo", "out", eos="no"), "eos"),
    (lambda: ngramkit.tokenize(ONE, "demo", 5), "out"),
    (lambda: ngramkit.tokenize(ONE, "demo", sample="0.1"), "sample"),
    (lambda: ngramkit.tokenize(ONE, "demo", name=5), "name"),
    (lambda: ngramkit.tokenize(ONE, "demo", workers="4"), "workers"),
    (lambda: ngramkit.tokenize(ONE, "demo", "out", force="no"), "force"),
    (lambda: ngramkit.tokenize(ONE, 5), "model"),
    (lambda: ngramkit.load_model(None), "model"),
    (lambda: ngramkit.build_frozen(ONE, model="demo", leader_len="2"), "leader_len"),
    (lambda: ngramkit.decode("a", temperature="hot"), "temperature"),
    (lambda: ngramkit.decode("a", max_new_tokens=3.5), "max_new_tokens"),
    (lambda: ngramkit.decode("a", max_new_tokens=True), "max_new_tokens"),
    (lambda: ngramkit.decode("a", temperature=True), "temperature"),
    (lambda: ngramkit.decode("a", budget=True), "budget"),
    (lambda: ngramkit.decode("a", history=5), "history"),
    (lambda: ngramkit.calibrate("demo", seconds="x"), "seconds"),
    (lambda: ngramkit.load_drafter(None), "name"),
    (lambda: ngramkit.tokenize(ONE, "demo", reporter=print), "reporter"),
    (lambda: ngramkit.decode("a", reporter=None), "reporter"),
    (lambda: ngramkit.Sampling(temperature="hot"), "temperature"),
    (lambda: ngramkit.SpeCache(group="x"), "group"),
    (lambda: ngramkit.SpeCache(bits=None), "bits"),
    (lambda: ngramkit.SpeCache(top_k=[1, "x"]), "top_k"),
    (lambda: ngramkit.DecodeOptions(top_k=2.5), "top_k"),
    (lambda: ngramkit.KeepState(seed="x"), "seed"),
    (lambda: ngramkit.PastUse(5), "path"),
    (lambda: ngramkit.Question(1.5, "a", ["x"]), "id"),
    (lambda: ngramkit.replay("a.jsonl", chain="no"), "chain"),
    (lambda: ngramkit.push("mine", "a/b", private="no"), "private"),
    (lambda: ngramkit.push("mine", "a/b", tag=1.5), "tag"),
    (lambda: ngramkit.push("mine", None), "repository"),
    (lambda: ngramkit.export("mine", "llama.cpp", min_count="2"), "min_count"),
    (lambda: ngramkit.prune("mine", None), "bytes"),
    (lambda: ngramkit.prune("mine", float("nan")), "bytes"),
    (lambda: ngramkit.model_bigram("demo", k="3"), "k"),
    (lambda: ngramkit.history_forget("past", everything="no"), "everything"),
    (lambda: ngramkit.inspect("mine", 5), "query"),
    (lambda: ngramkit.drafters(5), "name must be a text, got 5"),
    (lambda: ngramkit.drafters(["context"]), "name must be a text"),
    (lambda: ngramkit.history_inspect("past", last="2"), "last"),
    (lambda: ngramkit.history_inspect("past", last=True), "last"),
    (lambda: ngramkit.forecast("a.jsonl", concurrency=2.5), "concurrency"),
    (lambda: ngramkit.forecast("a.jsonl", limit=2.5), "limit"),
    (lambda: ngramkit.forecast("a.jsonl", store="no"), "store"),
    (lambda: ngramkit.replay("a.jsonl", limit=2.5), "limit"),
    (lambda: ngramkit.bench(None, "demo", limit=2.5), "limit"),
]


@pytest.mark.parametrize(("call", "said"), WRONG_TYPES)
def test_a_value_of_another_type_is_a_type_error_that_names_it(call, said):
    with pytest.raises(TypeError) as caught:
        call()
    assert re.search(rf"\b{said}\b", str(caught.value))


def test_numbers_of_numpy_are_numbers():
    store = ngramkit.tokenize(ONE * 3, "demo", "out", limit=np.int64(2), sample=np.float32(1))
    assert store.manifest.counts["documents"] == 2
    small = ngramkit.prune(ngramkit.build_datastore(store, "big"), np.int64(10**9), "small")
    assert small.manifest.counts["documents"] == 2
    table = ngramkit.model_unigram("demo", "table", k=np.int64(2)).table
    assert table.manifest.parameters["k"] == 2
    assert ngramkit.Sampling(temperature=np.float64(0.5)).temperature == 0.5
    cache = ngramkit.SpeCache(bits=np.array([1, 2]), top_k=np.int64(5))
    assert (cache.bits, cache.top_k, type(cache.top_k)) == ((1, 2), 5, int)
    options = ngramkit.DecodeOptions(budget=np.int64(4), top_k=np.int32(0), seed=np.uint8(7))
    assert (options.budget, options.seed, type(options.seed)) == (4, 7, int)


REFUSED = [
    (lambda: ngramkit.tokenize(ONE, "demo", shard_tokens=0), "shard_tokens"),
    (lambda: ngramkit.tokenize(ONE, "demo", licenses="mit"), "licenses"),
    (lambda: ngramkit.build_datastore(ONE, model="demo", memory=-1), "memory"),
    (lambda: ngramkit.tokenize(ONE, "dmo"), "'dmo'"),
    (lambda: ngramkit.open_artifact(None), "None"),
    (lambda: ngramkit.merge([], "out"), "merge"),
    (lambda: ngramkit.load_drafter("rest", datastores=None), "datastores"),
    (lambda: ngramkit.load_drafter("rest", datastores=[5]), "5"),
    (lambda: ngramkit.load_drafter("ssd", past="past"), "past"),
    (lambda: ngramkit.load_drafter("blend", tokenizer="demo"), "tokenizer"),
    (lambda: ngramkit.decode(None), "prompts"),
    (lambda: ngramkit.decode(Path("notes.txt")), "prompts"),
    (lambda: ngramkit.decode(b"a"), "prompts"),
    (lambda: ngramkit.decode([{"role": "user"}]), "{'role': 'user'}"),
    (lambda: ngramkit.decode("a", drafter=5), "drafter"),
    (lambda: ngramkit.history_merge([], "out"), "paths"),
    (lambda: ngramkit.merge("mine", "out"), "sources"),
    (lambda: ngramkit.SpeCache(group=0), "group"),
    (lambda: ngramkit.push("mine", "a/b", language=5), "language"),
    (lambda: ngramkit.open_artifact("mine", cache_size=-1), "-1"),
    (lambda: ngramkit.decode("a", stop=[5]), "stop"),
    (lambda: ngramkit.generate("demo", [1]), "'demo'"),
    (lambda: ngramkit.replay([{"prompt": "a"}], model="demo"), "answers"),
    (lambda: ngramkit.replay(pd.DataFrame({"prompt": ONE})), "answers"),
    (lambda: ngramkit.replay([], model="demo"), "file"),
    (lambda: ngramkit.replay("a.jsonl", budgets=4), "budgets"),
    (lambda: ngramkit.replay("a.jsonl", budgets=["auto"]), "budgets"),
    (lambda: ngramkit.replay("a.jsonl", limit=0), "limit"),
    (lambda: ngramkit.bench(["def f"], "demo", drafters=["rest"]), "questions"),
    (lambda: ngramkit.bench([], "demo", drafters=["context"]), "questions"),
    (lambda: ngramkit.bench(5, "demo"), "questions"),
    (lambda: ngramkit.Question(1, "a", "text"), "turns"),
    (lambda: ngramkit.Question(1, "a", [5]), "turns"),
    (lambda: ngramkit.replay(5), "answers"),
    (lambda: ngramkit.replay(None), "answers must be given"),
    (lambda: ngramkit.replay("a.jsonl", baseline=5), "baseline must be a drafter or its name"),
    (lambda: ngramkit.bench(model="demo", baseline=5), "baseline must be a drafter or its name"),
    (lambda: ngramkit.forecast(None), "files must be files or Records, got NoneType"),
    (lambda: ngramkit.forecast(5), "files must be files or Records, got int"),
    (lambda: ngramkit.replay("a.jsonl", drafters=[]), "drafter"),
    (lambda: ngramkit.replay("a.jsonl", keep_state={"seed": 1}), "keep_state"),
    (lambda: ngramkit.replay(recorded([]), model="demo"), "Turns"),
    (
        lambda: ngramkit.replay(recorded([ngramkit.Turn([], [1])]), model="demo"),
        "prompt",
    ),
    (lambda: ngramkit.replay(recorded([ngramkit.Turn([1], [9999])]), model="demo"), "9999"),
    (lambda: ngramkit.Turn("a", "b"), "prompt"),
    (lambda: ngramkit.Turn([1], [1.5]), "answer"),
    (lambda: ngramkit.KeepState(repeat=0), "repeat"),
    (lambda: ngramkit.history_import(5, "out"), "files"),
    (lambda: ngramkit.history_import([5], "out"), "files"),
    (lambda: ngramkit.history_merge(["none"], "out"), "none"),
    (lambda: ngramkit.history_merge("none", "out"), "paths must be a list, got 'none'"),
    (lambda: ngramkit.history_inspect("past", last=-1), "last must be at least 0, got -1"),
    (lambda: ngramkit.tokenize(ONE, "demo", exclude=5), "exclude"),
    (lambda: ngramkit.tokenize(ONE, "demo", licenses=[5]), "licenses"),
    (lambda: ngramkit.tokenize(ONE, "demo", executor=5), "executor"),
    (lambda: ngramkit.tokenize(np.array("a"), "demo"), "numpy.ndarray"),
    (lambda: ngramkit.load_drafter("rest", 5), "artifacts"),
    (lambda: ngramkit.load_drafter("rest", datastores=[None]), "None"),
    (lambda: ngramkit.load_drafter("ssd", past=5), "past"),
    (lambda: ngramkit.load_drafter("blend", tokenizer=5), "tokenizer"),
    (lambda: ngramkit.PastUse().open("demo"), "tokenizer"),
    (lambda: ngramkit.Sources(datastores="mine"), "datastores"),
    (lambda: ngramkit.Sources(past="past"), "past"),
    (lambda: ngramkit.decode("a", artifacts={"a": 1}), "artifacts"),
    (lambda: ngramkit.decode({"a": 1}), "prompts"),
    (lambda: ngramkit.decode(pd.DataFrame({"a": ONE})), "prompts"),
    (lambda: ngramkit.decode("a", cache={"bits": 2}), "cache"),
    (lambda: ngramkit.decode("a", show=5), "show"),
    (lambda: ngramkit.Conversation("demo", drafter="none", template="vicuna").ask(5), "prompt"),
    (lambda: ngramkit.check_engine("vllm", model="demo", budget=0), "budget"),
    (lambda: ngramkit.forecast("a.jsonl", pass_cost={}), "curve"),
    (lambda: ngramkit.pass_cost("a.json", "out.json"), "no such file: a.json"),
    (lambda: ngramkit.forecast("a.jsonl", budgets=4), "budgets"),
    (lambda: ngramkit.forecast("a.jsonl", budgets=[4.5]), "budgets"),
    (lambda: ngramkit.forecast("a.jsonl", limit=0), "limit must be at least 1, got 0"),
    (lambda: ngramkit.forecast("a.jsonl", limit=-1), "limit must be at least 1, got -1"),
    (lambda: ngramkit.forecast("a.jsonl", template="vicunna"), "template must be one of"),
    (lambda: ngramkit.history_import("a.jsonl", "out", template="x"), "template must be one of"),
    (lambda: ngramkit.history_import("a.jsonl", "out", columns={5: 6}), "columns"),
]


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_makes_no_sense_is_refused_in_a_line_with_a_remedy(call, said):
    with pytest.raises(ngramkit.NgramkitError) as caught:
        call()
    error = caught.value
    assert said in str(error)
    assert error.hint or "must" in str(error)
    assert "\n" not in f"{error}{error.hint}"


@pytest.mark.parametrize("read", [ngramkit.replay, ngramkit.forecast, ngramkit.history_import])
@pytest.mark.parametrize("option", ["where", "columns"])
@pytest.mark.parametrize("given", ["model=m1", ["model"], "", [], {5: "m1"}, {"model": 5}])
def test_fields_of_a_log_are_given_by_name(read, option, given):
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c d"}))
    out = ["out"] if read is ngramkit.history_import else []
    with pytest.raises(ngramkit.UsageError, match=f"{option} must be .* by (field|name), got"):
        read("answers.jsonl", *out, model="demo", **{option: given})


def test_generate_takes_token_ids_alone():
    model = ngramkit.load_model("demo")
    for given in ("text", None, [], [0.5, 1.5], [[[1]]], {"input_ids": [1]}):
        with pytest.raises(ngramkit.UsageError, match="input_ids"):
            ngramkit.generate(model, given, drafter="context", max_new_tokens=1)
    for given in ([1, 99_999], [[-1, 1]]):
        with pytest.raises(ngramkit.UsageError, match="4095"):
            ngramkit.generate(model, given, drafter="context", max_new_tokens=1)


def test_a_curve_s_artifacts_are_a_list(datastore):
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c d"}))
    for given in ("mine", 5, datastore):
        with pytest.raises(ngramkit.UsageError, match="curve one"):
            ngramkit.replay("answers.jsonl", model="demo", artifacts={"one": given})


def test_lists_of_ids_a_loaded_tokenizer_and_a_path_as_text_are_taken(tmp_path):
    tokenizer = ngramkit.load_tokenizer("demo")
    turn = ngramkit.Turn([1, 2, 3], [2, 3])
    assert (turn.prompt.dtype, turn.answer.tolist()) == (np.int32, [2, 3])
    past = ngramkit.PastUse(str(tmp_path / "past")).open(tokenizer)
    drafter = ngramkit.load_drafter("ssd", past=past, tokenizer=tokenizer)
    drafter.start(turn.prompt)
    assert len(drafter.draft(4)) == 0


def test_prompts_may_come_one_after_another():
    prompts = ["def main(", "import os\n"]
    words = {"drafter": "context", "max_new_tokens": 3, "budget": 4}
    listed = [answer.text for answer in ngramkit.decode(prompts, "demo", **words)]
    for given in (iter(prompts), np.array(prompts), pd.Series(prompts)):
        assert [answer.text for answer in ngramkit.decode(given, "demo", **words)] == listed


def test_lists_may_be_iterators_and_arrays():
    options = ngramkit.DecodeOptions(stop=iter(["os"]), references=iter(["import os"]))
    assert (options.stop, options.references) == (("os",), ("import os",))
    words = {"drafter": "context", "max_new_tokens": 3, "budget": 4}
    listed = ngramkit.decode("import os\n", "demo", stop=["os"], references=["import"], **words)
    given = {"stop": iter(["os"]), "references": iter(["import"])}
    assert ngramkit.decode("import os\n", "demo", **given, **words).text == listed.text
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c b c d"}))
    log = {"model": "demo", "drafter": "context"}
    for budgets in (np.array([2, 3]), iter([2, 3, 2])):
        kept = [*budgets] if isinstance(budgets, np.ndarray) else [2, 3]
        found = ngramkit.forecast("answers.jsonl", budgets=budgets, concurrency=np.int64(1), **log)
        assert [
            each["budget"] for each in json.loads(json.dumps(found.to_dict()))["results"]
        ] == kept
    for budgets in (np.array([2, 3]), iter([2, 3])):
        found = ngramkit.replay("answers.jsonl", model="demo", drafters="context", budgets=budgets)
        assert [each.budget for each in found] == [2, 3]
    unknown = ["--max-num-seqz", "4"]
    listed = ngramkit.check_engine("vllm", model="demo", options=unknown, draft={"history": True})
    read = ngramkit.check_engine(
        "vllm", model="demo", options=iter(unknown), draft={"history": True}
    )
    assert read.effects == listed.effects


def test_a_model_may_be_a_path():
    folder = Path(ngramkit.resolve_model("demo"))
    assert ngramkit.load_tokenizer(folder).record.vocabulary
    assert ngramkit.tokenize(ONE, folder, "out").manifest.counts["documents"] == 1


@pytest.mark.parametrize("word", [{"model": "no-such"}, {"eos": False}, {"limit": 3}])
@pytest.mark.parametrize("build", [ngramkit.build_datastore, ngramkit.build_frozen])
def test_a_store_of_tokens_takes_no_option_of_text(build, word, tmp_path):
    store = ngramkit.tokenize(ONE, "demo", tmp_path / "store")
    (name,) = word
    for source in (store, store.path, str(store.path)):
        with pytest.raises(
            ngramkit.UsageError, match=f"cannot use {name} with tokens: it is for text"
        ):
            build(source, tmp_path / "out", **word)
    assert not (tmp_path / "out").exists()


def test_what_is_open_is_inspected_and_verified_as_it_is(datastore):
    assert ngramkit.verify(datastore).ok
    assert ngramkit.inspect(datastore, top=1).most_frequent
    with pytest.raises(ngramkit.UsageError, match="top"):
        ngramkit.inspect(datastore, top=-1)
    with pytest.raises(ngramkit.UsageError, match="datastores"):
        ngramkit.load_drafter("rest", datastores=datastore)


def test_a_replay_of_a_written_file_is_what_the_error_recommends():
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c d"}))
    words = {"model": "demo", "drafters": ["context"], "budgets": [4]}
    assert len(list(ngramkit.replay("answers.jsonl", **words))) == 1
    assert ngramkit.replay("answers.jsonl", keep_state=True, **words).kept_state
    with pytest.raises(ngramkit.UsageError, match="columns"):
        ngramkit.replay("answers.jsonl", columns="prompt", **words)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (ngramkit.forecast, "tokens", "budgets"),
        (ngramkit.replay, "oracle", "evidence"),
        (ngramkit.check_engine, "tokens", "budget"),
    ],
)
def test_an_earlier_name_is_refused_by_the_new_one(function, old, new):
    assert new in inspect.signature(function).parameters
    with pytest.raises(TypeError, match=f"unknown argument '{old}' of .*: use {new}$"):
        function("x", **{old: 1})
