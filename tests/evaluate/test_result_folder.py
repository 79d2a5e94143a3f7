"""The folder of a result: what made it, what is in it, and which folders it may be."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest
from command_lines import run_here

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.drafters.context import Context
from ngramkit.evaluate.plots import Picture
from ngramkit.evaluate.provenance import Provenance, command_line, commit_of
from ngramkit.evaluate.replay_figures import Replay, Tally
from ngramkit.evaluate.result_folder import Contents, replace_folder, require_replaceable_results
from ngramkit.evaluate.result_tables import Cell, Table, steps_by_budget
from ngramkit.evaluate.statistics import Units, rate_interval, ratio_with_interval

TEXT = "def f(x):\n    return x\n\n\n"
TEXTS = {"results.json", "results.csv", "table.md", "table.tex"}
ONE_KIND = {f"budgets.{suffix}" for suffix in ("png", "pdf")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with answers, artifacts/ with a datastore, and results in `res`."""
    folder = tmp_path_factory.mktemp("results")
    rows = [
        {"prompt": f"class A{i}:\n", "output": TEXT * (i % 3 + 1) + f"value_{i} = {i}\n" * 3}
        for i in range(6)
    ]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ngramkit.build_datastore([TEXT], folder / "artifacts/texts", model="demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_here(
            ["replay", "--answers", "answers.jsonl", "--model", "demo", "--drafter", "context",
             "--drafter", "rest:max_match=6", "--drafter", "recycling", "--budget", "4,8",
             "--baseline", "context", "--out", "res"]
        )  # fmt: skip
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def here(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def figures(path):
    """Return the results without times and the date."""
    body = json.loads(path.read_text())
    for result in body["results"]:
        del result["draft_us_p50"], result["draft_us_p99"]
    del body["provenance"]["date"]
    return body


def test_a_path_need_not_be_utf_8(here, tmp_path):
    answers = tmp_path / os.fsdecode(b"\xff.jsonl")
    try:
        shutil.copy("answers.jsonl", answers)
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    out = tmp_path / "res"
    options = {"model": "demo", "drafters": "context", "budgets": [4]}
    found = ngramkit.replay(answers, out=out, **options)
    told = json.loads((out / "results.json").read_text("utf-8"))["provenance"]["files"]
    assert told == found.provenance.files
    assert r"\udcff.jsonl" in (out / "table.md").read_text("utf-8")


def test_a_folder_has_figures_tables_pictures_and_what_made_them(here):
    assert {path.name for path in (here / "res").iterdir()} == TEXTS | ONE_KIND
    body = json.loads((here / "res/results.json").read_text())
    told = body["provenance"]
    digest = hashlib.sha256((here / "answers.jsonl").read_bytes()).hexdigest()
    size = (here / "answers.jsonl").stat().st_size
    assert told["files"] == [{"path": "answers.jsonl", "bytes": size, "sha256": digest}]
    manifest = ngramkit.open_artifact(here / "artifacts/texts").manifest
    assert [(each["path"], each["build"]) for each in told["artifacts"]] == [
        ("artifacts/texts", manifest.build)
    ]
    assert told["tokenizer"]["fingerprint"] == manifest.tokenizer.fingerprint
    assert (told["ngramkit"], told["seeds"]) == (ngramkit.__version__, {"intervals": 0})
    assert told["options"]["budgets"] == [4, 8]
    assert body["machine"]["Python"]
    rows = list(csv.DictReader((here / "res/results.csv").open()))
    assert [(row["drafter"], row["budget"]) for row in rows][1:3] == [
        ("context", "8"), ("rest:max_match=6", "4"),
    ]  # fmt: skip
    for row, result in zip(rows, body["results"], strict=True):
        assert row["tokens_per_step_low"] == str(result["tokens_per_step_low"] or "")
    for name in ("table.md", "table.tex"):
        text = (here / "res" / name).read_text()
        assert told["command"] in text
        assert f"{body['results'][0]['tokens_per_step']:.2f}" in text
    assert [(each["of"], each["to"]) for each in body["ratios"]] == [
        ("rest:max_match=6", "context")
    ] * 2


def test_the_command_in_a_folder_gives_its_figures_again(here):
    before = figures(here / "res/results.json")
    words = shlex.split(before["provenance"]["command"])
    assert words[0] == "ngramkit"
    refused = run_here(words[1:])
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert "cannot be read" not in refused.err
    done = run_here([*words[1:], "--force"])
    assert done.code == 0, done.err
    after = figures(here / "res/results.json")
    named = before["provenance"].pop("options")["datastores"], after["provenance"].pop("options")
    assert (named[0], named[1]["datastores"]) == ([], ["artifacts/texts"])
    assert after == before


def test_results_from_python_name_the_artifacts_that_they_took(here, tmp_path):
    words = {"model": "demo", "drafters": ["rest", Context], "budgets": [4]}
    results = ngramkit.replay("answers.jsonl", out=tmp_path / "new", baseline=Context, **words)
    told = results.provenance
    assert [each["path"] for each in told.artifacts] == ["artifacts/texts"]
    own = "python:ngramkit.drafters.context:Context --baseline Context"
    assert f"--drafter rest --drafter {own}" in told.command
    assert [str(each).split(":")[0] for each in results.ratios()] == ["rest / Context"]
    assert results.folder == tmp_path / "new"
    assert repr(results).endswith("; artifacts: artifacts/texts>")
    assert "<td>Context</td>" in results._repr_html_()
    single = results.results[1]._repr_html_()
    assert "Context, 4 nodes" in single
    assert "<td>tokens_per_step</td>" in single
    assert results.to_dict()["provenance"]["command"] == told.command
    lazy = ngramkit.replay(
        iter(["answers.jsonl"]), model="demo", drafters=iter(["context"]), budgets=np.array([4]),
        limit=np.int64(2), out=tmp_path / "lazy",
    )  # fmt: skip
    assert "--answers answers.jsonl --drafter context --limit 2" in lazy.provenance.command
    assert len(lazy.provenance.files) == 1
    objects = ngramkit.replay("answers.jsonl", **{**words, "drafters": Context()})
    assert objects.provenance.command is None, "no line of a shell says an object"
    assert objects.provenance.options["drafters"] == "ngramkit.drafters.context:Context"


def test_a_command_names_artifacts_that_all_drafters_use(here, tmp_path, monkeypatch):
    """blend leaves out a frozen table of the datastore's corpus, cacheback takes it."""
    monkeypatch.chdir(tmp_path)
    for build in (ngramkit.build_datastore, ngramkit.build_frozen):
        build([TEXT], f"artifacts/{build.__name__}", model="demo")
    answers = here / "answers.jsonl"
    words = {"model": "demo", "budgets": [4], "limit": 1}
    both = ngramkit.replay(answers, drafters=["blend", "cacheback"], **words)
    assert [len(each["sources"]) for each in both.to_dict()["results"]] == [1, 1]
    assert len(both.provenance.artifacts) == 2
    assert "artifacts/" not in both.provenance.command, "blend would draft from both"
    one = ngramkit.replay(answers, drafters=["blend", "rest"], **words)
    assert one.provenance.command.endswith("--datastore artifacts/build_datastore")
    named = ngramkit.replay(
        answers, drafters=["blend", "cacheback"], datastores=["artifacts/build_datastore"], **words
    )
    assert named.provenance.command.endswith("--datastore artifacts/build_datastore")
    curve = ngramkit.replay(
        answers, drafters="rest", artifacts={"x": ["artifacts/build_datastore"]}, **words
    )
    assert curve.provenance.command.endswith("--curve x=artifacts/build_datastore --budget 4")
    assert len(curve.provenance.artifacts) == 1


def test_artifacts_that_are_built_meanwhile_are_known_to_all_drafters(tmp_path, monkeypatch):
    from ngramkit.basics.progress import Reporter
    from ngramkit.choose import choose_again_if_built

    monkeypatch.chdir(tmp_path)
    notes, calls = [], []
    reporter = Reporter()
    reporter.note = notes.append

    def choose_all():
        calls.append(1)
        if not (tmp_path / "artifacts/automatic").exists():
            ngramkit.build_datastore([TEXT], "artifacts/automatic/x", model="demo")
        return len(calls)

    assert choose_again_if_built(choose_all, reporter) == 2
    assert choose_again_if_built(choose_all, reporter) == 3
    assert notes == ["artifacts were built: choosing all drafters again"]


def test_a_baseline_is_one_of_the_drafters(here):
    words = {"model": "demo", "drafters": ["context", "rest:max_match=6"], "budgets": [4]}
    with pytest.raises(UsageError, match="unknown drafter 'contxt'") as error:
        ngramkit.replay("answers.jsonl", baseline="contxt", **words)
    assert "Did you mean context? Choose one of: context, rest:max_match=6" in error.value.hint
    found = ngramkit.replay("answers.jsonl", baseline="rest:max-match=6", **words)
    assert [(each.of, each.to) for each in found.ratios()] == [("context", "rest:max_match=6")]
    words["drafters"] = ["context", "recycling"]
    with pytest.raises(UsageError, match="cannot compare with recycling: it needs"):
        ngramkit.replay("answers.jsonl", baseline="recycling", **words)
    with pytest.raises(UsageError, match="answers must be files or Records, got int"):
        ngramkit.replay(5, out="never", **words)
    with pytest.raises(UsageError, match="unknown drafter 'ssd'"):
        ngramkit.bench(model="demo", drafters=["context:budget=2"], baseline="ssd", out="b")


def test_only_what_a_replay_wrote_is_replaced(here, tmp_path):
    """A foreign folder never, an earlier result with force."""
    require_replaceable_results(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    require_replaceable_results(tmp_path / "empty")
    with pytest.raises(UsageError, match="res: it exists"):
        require_replaceable_results(here / "res")
    require_replaceable_results(here / "res", force=True)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name, text in (("results.json", "{}"), ("results.csv", "a\n"), ("notes.md", "mine\n")):
        (theirs / name).write_text(text)
        with pytest.raises(UsageError, match=f"it holds {name}, which no replay wrote"):
            require_replaceable_results(theirs, force=True)
        (theirs / name).unlink()
    (theirs / "results.json").write_text((here / "res/results.json").read_text())
    (theirs / "runs.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"holds runs\.jsonl"):
        require_replaceable_results(theirs, force=True)
    (tmp_path / "link").symlink_to(here / "res")
    with pytest.raises(UsageError, match="must be a folder"):
        require_replaceable_results(tmp_path / "link", force=True)


def test_quiet_leaves_the_table(here):
    words = ["--drafter", "context", "--budget", "4", "-q"]
    done = run_here(["replay", "--answers", "answers.jsonl", *words])
    assert (done.code, done.err) == (0, "")
    assert "context" in done.out


def test_a_command_of_several_lines_is_one_comment(tmp_path):
    odd = Provenance("ngramkit replay --answers 'a\n\\b'", {}, [], {}, [], {}, {}, date="")
    replace_folder(tmp_path / "res", Contents("replay", {}, [], []), odd)
    lines = (tmp_path / "res/table.tex").read_text().splitlines()
    assert all(line.startswith("%") for line in lines if line)


def test_an_earlier_result_is_replaced_in_one_step(tmp_path):
    """A failure leaves it as it was; what a killed replay wrote is removed, other files are not."""
    out = tmp_path / "res"
    nowhere = Provenance(None, {}, [], {}, [], {}, {}, date="")
    picture = Picture("budgets", "steps", lambda axes: axes.plot([1, 2]), (4, 3))

    def write(number, pictures=()):
        contents = Contents("replay", {"number": number}, [], [], pictures)
        replace_folder(out, contents, nowhere, force=True)

    write(1, [picture])
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(2, [picture._replace(draw=fail)])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["res"]
    killed = tmp_path / "res.partial"
    killed.mkdir()
    (killed / "results.json.tmp").write_text("{")
    write(3)
    assert json.loads((out / "results.json").read_text())["number"] == 3
    assert {path.name for path in out.iterdir()} == TEXTS
    assert [path.name for path in tmp_path.iterdir()] == ["res"]
    killed.mkdir()
    (killed / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds mine\.txt"):
        write(4)
    assert (killed / "mine.txt").exists()


def replayed(drafter, budget, steps):
    found = Replay(drafter, budget, units=Units("conversations"))
    for step in steps:
        tally = Tally(tokens=10 * step, passes=10)
        found.by_record.append(tally)
        found.categories.append("all")
        found.total.add(tally)
    return found


def test_a_drafter_has_the_interval_of_its_tokens_by_its_passes():
    one = replayed("a", 8, range(1, 9))
    tokens, passes = [10 * step for step in range(1, 9)], [10] * 8
    alone = ratio_with_interval(("a", tokens, passes), ("one", [1] * 8, [1] * 8))
    assert (one.interval.low, one.interval.high) == pytest.approx((alone.low, alone.high))
    assert one.interval == one.interval_of("all")
    assert one.interval.over == "95 % over 8 conversations"
    assert replayed("a", 8, [1, 2]).interval.low is None
    learns = rate_interval([1] * 9, [1] * 9, Units("questions", dependent=True))
    assert (learns.low, "depend" in learns.over) == (None, True)
    nothing = rate_interval([0] * 9, [0] * 9)
    assert (nothing.low, nothing.high) == (None, None)


def test_many_units_are_drawn_in_parts_with_the_same_result(monkeypatch):
    random = np.random.default_rng(0)
    columns = random.integers(1, 9, size=(2, 50)).tolist()
    whole = rate_interval(*columns)
    monkeypatch.setattr("ngramkit.evaluate.statistics.MAX_DRAWN", 70)
    assert rate_interval(*columns) == whole


def test_tables_have_a_row_per_drafter_and_escape_names():
    wide = replayed("rest:max_match=8", 8, range(1, 9)), replayed("rest:max_match=8", 16, [3])
    lacking = Replay("a|b & --x", 8, missing="needs 100 % of it"), replayed("a|b & --x", 16, [1])
    table = steps_by_budget([*wide, *lacking], "steps", "Tokens/step")
    low, high = wide[0].interval.low, wide[0].interval.high
    lines = table.markdown().splitlines()
    assert lines[0] == "Tokens/step, with 95 % intervals over 8 conversations:"
    assert lines[2:4] == ["| draft nodes | 8 | 16 |", "| --- | ---: | ---: |"]
    assert lines[4] == rf"| rest:max\_match=8 | 4.50 ({low:.2f} to {high:.2f}) | 3.00 |"
    assert lines[5] == r"| a\|b & --x | n/a | 1.00 |"
    text = table.latex()
    assert r"\begin{tabular}{lrr}" in text
    assert r"rest:max\_match=8 & 4.50 & 3.00 \\" in text
    assert rf" & {{\scriptsize [{low:.2f}, {high:.2f}]}} &  \\" in text
    assert r"a\textbar{}b \& -{}-x & n/a & 1.00 \\" in text
    assert r"needs 100 \% of it.}" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    assert "tabcolsep" not in text  # more columns are set closer
    odd = Table("x", 'a "b"', ("a", *"bcdef"), [("c\\d---e", [Cell("1")]), ("[x]", [Cell("1*")])])
    text = odd.latex()
    assert text.count("textbackslash") == 1
    assert "-{}-{}-e" in text  # no dash
    assert r"\setlength{\tabcolsep}{3pt}" in text
    assert "{[}x] & 1{*}" in text  # no argument of the row before
    assert "a ''b''" in text  # every encoding has it


def test_a_command_says_its_words_or_is_none():
    said = {"answers": ["a b"], "columns": {"prompt": "q", "output": "a"}, "where": {}}
    said |= {"budget": "4,8", "chain": True, "store": False, "seed": None}
    line = "ngramkit replay --answers 'a b' --columns prompt=q,output=a --budget 4,8"
    line += " --chain --no-store"
    assert command_line("replay", said) == line
    assert command_line("replay", {"drafters": [Context]}).endswith(":Context")
    for odd in (Context(), lambda: None, replace(replayed("a", 8, [1]))):
        assert command_line("replay", {"drafters": [odd]}) is None
    assert command_line("bench", {"datastores": ["s3://u:p@b/x?sig=1"]}).endswith("s3://b/x")


def test_the_commit_of_a_checkout_is_read(tmp_path):
    commit, other = "a" * 40, "b" * 40
    git = tmp_path / ".git"
    assert commit_of(tmp_path) is None
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text(commit + "\n")
    assert commit_of(tmp_path) == commit
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{other} refs/heads/main\n")
    assert commit_of(tmp_path) == other
    (git / "refs/heads/main").write_text(commit + "\n")
    assert commit_of(tmp_path) == commit
    tree, private = tmp_path / "tree", git / "worktrees/tree"
    tree.mkdir()
    private.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {private}\n")
    (private / "commondir").write_text("../..\n")
    (private / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tree) == commit
    (git / "refs/heads/main").write_text("nothing\n")
    assert commit_of(tree) is None
