"""Histories that machines share by the Hub: private, whole, and nobody else's to read."""

from __future__ import annotations

import dataclasses
import stat

import numpy as np
import pytest
from attacks import tally

from ngramkit.formats.eviction import drop_matching
from ngramkit.formats.history import History, copy_of
from ngramkit.formats.safetensors import FileRecord
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)
ATTACK = "a history from the Hub that is not what it says"


def write(path, *requests):
    history = History.at(path, RECORD)
    for request in requests:
        history.append(np.array(request, np.int32), 1)
    return history


def requests_in(path):
    return [(r.tokens.tolist(), r.prompt) for r in History.open(path).log.read().requests]


def modes(path):
    return {stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}


def test_the_card_of_a_history_names_its_languages(hub, shared, tmp_path):
    write(tmp_path / "one", [5, 6, 7])
    line = ["push", "one", "acme/languages", "--allow-private"]
    for options in (["--language", "de"], []):
        [done] = shared([*line, *options])
        assert done.code == 0, done.err
        repository = hub.repositories["dataset", "acme/languages"]
        card = repository.commits[repository.refs["main"]]["README.md"].decode()
        assert 'language: ["de"]' in card


def test_two_machines_share_what_they_remember(hub, shared, tmp_path):
    write(tmp_path / "one", [5, 6, 7], [8, 1])
    write(tmp_path / "two", [9, 10])
    first, second, pulled, merged = shared(
        ["push", "one", "acme/our-past", "--allow-private", "--revision", "one", "--json"],
        ["push", "two", "acme/our-past", "--allow-private", "--revision", "two", "--json"],
        ["pull", "acme/our-past@one", "--out", "back", "--json"],
        ["history", "merge", "back", "two", "--out", "both", "--json"],
    )
    assert (first.code, second.code) == (0, 0), first.err
    assert hub.repositories["dataset", "acme/our-past"].private
    line = "uploading user text to acme/our-past (private): 2 requests, 5 tokens"
    assert line in first.err
    assert first.json["counts"] == {"requests": 2, "tokens": 5}
    assert pulled.code == 0, pulled.err
    facts = {"kind": "history", "requests": 2, "tokens": 5, "revision": first.json["revision"]}
    assert facts.items() <= pulled.json.items()
    assert requests_in("back") == [([5, 6, 7], 1), ([8, 1], 1)]
    assert requests_in("both") == [([5, 6, 7], 1), ([8, 1], 1), ([9, 10], 1)]
    for folder in ("back", "both"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
        assert modes(tmp_path / folder) == {0o600}
    assert merged.code == 0
    history = History.at(tmp_path / "back", RECORD)  # as engines open it
    history.append(np.array([3], np.int32), 0)
    assert requests_in("back")[-1] == ([3], 0)


def test_its_text_is_in_no_cache_of_the_hubs(hub, shared, tmp_path):
    write(tmp_path / "past", [5, 6, 7])
    pushed, pulled, opened = shared(
        ["push", "past", "acme/our-past", "--allow-private"],
        ["pull", "acme/our-past"],
        ["inspect", "hf://acme/our-past"],
    )
    assert (pushed.code, pulled.code) == (0, 0), pulled.err
    assert requests_in("artifacts/our-past") == [([5, 6, 7], 1)]
    assert not list((tmp_path / "home").rglob("requests.log"))
    assert opened.code == 3
    assert "ngramkit pull acme/our-past" in opened.err


def test_a_public_repository_needs_a_word(hub, shared, tmp_path):
    write(tmp_path / "past", [5, 6, 7])
    hub.add("dataset", "acme/our-open", {".gitattributes": b""})
    refused, other, allowed = shared(
        ["push", "past", "acme/our-open", "--allow-private"],
        ["push", "past", "acme/our-open", "--allow-private", "--private"],
        ["push", "past", "acme/our-open", "--allow-private", "--public"],
    )
    assert (refused.code, other.code) == (2, 2)
    assert "cannot push past to acme/our-open" in refused.err
    assert "--public" in refused.err
    assert allowed.code == 0, allowed.err
    assert "1 request, 3 tokens" in allowed.err
    assert "(public)" in allowed.err
    [new] = shared(["push", "past", "acme/our-new", "--allow-private", "--public"])
    assert new.code == 0
    assert not hub.repositories["dataset", "acme/our-new"].private


def test_what_is_pushed_is_read_again_and_grows(hub, shared, tmp_path):
    history = write(tmp_path / "past", [5], [6])
    lines = (
        ["push", "past", "acme/our-past", "--allow-private", "--json"],
        ["pull", "acme/our-past", "--out", "back"],
    )
    _, pulled = shared(*lines)
    again, up_to_date = shared(*lines)
    assert (pulled.code, up_to_date.code) == (0, 0)
    assert again.json["files"] == 0
    assert "uploading user text" not in again.err
    assert "up to date" in up_to_date.err
    drop_matching(history, lambda request: request.tokens[0] == 5)  # another generation of the log
    history.append(np.array([7], np.int32), 0)
    grown, other = shared(*lines)
    assert grown.json["files"] == 2  # the log and the manifest
    assert (other.code, "holds other requests" in other.err) == (2, True)
    [forced] = shared([*lines[1], "--force"])
    assert (forced.code, "cannot be built again" in forced.err) == (2, True)
    [elsewhere] = shared([*lines[1][:-1], "new"])
    assert elsewhere.code == 0
    assert requests_in("new") == [([6], 1), ([7], 0)]


@pytest.mark.parametrize("branch", [[], ["--revision", "one"]])
def test_what_was_forgotten_is_in_no_commit_after_a_squash(hub, shared, tmp_path, branch):
    push = ["push", "past", "acme/our-past", "--allow-private", *branch, "--json"]
    history = write(tmp_path / "past", [5, 6], [7])
    shared(push)
    drop_matching(history, lambda request: request.tokens[0] == 5)
    shared(push)
    repository = hub.repositories["dataset", "acme/our-past"]

    def logs():
        return [commit["requests.log"] for commit in repository.commits.values() if len(commit) > 1]

    assert len(logs()) == 2
    [squashed] = shared([*push, "--squash"])
    assert squashed.code == 0, squashed.err
    assert squashed.json["files"] == 0
    assert repository.refs[branch[-1] if branch else "main"] == squashed.json["revision"]
    assert logs() == [copy_of(history)[1]]
    history.append(np.array([8], np.int32), 0)
    [grown] = shared([*push, "--squash"])
    assert grown.code == 0
    assert logs() == [copy_of(history)[1]]


def test_a_squash_goes_with_histories_and_branches_alone(hub, shared, tmp_path, artifacts):
    write(tmp_path / "past", [5])
    both, other = shared(
        ["push", "past", "acme/our-past", "--allow-private", "--squash", "--create-pr"],
        ["push", artifacts["frozen"], "acme/our-table", "--squash"],
    )
    assert (both.code, other.code) == (2, 2)
    assert "--squash" in both.err
    assert "cannot use --squash" in other.err


def test_the_card_of_a_history(hub, shared, tmp_path):
    write(tmp_path / "past", [5, 6, 7])
    _, listed, unseen = shared(
        ["push", "past", "acme/our-past", "--allow-private"],
        ["search", "--kind", "history", "--json"],
        ["search"],
    )
    repository = hub.repositories["dataset", "acme/our-past"]
    files = repository.commits[repository.refs["main"]]
    assert "ngramkit pull acme/our-past --out past" in files["README.md"].decode()
    assert "whoever has the tokenizer can read" in files["README.md"].decode()
    assert "acme/our-past" in [entry["id"] for entry in listed.json["found"]]
    assert "acme/our-past" in unseen.out
    [stranger] = shared(["search"], token=None)
    assert "acme/our-past" not in stranger.out


def test_a_damaged_log_is_not_pushed(hub, shared, tmp_path):
    history = write(tmp_path / "past", [5, 6, 7], [8])
    raw = bytearray(history.log.path.read_bytes())
    raw[-3] ^= 1
    history.log.path.write_bytes(raw)
    [pushed] = shared(["push", "past", "acme/our-past", "--allow-private"])
    assert (pushed.code, "history trim" in pushed.err) == (3, True)
    assert ("dataset", "acme/our-past") not in hub.repositories


def another_log(log, manifest):
    return b"NGKLOG" + bytes(len(log) - 6), manifest


def another_size(log, manifest):
    return log + bytes(4), manifest


def damaged(log, manifest):
    return relisted(log[:-5] + b"\x01" + log[-4:], manifest)


def torn(log, manifest):
    return relisted(log[:-4], manifest)


def outside(log, manifest):
    tokenizer = dataclasses.replace(manifest.tokenizer, vocabulary=6, eos=1)
    return log, dataclasses.replace(manifest, tokenizer=tokenizer)


def no_log(log, manifest):
    return None, manifest


def nothing_listed(log, manifest):
    return log, dataclasses.replace(manifest, files={})


def more_listed(log, manifest):
    files = {**manifest.files, "x.safetensors": FileRecord(1, "f" * 64)}
    return log, dataclasses.replace(manifest, files=files)


def huge(log, manifest):
    record = dataclasses.replace(manifest.files["requests.log"], bytes=1 << 40)
    return log, dataclasses.replace(manifest, files={"requests.log": record})


def relisted(log, manifest):
    from hashlib import sha256

    record = FileRecord(len(log), sha256(log).hexdigest())
    return log, dataclasses.replace(manifest, files={"requests.log": record})


@pytest.mark.attack
@pytest.mark.parametrize(
    "change",
    [another_log, another_size, damaged, torn, outside, no_log, nothing_listed, more_listed, huge],
)
def test_a_strangers_history_is_refused(hub, shared, tmp_path, change):
    manifest, log = copy_of(write(tmp_path / "past", [5, 6, 7]))
    log, manifest = change(log, manifest)
    files = {"manifest.json": manifest.to_json().encode()}
    if log is not None:
        files["requests.log"] = log
    hub.add("dataset", "acme/our-past", files)
    [pulled] = shared(["pull", "acme/our-past", "--out", "x"])
    assert pulled.code == 3, pulled.err
    assert len(pulled.err.strip().splitlines()) <= 2
    assert not list(tmp_path.glob("x*"))
    tally(ATTACK, "refused, exit 3")


@pytest.mark.attack
def test_only_its_requests_come_along(hub, shared, tmp_path):
    """Not another file, not a manifest's words, not bytes between requests."""
    manifest, log = copy_of(write(tmp_path / "past", [5, 6, 7]))
    manifest = dataclasses.replace(manifest, corpus={"id": "<b>mine</b>"}, parameters={"x": "y"})
    files = {"manifest.json": manifest.to_json().encode(), "requests.log": log}
    hub.add("dataset", "acme/our-past", {**files, "ages.json": b"[", "index.safetensors": b"x"})
    [pulled] = shared(["pull", "acme/our-past", "--out", "x"])
    assert pulled.code == 0, pulled.err
    assert sorted(entry.name for entry in (tmp_path / "x").iterdir()) == [
        "manifest.json", "requests.log",
    ]  # fmt: skip
    assert "mine" not in (tmp_path / "x" / "manifest.json").read_text()
    tally(ATTACK, "its requests alone")


@pytest.mark.attack
def test_links_in_a_history_are_not_followed(hub, shared, tmp_path):
    secret = tmp_path / "key"
    secret.write_text("a key")
    write(tmp_path / "past", [5])
    (tmp_path / "past" / "requests.log").unlink()
    (tmp_path / "past" / "requests.log").symlink_to(secret)
    [pushed] = shared(["push", "past", "acme/our-past", "--allow-private"])
    assert pulled_nothing(hub, pushed)
    tally("links and files in a folder that is sent", "refused, exit 3")


def pulled_nothing(hub, pushed):
    return pushed.code == 3 and ("dataset", "acme/our-past") not in hub.repositories
