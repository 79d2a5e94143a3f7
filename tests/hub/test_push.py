"""push and search over the wire: the real huggingface_hub against the stand-in."""

from __future__ import annotations

import json
import shutil

import hub_writing
import pytest
from attacks.crafted import read_arrays, sign
from hub_datasets import add
from hub_standin import TOKEN, Fault

from ngramkit.formats.opening import verify_artifact
from ngramkit.hub.repository import Repository


def sent(hub, since=0):
    return [line for line in hub.requests[since:] if line.startswith("PUT")]


def test_a_pushed_artifact_can_be_pulled(hub, shared, tmp_path, artifacts):
    path = artifacts["datastore"]
    shards = len(list(path.glob("*.safetensors")))
    assert shards > 2
    pushed, again, pulled, found = shared(
        ["push", path, "acme/our-data", "--tag", "v1", "--json"],
        ["push", path, "acme/our-data", "--tag", "v1", "--json"],
        ["pull", "acme/our-data@v1", "--out", tmp_path / "back", "--json"],
        ["search", "--tokenizer", "demo", "--json"],
    )
    assert pushed.code == 0, pushed.err
    assert (pushed.json["files"], pushed.json["skipped"]) == (shards + 3, 0)
    assert (
        pushed.json["url"]
        == f"{hub.endpoint}/datasets/acme/our-data/tree/{pushed.json['revision']}"
    )
    assert (again.code, again.json["files"], again.json["bytes"]) == (0, 0, 0)
    assert again.json["revision"] == pushed.json["revision"]
    assert pulled.code == 0, pulled.err
    assert pulled.json["revision"] == pushed.json["revision"]
    assert list(verify_artifact(tmp_path / "back"))
    for name in (*(file.name for file in path.glob("*.safetensors")), "manifest.json"):
        assert (tmp_path / "back" / name).read_bytes() == (path / name).read_bytes()
    [ours] = [entry for entry in found.json["found"] if entry["id"] == "acme/our-data"]
    assert ours["kind"] == "datastore"


def test_a_push_asks_for_the_repository_once_before_it_writes(hub, shared, artifacts):
    line = ["push", artifacts["datastore"], "acme/asked-once"]
    assert shared(line)[0].code == 0
    since = len(hub.requests)
    [again] = shared(line)
    assert again.code == 0, again.err
    asked = [each for each in hub.requests[since:] if each.startswith("GET /api/datasets/acme")]
    assert asked.count("GET /api/datasets/acme/asked-once") == 2, asked  # and once at the end


def test_a_push_at_the_same_time_is_noticed(hub, shared, tmp_path, artifacts, monkeypatch):
    line = ["push", artifacts["datastore"], "acme/our-data"]
    [first] = shared(line)
    assert first.code == 0, first.err
    repository = hub.repositories["dataset", "acme/our-data"]
    del (changed := dict(repository.commits[repository.refs["main"]]))["README.md"]
    repository.commit(changed)
    create = Repository.create

    def of_another(self, **options):
        create(self, **options)
        repository.commit({**changed, "shard-00000.safetensors": b"another artifact's"})

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "create", of_another)
        [pushed] = shared(line)
    assert pushed.code == 3
    assert "cannot push to acme/our-data: somebody else wrote to it at the same time" in pushed.err
    again, pulled = shared(line, ["pull", "acme/our-data", "--out", tmp_path / "back"])
    assert (again.code, pulled.code) == (0, 0)


def test_the_card(hub, shared, artifacts):
    [pushed] = shared(["push", artifacts["frozen"], "acme/our-table"])
    assert pushed.code == 0, pushed.err
    repository = hub.repositories["dataset", "acme/our-table"]
    text = repository.commits[repository.refs["main"]]["README.md"].decode()
    header = hub_writing.front_matter(text)
    assert header["tags"] == ["ngramkit", "frozen-table"]
    assert header["size_categories"] == ["n<1K"]
    facts = header["ngramkit"]
    assert facts["kind"] == "frozen-table"
    assert (facts["tokenizer"], facts["vocabulary"]) == ("demo", 4096)
    assert "ngramkit build-frozen --corpus" in text
    assert "--follower-len 3 --followers 128 --leader-len 1 --leaders 1048576" in text
    assert "--drafter cacheback --frozen-table hf://acme/our-table" in text
    table = text.split("## Most frequent entries")[1]
    assert "` the` | 108 |" in table
    assert "The source names no licence." in text


def test_a_change_sends_only_what_changed(hub, shared, tmp_path, artifacts):
    path = tmp_path / "mine"
    shutil.copytree(artifacts["datastore"], path)
    [first] = shared(["push", path, "acme/our-data", "--json"])
    assert first.code == 0, first.err
    third = read_arrays(path / "shard-00002.safetensors")["tokens"]

    def without_the_third(manifest):
        del manifest["files"]["shard-00002.safetensors"]
        manifest["counts"]["tokens"] -= int((third != 4096).sum())
        manifest["counts"]["documents"] -= int((third == 4096).sum())

    sign(path, without_the_third)
    since = len(hub.requests)
    [second] = shared(["push", path, "acme/our-data", "--json"])
    assert (second.code, second.json["files"]) == (0, 3)  # the manifest, the card, the preview
    assert len(sent(hub, since)) == 1
    files = hub.repositories["dataset", "acme/our-data"].commits[second.json["revision"]]
    assert "shard-00002.safetensors" not in files
    assert {".gitattributes", "README.md", "shard-00001.safetensors"} <= files.keys()


def test_an_interrupted_upload_goes_on(hub, shared, artifacts, monkeypatch):
    path = artifacts["datastore"]
    shards = len(list(path.glob("*.safetensors")))
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    hub.faults.append(Fault(r"POST .*/commit/", 500, times=20))
    since = len(hub.requests)
    [broken] = shared(["push", path, "acme/our-data", "--json"])
    assert broken.code == 4
    assert "500" in broken.err
    assert "again" in broken.err
    assert len(sent(hub, since)) == shards + 1  # and the preview
    assert "shard-00000.safetensors" not in str(
        hub.repositories["dataset", "acme/our-data"].commits
    )
    hub.faults.clear()
    since = len(hub.requests)
    [whole] = shared(["push", path, "acme/our-data", "--json"])
    assert whole.code == 0, whole.err
    assert not sent(hub, since)


def test_a_connection_lost_while_uploading(hub, shared, artifacts, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    path = artifacts["datastore"]
    second = json.loads((path / "manifest.json").read_text())["files"]["shard-00001.safetensors"]
    hub.faults.append(Fault(f"PUT .*{second['sha256']}", 0, times=100))
    [broken] = shared(["push", path, "acme/our-data"])
    assert broken.code == 4
    assert "cannot reach" in broken.err
    assert [line.split()[0] for line in broken.err.splitlines()[1:]] == ["warning:", "error:", "->"]
    hub.faults.clear()
    since = len(hub.requests)
    [whole] = shared(["push", path, "acme/our-data"])
    assert whole.code == 0, whole.err
    assert len(sent(hub, since)) == len(list(path.glob("*.safetensors")))  # one less, the preview


def test_dropped_connections_and_busy_answers_are_tried_again(
    hub, shared, tmp_path, artifacts, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    hub.faults += [Fault("PUT", 0, times=1), Fault("PUT", 429, times=1, retry_after="0")]
    hub.faults += [Fault("GET .*/resolve/.*shard-00001", -1, times=1)]
    pushed, pulled = shared(
        ["push", artifacts["datastore"], "acme/our-data"],
        ["pull", "acme/our-data", "--out", tmp_path / "back", "--json"],
    )
    assert pushed.code == 0, pushed.err
    assert pulled.code == 0, pulled.err
    assert not any(fault.times for fault in hub.faults)
    assert list(verify_artifact(tmp_path / "back"))


def test_branches_private_repositories_and_pull_requests(hub, shared, tmp_path, artifacts):
    private, branch, request, stranger = shared(
        ["push", artifacts["frozen"], "acme/our-own", "--private", "--json"],
        ["push", artifacts["datastore"], "acme/our-own", "--revision", "data", "--json"],
        ["push", artifacts["datastore"], "acme/our-own", "--create-pr", "--json"],
        ["push", artifacts["frozen"], "acme/our-own", "--create-pr", "--tag", "x"],
    )
    repository = hub.repositories["dataset", "acme/our-own"]
    assert repository.private
    assert repository.refs["main"] == private.json["revision"]
    assert repository.refs["data"] == branch.json["revision"]
    assert repository.refs["refs/pr/1"] == request.json["revision"]
    assert request.json["pull_request"].endswith("/discussions/1")
    assert (stranger.code, "--create-pr" in stranger.err) == (2, True)
    [alone] = shared(["pull", "acme/our-own", "--out", tmp_path / "x"], token=None)
    assert alone.code == 3
    assert "private" in alone.err
    assert not (tmp_path / "x").exists()


def test_a_dry_run_shows_what_would_be_sent_and_changes_nothing(hub, shared, artifacts):
    line = ["push", artifacts["frozen"], "acme/our-data"]
    [new] = shared([*line, "--dry-run", "--json"])
    assert new.code == 0, new.err
    assert ("dataset", "acme/our-data") not in hub.repositories
    names = {"manifest.json", "README.md", "table.safetensors", "preview/phrases.parquet"}
    assert set(new.json["sent"]) == names
    assert new.json["sent"]["table.safetensors"] == new.json["bytes"] - sum(
        new.json["sent"][name] for name in names - {"table.safetensors"}
    )
    known = {name: new.json[name] for name in ("new", "private", "replaced", "revision")}
    assert known == {"new": True, "private": False, "replaced": [], "revision": ""}
    pushed, again, told = shared(
        [*line, "--private", "--json"],
        [*line, "--dry-run", "--json"],
        ["push", artifacts["datastore"], "acme/our-data", "--dry-run", "--force"],
    )
    assert not pushed.json["dry_run"]
    assert (again.json["files"], again.json["new"], again.json["private"]) == (0, False, True)
    repository = hub.repositories["dataset", "acme/our-data"]
    assert repository.refs["main"] == pushed.json["revision"]
    assert f"{hub.endpoint}/datasets/acme/our-data (private): " in told.out
    assert "shard-00000.safetensors" in told.out
    last = told.out.splitlines()[-1]
    replaced = "manifest.json, README.md, preview/phrases.parquet, table.safetensors"
    assert last == f"would replace or delete: {replaced}"


def test_another_kind_is_replaced_only_with_force(hub, shared, artifacts):
    first, refused, same, sure = shared(
        ["push", artifacts["frozen"], "acme/our-data", "--json"],
        ["push", artifacts["datastore"], "acme/our-data"],
        ["push", artifacts["frozen"], "acme/our-data"],
        ["push", artifacts["datastore"], "acme/our-data", "--force", "--json"],
    )
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert "it is a datastore and would replace a frozen-table" in " ".join(refused.err.split())
    assert same.code == 0
    assert sure.json["replaced"] == [
        "manifest.json", "README.md", "preview/phrases.parquet", "table.safetensors"
    ]  # fmt: skip
    repository = hub.repositories["dataset", "acme/our-data"]
    assert repository.refs["main"] == sure.json["revision"] != first.json["revision"]


def test_every_push_says_that_the_repository_is_public(hub, shared, artifacts):
    open_, again, own = shared(
        ["push", artifacts["frozen"], "acme/our-data"],
        ["push", artifacts["frozen"], "acme/our-data"],
        ["push", artifacts["frozen"], "acme/our-own", "--private"],
    )
    for each in (open_, again):
        assert "acme/our-data is public: everybody can download it" in each.err
        assert "(public): " in each.out
    assert "public" not in own.err + own.out
    assert "(private): " in own.out


def test_other_peoples_files_are_left_alone(hub, shared, artifacts):
    theirs = {"README.md": b"# Mine\n", "data/train.parquet": b"x"}
    hub.add("dataset", "acme/our-corpus", theirs)
    add(hub, artifacts["frozen"], **{"notes.txt": b"mine", "old.safetensors": b"x"})
    foreign, own = shared(
        ["push", artifacts["frozen"], "acme/our-corpus"],
        ["push", artifacts["frozen"], "acme/our-data", "--json"],
    )
    assert (foreign.code, "did not write" in foreign.err) == (2, True)
    repository = hub.repositories["dataset", "acme/our-corpus"]
    assert repository.commits[repository.refs["main"]] == theirs
    files = hub.repositories["dataset", "acme/our-data"].commits[own.json["revision"]]
    assert "notes.txt" in files
    assert "old.safetensors" not in files


def test_a_tag_does_not_move(hub, shared, artifacts):
    first, second = shared(
        ["push", artifacts["frozen"], "acme/our-data", "--tag", "v1", "--json"],
        ["push", artifacts["datastore"], "acme/our-data", "--tag", "v1", "--force"],
    )
    assert second.code == 2
    assert "to another commit" in second.err
    assert hub.repositories["dataset", "acme/our-data"].tags == {"v1": first.json["revision"]}


@pytest.mark.parametrize(
    ("token", "line", "code", "said"),
    [
        (None, ["push", "{frozen}", "acme/our-x"], 4, "hf auth login"),
        ("hf_wrong", ["push", "{frozen}", "acme/our-x"], 4, "hf auth login"),
        (TOKEN, ["push", "{frozen}", "elsewhere/x"], 4, "refuses"),
        (TOKEN, ["push", "{frozen}", "our-x"], 2, "USER/NAME"),
        (TOKEN, ["push", "{frozen}", "acme/our-x@v1"], 2, "name a branch by --revision"),
        (TOKEN, ["push", "{frozen}/..", "acme/our-x"], 3, "not an ngramkit artifact"),
        (TOKEN, ["pull", "acme/no-such"], 3, "the dataset acme/no-such"),
        (TOKEN, ["pull", "Skylion007/openwebtext"], 3, "not an ngramkit artifact"),
        (TOKEN, ["pull", "Skylion007/openwebtext@v9"], 3, "no such revision"),
        (None, ["pull", "acme/our-gated"], 4, "gated"),
        (TOKEN, ["pull", "not a name"], 2, "USER/NAME"),
    ],
)
def test_refusals_say_what_to_do(hub, shared, artifacts, tmp_path, token, line, code, said):
    files = {path.name: path.read_bytes() for path in artifacts["frozen"].iterdir()}
    hub.add("dataset", "acme/our-gated", files, gated=True)
    words = [word.format(**artifacts) for word in line]
    if line[0] == "pull":
        words += ["--out", tmp_path / "x"]
    [result] = shared(words, token=token)
    assert (result.code, said in result.err) == (code, True), result.err
    assert len(result.err.strip().splitlines()) <= 2, result.err
    assert not list(tmp_path.glob("x*"))
