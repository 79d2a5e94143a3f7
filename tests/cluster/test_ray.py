"""Builds on a real Ray cluster: the bytes of one machine, whatever is killed in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray", reason="ray is not installed: make ray")
import slow_tasks
from elsewhere import contents

import ngramkit
from ngramkit.basics.errors import InputError, NetworkError
from ngramkit.basics.progress import Reporter
from ngramkit.builders.tasks import Task, open_executor
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit_cli.errors import EXIT_CODES

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "return", "self", "None", "\n"]
RAY = {"executor": "ray"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Six files of about 20,000 tokens."""
    chosen, folder = random.Random(0), tmp_path_factory.mktemp("texts")
    for number in range(6):
        lines = [
            json.dumps({"text": " ".join(chosen.choices(WORDS, k=chosen.randrange(1, 150)))})
            for _ in range(100)
        ]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def store(texts, tmp_path_factory):
    return ngramkit.tokenize(str(texts), "demo", tmp_path_factory.mktemp("tokens") / "tokens")


class Listening(Reporter):
    """Calls `at` once, when the second task is done."""

    def __init__(self, at=None):
        self.last, self.notes, self._at = {}, [], at

    def advance(self, amount, **counts):
        self.last = counts
        if self._at is not None and counts.get("tasks", counts.get("parts", 0)) >= 2:
            at, self._at = self._at, None
            at()

    def note(self, text):
        self.notes.append(text)


def both(build, out, reporter=None):
    """`build` on this machine and on the cluster."""
    here = build(out=out / "here")
    there = build(out=out / "there", **RAY, **({"reporter": reporter} if reporter else {}))
    assert contents(there.path) == contents(here.path)
    return there


OPTIONS = [{}, {"sample": 0.5}, {"limit": 250}, {"dedup": "exact", "limit": 300}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tokens_are_those_of_one_machine(cluster, texts, tmp_path, options):
    listening = Listening()
    both(lambda **more: ngramkit.tokenize(str(texts), "demo", **more, **options), tmp_path,
         listening)  # fmt: skip
    assert "ray: 2 nodes, 2 cores" in listening.notes


def test_artifacts_are_those_of_one_machine(cluster, store, tmp_path):
    tables = []
    for leaders in (50, 1 << 20):
        (tmp_path / f"frozen-{leaders}").mkdir()
        tables.append(both(lambda leaders=leaders, **more: ngramkit.build_frozen(
            store, leaders=leaders, **more), tmp_path / f"frozen-{leaders}"))  # fmt: skip
    (tmp_path / "merged").mkdir()
    both(lambda **more: ngramkit.merge(tables, memory="32M", **more), tmp_path / "merged")
    built = []
    for fill in (20_000, 50_000):
        (tmp_path / str(fill)).mkdir()
        built.append(both(lambda fill=fill, **more: ngramkit.build_datastore(
            store, shard_tokens=fill, **more), tmp_path / str(fill)))  # fmt: skip
    both(lambda **more: ngramkit.merge(built, **more), tmp_path)


def test_a_recipe_is_built_on_the_cluster(cluster, texts, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'kind = "frozen-table"\n[corpus]\nname = "{texts}"\n[model]\nid = "demo"\n')
    built = [ngramkit.build(recipe, tmp_path / name, executor=name)
             for name in ("local", "ray")]  # fmt: skip
    assert [each.status for each in built] == ["built", "built"]
    assert contents(tmp_path / "ray" / "mine") == contents(tmp_path / "local" / "mine")


def tasks(folder, count, given, work=slow_tasks.write):
    return [Task(f"{work.__name__} {n}", f"{n}", work, (str(folder), f"{n}", given), 1 << 20)
            for n in range(count)]  # fmt: skip


@pytest.fixture
def third(cluster, tmp_path_factory):
    """A node that works already."""
    node = cluster.add_node(num_cpus=2, memory=4 << 30, object_store_memory=80 << 20)
    folder = tmp_path_factory.mktemp("warm")
    with open_executor("ray") as executor:
        while not any(node.node_id in each.read_text() for each in folder.glob("*.begun")):
            list(executor.run(tasks(folder, 4, 0.5)))
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


def store_of(texts, folder, **more):
    return ngramkit.tokenize(str(texts), "demo", **more)


def datastore_of(texts, folder, **more):
    store = ngramkit.tokenize(str(texts), "demo", folder / "tokens")
    return ngramkit.build_datastore(store, shard_tokens=4000, **more)


def table_of(texts, folder, **more):
    """The less memory, the more tasks; see `test_a_node_that_is_lost_changes_nothing`."""
    store = tokenize(open_corpus(str(texts)), "demo", folder / "tokens", shard_tokens=6000)
    return ngramkit.build_frozen(store, memory="512K", **more)


@pytest.mark.parametrize("build", [store_of, datastore_of, table_of])
def test_a_node_that_is_lost_changes_nothing(cluster, third, texts, tmp_path, build, monkeypatch):
    monkeypatch.setattr("ngramkit.builders.frozen.MIN_MEMORY", 1 << 19)  # so small a table
    ran = []

    def lose():
        ran.append(dict(listening.last))
        cluster.remove_node(third, allow_graceful=False)

    listening = Listening(at=lose)
    both(lambda **more: build(texts, tmp_path, **more), tmp_path, listening)
    assert ran  # in the middle of the first stage
    assert third not in cluster.worker_nodes


def test_what_ran_on_a_lost_node_is_begun_again(cluster, third, tmp_path):
    staying = tasks(tmp_path, 9, third.node_id, slow_tasks.stay)
    with open_executor("ray") as executor:
        finished = []
        for task, name in executor.run(staying):
            assert task.file == name
            if not finished:  # elsewhere: one stays on the third
                cluster.remove_node(third, allow_graceful=False)
            finished.append(name)
        retries = executor.retries
    assert sorted(finished) == [str(n) for n in range(9)]
    assert 0 < retries <= 4
    begun = [(tmp_path / f"{n}.begun").read_text().split() for n in range(9)]
    assert any(len(nodes) == 2 and nodes[0] == third.node_id for nodes in begun)
    assert all(nodes[-1] != third.node_id for nodes in begun)


def test_a_killed_worker_is_replaced_and_a_deadly_task_given_up(cluster, tmp_path):
    once = Task("dies once", "once", slow_tasks.die_once, (str(tmp_path), "once"), 1 << 20)
    with open_executor("ray") as executor:
        assert [name for _, name in executor.run([once])] == ["once"]
        assert executor.retries == 1
        with pytest.raises(InputError, match="cannot finish deadly: lost 4 times") as error:
            list(executor.run([Task("deadly", "x", slow_tasks.die, (), 1 << 20)]))
    assert "the same command again" in error.value.hint


def test_what_a_task_raises_is_raised_here(cluster):
    with open_executor("ray") as executor:
        with pytest.raises(InputError, match="cannot be read") as error:
            list(executor.run([Task("refuses", "x", slow_tasks.refuse, (), 1 << 20)]))
        assert (error.value.hint, error.value.option) == ("Fetch it again.", ("corpus",))
        with pytest.raises(KeyError, match="a bug"):
            list(executor.run([Task("errs", "x", slow_tasks.err, (), 1 << 20)]))


def test_a_task_that_fits_no_node_is_refused_at_once(cluster):
    huge = Task("huge", "x", slow_tasks.refuse, (), 8 << 30)
    said = r"cannot run huge: it needs 8,192 MiB, the largest node has 4,096"
    with open_executor("ray") as executor, pytest.raises(InputError, match=said):
        list(executor.run([huge]))


def test_workers_bound_what_is_in_flight(cluster, tmp_path):
    with open_executor("ray", workers=1) as executor:
        ran = executor.run(tasks(tmp_path, 3, 0.0))
        next(ran)
        assert len(list(tmp_path.glob("*.begun"))) <= 1
        assert len(list(ran)) == 2


COMMAND = [sys.executable, "-c", "from ngramkit_cli.main import run; run()", "build-datastore",
           "--shard-tokens", "2000", "--executor", "ray"]  # fmt: skip


def test_a_killed_driver_goes_on_where_it_was(cluster, store, tmp_path):
    """The command is killed with its tasks in flight, then run again."""
    import ray

    while sum(node["Alive"] for node in ray.nodes()) > 2:
        time.sleep(0.1)  # nodes that other tests lost are missed after ten seconds
    whole = ngramkit.build_datastore(store, tmp_path / "whole", shard_tokens=2000)
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    line = [*COMMAND, "--tokens", store.path, "--out", out, "--ray-address", cluster.address]
    killed = subprocess.Popen([str(word) for word in line], cwd=tmp_path)
    while killed.poll() is None and len(recorded(partial)) < 3:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = {name: (partial / name).stat().st_ino for name in recorded(partial)}
    assert 3 <= len(before) < len(whole.manifest.files)
    done = subprocess.run([str(word) for word in [*line, "--json"]], cwd=tmp_path, check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert contents(out) == contents(whole.path)
    assert before == {name: (out / name).stat().st_ino for name in before}  # not written again
    assert "2 cores" in done.stderr


def recorded(partial):
    try:
        lines = (partial / "progress.jsonl").read_text().split("\n")
    except OSError:
        return set()
    return {json.loads(line)["name"] for line in lines if line.endswith("}")}  # not half a line


def test_where_no_cluster_answers_that_is_said(tmp_path):
    line = [*COMMAND, "--corpus", str(tmp_path), "--ray-address", "127.0.0.1:9"]
    (tmp_path / "a.txt").write_text("text")
    done = subprocess.run([str(word) for word in line], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == EXIT_CODES[NetworkError]
    assert "Ray cluster at 127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) <= 4
