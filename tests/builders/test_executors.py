"""Executors of tasks, and the choice of one. tests/cluster has the real Ray."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from command_lines import run_here

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.builders.tasks import Cluster, Task, open_executor


def double(number):
    return 2 * number


def fail(number):
    raise InputError(f"{number} cannot be read")


def tasks(count, work=double):
    return [Task(f"task {n}", f"{n}", work, (n,), 1 << 20) for n in range(count)]


def test_threads_run_every_task():
    with open_executor(workers=3) as executor:
        assert executor.local
        ran = {task.file: result for task, result in executor.run(tasks(20))}
        assert ran == {str(n): 2 * n for n in range(20)}
        with pytest.raises(InputError, match="cannot be read"):
            list(executor.run(tasks(3, fail)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": "rey"}, "unknown executor 'rey'"),
        ({"ray_address": "auto"}, "ray_address"),
        ({"executor": "ray", "ray_address": "some where"}, "ray_address must be"),
        ({"workers": 0}, "workers must be"),
    ],
)
def test_what_makes_no_sense_is_refused(monkeypatch, options, said):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with pytest.raises(UsageError, match=said), open_executor(**options):
        pass


def test_without_ray_the_command_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "a.txt").write_text("text")
    done = run_here(["tokenize", "--corpus", str(tmp_path), "--executor", "ray"])
    assert done.code == 2
    assert "error: cannot use --executor ray: it needs the package ray" in done.err
    assert "pip install 'ngramkit[ray]'" in done.err


class LostError(Exception):
    pass


class FakeRay:
    """What Cluster uses of ray. `lost`: how often each task's worker dies, by its argument."""

    def __init__(self, cores=2, memory=1 << 30, lost=None):
        self.lost = dict(lost or {})
        self.flying, self.most, self.cancelled, self.options = {}, 0, [], []
        self._node = {"Alive": True, "Resources": {"CPU": cores, "memory": memory}}
        other = type("OtherError", (Exception,), {})
        self.exceptions = SimpleNamespace(
            WorkerCrashedError=LostError, NodeDiedError=LostError, ObjectLostError=LostError,
            OutOfMemoryError=LostError, LocalRayletDiedError=LostError, RayTaskError=other,
            RayError=other,
        )  # fmt: skip

    def nodes(self):
        return [self._node, {"Alive": False, "Resources": {"CPU": 99, "memory": 1 << 50}}]

    def remote(self, function):
        def begin(version, work, given):
            ref = object()
            self.flying[ref] = (function, version, work, given)
            self.most = max(self.most, len(self.flying))
            return ref

        def options(**chosen):
            self.options.append(chosen)
            return SimpleNamespace(remote=begin)

        return SimpleNamespace(options=options)

    def wait(self, refs, num_returns, timeout):
        return refs[-1:], refs[:-1]

    def get(self, ref):
        function, version, work, given = self.flying.pop(ref)
        if self.lost.get(given[0], 0):
            self.lost[given[0]] -= 1
            raise LostError
        return function(version, work, given)

    def cancel(self, ref, force):
        self.cancelled.append(ref)


def test_lost_tasks_are_begun_again_and_counted():
    ray = FakeRay(lost={1: 3, 4: 1})
    cluster = Cluster(ray, None, Reporter())
    ran = {task.file: result for task, result in cluster.run(tasks(6))}
    assert ran == {str(n): 2 * n for n in range(6)}
    assert cluster.retries == 4
    assert ray.most == 4  # two for each core
    assert {(each["num_cpus"], each["memory"], each["max_retries"]) for each in ray.options} == {
        (1, 1 << 20, 0)
    }
    assert {each["name"] for each in ray.options} == {f"task {n}" for n in range(6)}


def test_a_task_that_is_lost_again_and_again_ends_the_build():
    ray = FakeRay(lost={2: 99})
    with pytest.raises(InputError, match="task 2: lost 4 times"):
        list(Cluster(ray, 3, Reporter()).run(tasks(6)))
    assert ray.most == 3
    assert set(ray.cancelled) == set(ray.flying)


def test_errors_of_tasks_are_raised_and_the_others_ended():
    ray = FakeRay()
    with pytest.raises(InputError, match="cannot be read"):
        list(Cluster(ray, None, Reporter()).run(tasks(9, fail)))
    assert set(ray.cancelled) == set(ray.flying) != set()


def test_another_version_on_a_node_is_named(monkeypatch):
    monkeypatch.setattr("ngramkit.builders.tasks.__version__", "9.9")
    ray = FakeRay()
    running = Cluster(ray, 1, Reporter()).run(tasks(1))
    monkeypatch.setattr(ray, "get", lambda ref, get=ray.get: as_of_today(monkeypatch, get, ref))
    with pytest.raises(InputError, match=r"ngramkit 9.9, got 1.0"):
        list(running)


def as_of_today(monkeypatch, get, ref):
    monkeypatch.setattr("ngramkit.builders.tasks.__version__", "1.0")
    return get(ref)


def test_what_fits_no_node_is_refused():
    with pytest.raises(InputError, match=r"needs 1 MiB, the largest node has 0 MiB"):
        list(Cluster(FakeRay(memory=1000), 1, Reporter()).run(tasks(1)))
