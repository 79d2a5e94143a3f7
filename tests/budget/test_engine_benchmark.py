"""Pass costs from results of vLLM's and SGLang's own benchmarks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from engine_results import result

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.budget.pass_times import pass_times


def written(folder, *results):
    paths = [folder / f"{number}.json" for number in range(len(results))]
    for path, body in zip(paths, results, strict=True):
        path.write_text(json.dumps(body))
    return paths


def test_the_profile_holds_each_number_of_requests_and_forecast_reads_it(tmp_path):
    runs = written(tmp_path, result(8, 12.0), result(1, 10.0), result(32, 20.0), result(8, 11.0))
    found = ngramkit.pass_cost(runs, tmp_path / "server.json")
    assert [(row["tokens"], row["ms"]) for row in found.rows()] == [(1, 10), (8, 11), (32, 20)]
    times = pass_times(tmp_path / "server.json")
    costs = times.times(np.array([1.0, 8, 20, 32, 56]))
    assert 1e3 * costs == pytest.approx([10, 11, 15.5, 20, 29])
    assert found.profile.contexts == [192]
    assert found.cost == pytest.approx(1.1375)
    assert found.to_dict()["pass_cost"] == found.cost
    assert found.to_pandas().cost.tolist() == pytest.approx([1, 1.1, 2])


def test_results_of_sglang_are_lines_of_one_file(tmp_path):
    lines = [{**result(n, n + 9.0), "accept_length": None} for n in (1, 4, 16)]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = ngramkit.pass_cost(path, tmp_path / "s.json")
    assert [run.requests for run in found.runs] == [1, 4, 16]


REFUSED = {
    "no number of requests": ({"max_concurrency": None}, "max_concurrency must be a number"),
    "drafts of vLLM": ({"spec_decode_acceptance_rate": 50.0}, "the server drafted"),
    "drafts of SGLang": ({"accept_length": 2.5}, "the server drafted"),
    "failed requests": ({"failed": 3}, "3 requests failed"),
    "a batch that was not full": ({"output_throughput": 100.0}, "only 1.2 were writing"),
    "no time": ({"median_tpot_ms": 0}, "median_tpot_ms must be above 0"),
    "no figure": ({"median_tpot_ms": float("nan")}, "median_tpot_ms must be above 0"),
    "a text": ({"completed": "8"}, "completed must be above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_whose_figures_do_not_hold_is_refused(tmp_path, name):
    change, said = REFUSED[name]
    runs = written(tmp_path, result(1, 10.0), result(8, 12.0, **change))
    with pytest.raises(InputError, match=said):
        ngramkit.pass_cost(runs, tmp_path / "server.json")
    assert not (tmp_path / "server.json").exists()


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    out = tmp_path / "server.json"
    for second, said in (
        (result(1, 9.0), "1 request at once and with more, got 1"),
        (result(8, 9.0, model_id="n"), "one model, got m, n"),
        (result(8, 9.0, total_input_tokens=1 << 20), "the same lengths"),
    ):
        with pytest.raises(UsageError, match=said):
            ngramkit.pass_cost(written(tmp_path, result(1, 10.0), second), out)
    with pytest.raises(UsageError, match="got 8, 16"):
        ngramkit.pass_cost(written(tmp_path, result(8, 9.0), result(16, 9.0)), out)


def test_only_a_profile_is_replaced_and_only_by_force(tmp_path):
    runs = written(tmp_path, result(1, 10.0), result(8, 12.0))
    out = tmp_path / "server.json"
    ngramkit.pass_cost(runs, out)
    with pytest.raises(UsageError, match="exists"):
        ngramkit.pass_cost(runs, out)
    ngramkit.pass_cost(runs, out, force=True)
    with pytest.raises(UsageError):
        ngramkit.pass_cost(runs, runs[0], force=True)
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    with pytest.raises(UsageError, match="not an export"):
        ngramkit.pass_cost(runs, foreign, force=True)
    assert foreign.read_text() == "mine"


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "{", '{"a": 1}\n{"b": 2}', "\xff"])
def test_other_files_are_refused_by_name(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"other\.json"):
        ngramkit.pass_cost([path], tmp_path / "server.json")
