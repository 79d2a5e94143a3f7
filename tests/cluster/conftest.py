"""A Ray cluster of two nodes on this machine. `make test-cluster` runs what is here, nothing else
does: a cluster takes longer to start than most tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Nodes are missed after ten seconds, not after twenty.
PATIENCE = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000,
            "health_check_failure_threshold": 10}  # fmt: skip
# On a busy machine too: workers are as nice as everything else, nodes start in their time.
BUSY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_agent_register_timeout_ms": "60000"}  # fmt: skip
NODE = {"num_cpus": 1, "memory": 4 << 30, "object_store_memory": 80 << 20}


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster():
    """Two nodes of a core each; this process is connected, so that all builds share the workers."""
    os.environ.update(BUSY)
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)  # the workers', who run slow_tasks
    import ray
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "_system_config": PATIENCE}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(**NODE)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
