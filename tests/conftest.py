"""Fixtures that several parts share. Nothing here or below touches the network beyond loopback."""

from __future__ import annotations

import os

# Before any test imports torch: two test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
