"""What newcomers give in place of what a function takes: the error says what, at once."""

from __future__ import annotations

import json
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
    (lambda: ngramkit.tokenize(ONE, "demo", limit="3"), "takes int or None as limit, not '3'"),
    (lambda: ngramkit.tokenize(ONE, "demo", "out", eos="no"), "takes bool as eos, not 'no'"),
    (lambda: ngramkit.tokenize(ONE, "demo", 5), "takes str or Path or None as out, not 5"),
    (lambda: ngramkit.tokenize(ONE, "demo", sample="0.1"), "takes float as sample, not '0.1'"),
    (lambda: ngramkit.tokenize(ONE, "demo", name=5), "takes str or None as name, not 5"),
    (lambda: ngramkit.tokenize(ONE, 5), "a model is called by a text or a path, not 5"),
    (lambda: ngramkit.load_model(None), "takes str or Path as name, not None"),
    (lambda: ngramkit.build_frozen(ONE, model="demo", leader_len="2"), "takes int as leader_len"),
    (lambda: ngramkit.decode("a", temperature="hot"), "takes float as temperature, not 'hot'"),
    (lambda: ngramkit.decode("a", max_new_tokens=3.5), "takes int as max_new_tokens, not 3.5"),
    (lambda: ngramkit.decode("a", max_new_tokens=True), "takes int as max_new_tokens, not True"),
    (lambda: ngramkit.decode("a", temperature=True), "takes float as temperature, not True"),
    (lambda: ngramkit.decode("a", budget=True), "budget must be a number, is True"),
    (lambda: ngramkit.decode("a", history=5), "takes str or Path or None as history, not 5"),
    (lambda: ngramkit.calibrate("demo", seconds="x"), "takes float as seconds, not 'x'"),
    (lambda: ngramkit.load_drafter(None), "takes str as name, not None"),
    (
        lambda: ngramkit.tokenize(ONE, "demo", reporter=print),
        "takes ngramkit.Reporter as",
    ),
    (lambda: ngramkit.decode("a", reporter=None), "takes ngramkit.Reporter as"),
    (lambda: ngramkit.Sampling(temperature="hot"), "Sampling() takes float as temperature, not"),
    (lambda: ngramkit.SpeCache(group="x"), "SpeCache() takes int as group, not 'x'"),
    (lambda: ngramkit.DecodeOptions(top_k=2.5), "DecodeOptions() takes int as top_k, not 2.5"),
    (lambda: ngramkit.KeepState(seed="x"), "KeepState() takes int or None as seed, not 'x'"),
    (lambda: ngramkit.PastUse(5), "PastUse() takes Path or None as path, not 5"),
    (lambda: ngramkit.Question(1.5, "a", ["x"]), "Question() takes int or str as id, not 1.5"),
]


@pytest.mark.parametrize(("call", "said"), WRONG_TYPES)
def test_a_value_of_another_type_is_a_type_error_that_names_it(call, said):
    with pytest.raises(TypeError) as caught:
        call()
    assert said in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    store = ngramkit.tokenize(ONE * 3, "demo", "out", limit=np.int64(2), sample=np.float32(1))
    assert store.manifest.counts["documents"] == 2
    assert ngramkit.Sampling(temperature=np.float64(0.5)).temperature == 0.5
    assert ngramkit.DecodeOptions(budget=np.int64(4)).budget == 4


REFUSED = [
    (lambda: ngramkit.tokenize(ONE, "demo", shard_tokens=0), "shard_tokens must be at least 1"),
    (lambda: ngramkit.tokenize(ONE, "demo", licenses="mit"), "licenses must be a list, is 'mit'"),
    (lambda: ngramkit.build_datastore(ONE, model="demo", memory=-1), "memory must be at least 1"),
    (lambda: ngramkit.tokenize(ONE, "dmo"), "no model is called 'dmo'"),
    (lambda: ngramkit.open_artifact(None), "None is no artifact"),
    (lambda: ngramkit.merge([], "out"), "there is no artifact to merge"),
    (lambda: ngramkit.load_drafter("rest", datastores=None), "datastores must be a list, is None"),
    (lambda: ngramkit.load_drafter("rest", datastores=[5]), "5 is no artifact"),
    (lambda: ngramkit.load_drafter("ssd", past="past"), "past is a path"),
    (lambda: ngramkit.load_drafter("blend", tokenizer="demo"), "tokenizer is a name"),
    (lambda: ngramkit.decode(None), "prompts must be a list, is None"),
    (lambda: ngramkit.decode(Path("notes.txt")), "prompts must be a list, is PosixPath"),
    (lambda: ngramkit.decode(b"a"), "prompts must be a list, is b'a'"),
    (lambda: ngramkit.decode([{"role": "user"}]), "a prompt must be a text, is {'role': 'user'}"),
    (lambda: ngramkit.decode("a", drafter=5), "drafter is 5"),
    (lambda: ngramkit.history_merge([], "out"), "paths must name at least one"),
    (lambda: ngramkit.merge("mine", "out"), "sources must be a list, is 'mine'"),
    (lambda: ngramkit.SpeCache(group=0), "group must be at least 8"),
    (lambda: ngramkit.decode("a", stop=[5]), "stop must be texts, one is 5"),
    (lambda: ngramkit.generate("demo", [1]), "'demo' is no model"),
    (lambda: ngramkit.replay([{"prompt": "a"}], model="demo"), "answers are files or Records"),
    (lambda: ngramkit.replay(pd.DataFrame({"prompt": ONE})), "answers are files or Records"),
    (lambda: ngramkit.replay([], model="demo"), "files must name"),
    (lambda: ngramkit.replay("a.jsonl", budgets=4), "budgets must be a list, is 4"),
    (lambda: ngramkit.replay("a.jsonl", budgets=["auto"]), "budgets must be whole numbers"),
    (lambda: ngramkit.replay("a.jsonl", limit=0), "limit must be at least 1"),
    (lambda: ngramkit.bench(["def f"], "demo", drafters=["rest"]), "a file or Questions"),
    (lambda: ngramkit.bench([], "demo", drafters=["context"]), "there are no questions"),
    (lambda: ngramkit.bench(5, "demo"), "questions must be a list, is 5"),
    (lambda: ngramkit.Question(1, "a", "text"), "turns must be a list, is 'text'"),
    (lambda: ngramkit.Question(1, "a", [5]), "turns must be texts, one is 5"),
    (lambda: ngramkit.replay(5), "answers are files or Records, not int"),
    (lambda: ngramkit.replay("a.jsonl", drafters=[]), "no drafter is named"),
    (lambda: ngramkit.replay("a.jsonl", keep_state={"seed": 1}), "keep_state is {'seed': 1}"),
    (lambda: ngramkit.replay(recorded([]), model="demo"), "must be Turns, each with"),
    (
        lambda: ngramkit.replay(recorded([ngramkit.Turn([], [1])]), model="demo"),
        "each with a prompt",
    ),
    (lambda: ngramkit.replay(recorded([ngramkit.Turn([1], [9999])]), model="demo"), "the id 9999"),
    (lambda: ngramkit.Turn("a", "b"), "prompt must be token ids, is 'a'"),
    (lambda: ngramkit.Turn([1], [1.5]), "answer must be token ids, is [1.5]"),
    (lambda: ngramkit.KeepState(repeat=0), "repeat must be at least 1, is 0"),
    (lambda: ngramkit.history_import(5, "out"), "files must be a list, is 5"),
    (lambda: ngramkit.history_import([5], "out"), "files must be paths, one is 5"),
    (lambda: ngramkit.history_merge(["none"], "out"), "there is no history at none"),
    (lambda: ngramkit.tokenize(ONE, "demo", exclude=5), "exclude must be a list, is 5"),
    (lambda: ngramkit.tokenize(ONE, "demo", licenses=[5]), "licenses must be texts, one is 5"),
    (lambda: ngramkit.tokenize(ONE, "demo", executor=5), "executor is 5"),
    (lambda: ngramkit.tokenize(np.array("a"), "demo"), "a corpus is no numpy.ndarray"),
    (lambda: ngramkit.load_drafter("rest", 5), "artifacts must be a list, is 5"),
    (lambda: ngramkit.load_drafter("rest", datastores=[None]), "None is no artifact"),
    (lambda: ngramkit.load_drafter("ssd", past=5), "past is 5"),
    (lambda: ngramkit.load_drafter("blend", tokenizer=5), "tokenizer is a int"),
    (lambda: ngramkit.PastUse().open("demo"), "tokenizer is a name"),
    (lambda: ngramkit.Sources(datastores="mine"), "datastores must be a list, is 'mine'"),
    (lambda: ngramkit.Sources(past="past"), "past is 'past'"),
    (lambda: ngramkit.decode("a", artifacts={"a": 1}), "artifacts must be a list, is {'a': 1}"),
    (lambda: ngramkit.decode({"a": 1}), "prompts must be a list, is {'a': 1}"),
    (lambda: ngramkit.decode(pd.DataFrame({"a": ONE})), "prompts must be a list, is "),
    (lambda: ngramkit.decode("a", cache={"bits": 2}), "cache is {'bits': 2}"),
    (lambda: ngramkit.decode("a", show=5), "show is 5"),
    (lambda: ngramkit.Conversation("demo", template="vicuna").ask(5), "a prompt must be a text"),
    (lambda: ngramkit.SpeCache(bits=None), "bits must be 1 or 2, is None"),
    (lambda: ngramkit.SpeCache(top_k="x"), "top_k must be 0 or more, is 'x'"),
    (lambda: ngramkit.check_engine("vllm", model="demo", tokens=0), "tokens must be 1 to 64, is 0"),
    (lambda: ngramkit.forecast("a.jsonl", pass_cost={}), "the curve has no two times above 0"),
    (lambda: ngramkit.history_import("a.jsonl", "out", columns={5: 6}), "columns must be names by"),
]


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_makes_no_sense_is_refused_in_a_line_with_a_remedy(call, said):
    with pytest.raises(ngramkit.NgramkitError) as caught:
        call()
    error = caught.value
    assert said in str(error)
    assert error.hint or "must be" in str(error)
    assert "\n" not in f"{error}{error.hint}"


def test_generate_takes_token_ids_alone():
    model = ngramkit.load_model("demo")
    for given in ("text", None, [], [0.5, 1.5], [[[1]]], {"input_ids": [1]}):
        with pytest.raises(ngramkit.UsageError, match="input_ids must be token ids"):
            ngramkit.generate(model, given, drafter="context", max_new_tokens=1)
    for given in ([1, 99_999], [[-1, 1]]):
        with pytest.raises(ngramkit.UsageError, match="input_ids must be 0 to 4095, one is"):
            ngramkit.generate(model, given, drafter="context", max_new_tokens=1)


def test_a_curve_s_artifacts_are_a_list(datastore):
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c d"}))
    for given in ("mine", 5, datastore):
        with pytest.raises(ngramkit.UsageError, match="curve one must be a list"):
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


def test_a_model_may_be_a_path():
    folder = Path(ngramkit.resolve_model("demo"))
    assert ngramkit.load_tokenizer(folder).record.vocabulary
    assert ngramkit.tokenize(ONE, folder, "out").manifest.counts["documents"] == 1


def test_what_is_open_is_inspected_and_verified_as_it_is(datastore):
    assert ngramkit.verify(datastore).ok
    assert ngramkit.inspect(datastore, top=1).most_frequent
    with pytest.raises(ngramkit.UsageError, match="top must be at least 1"):
        ngramkit.inspect(datastore, top=-1)
    with pytest.raises(ngramkit.UsageError, match="datastores must be a list"):
        ngramkit.load_drafter("rest", datastores=datastore)


def test_a_replay_of_a_written_file_is_what_the_error_recommends():
    Path("answers.jsonl").write_text(json.dumps({"prompt": "a", "output": "b c d"}))
    words = {"model": "demo", "drafters": ["context"], "budgets": [4]}
    assert len(list(ngramkit.replay("answers.jsonl", **words))) == 1
    assert ngramkit.replay("answers.jsonl", keep_state=True, **words).kept_state
    with pytest.raises(ngramkit.UsageError, match="columns must be names by field, got 'prompt'"):
        ngramkit.replay("answers.jsonl", columns="prompt", **words)
