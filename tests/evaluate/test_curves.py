"""tokens/step against bytes: one artifact after another, each replayed once, drawn as lines."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay_drafters import short_names
from ngramkit_cli.replay_cmd import parse_curves

TEXT = "the quick brown fox jumps over the lazy dog and then sleeps. "


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a folder of recorded answers, datastores `small` and `whole`, and a frozen table."""
    folder = tmp_path_factory.mktemp("curves")
    line = json.dumps({"prompt": "Say it.", "output": TEXT * 3})
    (folder / "answers.jsonl").write_text(line + "\n")
    for name, copies in (("small", 1), ("whole", 4)):
        (folder / f"{name}.txt").write_text(TEXT * copies + name * copies)
        ngramkit.build_datastore(folder / f"{name}.txt", model="demo", out=folder / name)
    ngramkit.build_frozen(folder / "whole.txt", model="demo", out=folder / "frozen")
    return folder


def replayed(made, artifacts, **options):
    return ngramkit.replay(
        made / "answers.jsonl", model="demo", template="none", artifacts=artifacts, **options
    )


def test_each_artifact_is_replayed_alone_and_once(made):
    curves = {"cut": [made / "small", made / "whole"], "other": [made / "whole"]}
    found = replayed(made, curves, drafters=["rest", "blend"], budgets=[4, 16])
    labels = [f"{drafter} over {name}" for drafter in ("rest", "blend")
              for name in ("small", "whole")]  # fmt: skip
    assert [(r.drafter, r.budget) for r in found] == [(a, b) for a in labels for b in (4, 16)]
    alone = replayed(made, made / "small", drafters="rest", budgets=[16])[0]
    size = ngramkit.open_artifact(made / "small").manifest.bytes
    whole = found.by_bytes()["rest"]["other"]
    assert found.by_bytes()["rest"]["cut"] == [(size, alone.total.tokens_per_step), *whole]
    assert (alone.bytes, alone.to_dict()["bytes"]) == (size, size)
    assert found.by_bytes(4)["blend"]["other"][0][1] == found.results[6].total.tokens_per_step
    assert found.to_dict()["by_bytes"] == found.by_bytes()
    assert "by_bytes" not in replayed(made, made / "small", drafters="rest", budgets=[4]).to_dict()


def test_records_may_be_given_with_the_tokenizer_of_their_ids(made):
    turn = Turn(np.arange(8, dtype=np.int32), np.arange(8, dtype=np.int32))
    store = ngramkit.open_artifact(made / "small")
    found = ngramkit.replay(
        [Record("a", "all", [turn])], model=store.tokenizer, drafters="rest", budgets=[4],
        artifacts=store,
    )  # fmt: skip
    assert found[0].total.tokens == 7


def test_curves_that_cannot_be(made):
    with pytest.raises(UsageError, match=r"frozen-table .*frozen with rest"):
        replayed(made, {"": [made / "frozen"]}, drafters="rest", budgets=[4])
    with pytest.raises(UsageError, match="must name artifacts"):
        replayed(made, {"pruned": []}, drafters="rest", budgets=[4])
    with pytest.raises(UsageError, match="drafters must be names"):
        replayed(made, {"": [made / "small"]}, drafters=[lambda: None], budgets=[4])
    assert replayed(made, {"": [made / "frozen"]}, budgets=[4])[0].drafter == "blend over frozen"


def test_names_are_as_short_as_tells_them_apart():
    assert short_names(["a/x", "s3://b/y/"]) == {"a/x": "x", "s3://b/y/": "y"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}


def test_what_is_there_as_a_path_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    given = ["a=b", "a=c", "a=c/d=e", "x/y=z", "s3://b/x?y=z", "c", "d="]
    assert parse_curves(given) == {
        "": ["a=b", "x/y=z", "s3://b/x?y=z", "c", "d="], "a": ["c", "c/d=e"]
    }  # fmt: skip


def test_the_command_prints_and_draws_the_curves(ngramkit_cli, made):
    line = ["replay", "--answers", f"{made}/answers.jsonl", "--template", "none", "--model", "demo",
            "--drafter", "rest", "--budget", "8"]  # fmt: skip
    curve = [word for name in ("small", "whole") for word in ("--curve", f"cut={made}/{name}")]
    drawn, told, clash = ngramkit_cli(
        [*line, *curve, "--plot", f"{made}/p.png", "--json"],
        [*line, *curve, "--baseline", "rest over whole"],
        [*line, *curve, "--datastore", f"{made}/small"],
    )
    assert drawn.code == 0, drawn.err
    points = drawn.json["by_bytes"]["rest"]["cut"]
    assert [f"{size / 1e6:.3f}" in told.out for size, _ in points] == [True, True]
    assert points[0][0] < 1e6, "small enough to be 0.0 MB"
    assert "tokens/step by bytes, 8 nodes" in told.out
    assert f"{points[0][1]:.3f}" in told.out
    assert "rest over small / rest over whole: " in told.out
    assert (made / "p.png").read_bytes().startswith(b"\x89PNG")
    assert clash.code == 2
    assert "cannot use --curve with --datastore" in clash.err
