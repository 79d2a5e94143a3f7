"""Environment variables that every test process and its children start with."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba_cache"))  # see kernels.code_folder
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # a GPU would be the default device
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes share the cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# What the user of this machine has chosen decides nothing here.
os.environ["XDG_CONFIG_HOME"] = str(ROOT / ".numba_cache" / "no-settings")
# Nor does what this machine knows to be whole; processes that tests start share the folder.
if "NGRAMKIT_TEST_CACHE" not in os.environ:
    os.environ["NGRAMKIT_TEST_CACHE"] = tempfile.mkdtemp(prefix="ngramkit-cache-")
    atexit.register(shutil.rmtree, os.environ["NGRAMKIT_TEST_CACHE"], ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ["NGRAMKIT_TEST_CACHE"]
# The many processes that tests start find the modules compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
