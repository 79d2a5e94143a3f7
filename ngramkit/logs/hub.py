"""Datasets of the Hub as files of a log: `hf:ID` or `hf:ID@REVISION`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, hub_errors
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.files import DESCRIPTIONS

DATASET_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([^@:]+))?")
PARQUET_BRANCH = "refs/convert/parquet"
# In the order of preference: what was recorded, then tables of it.
KINDS = ((".jsonl", ".jsonl.gz", ".jsonl.zst"), (".json",), (".parquet",))


def is_dataset(path: str | Path) -> bool:
    return DATASET_NAME.fullmatch(str(path)) is not None


def dataset_files(dataset: str | Path, reporter: Reporter = SILENT) -> list[Path]:
    """Download a dataset's files of requests, and return their paths, sorted.

    They are JSON lines if it has any, else JSON, else Parquet, which may be the Hub's conversion.
    Raises InputError for a dataset without such files, NetworkError if the Hub fails.
    """
    match = DATASET_NAME.fullmatch(str(dataset))
    assert match is not None
    repository, revision = match[1], match[2]
    from huggingface_hub import HfApi, hf_hub_download

    paths = []
    with hub_errors(repository):
        commit, files = _files_of_dataset(HfApi().dataset_info(repository, revision=revision))
        if not files and revision is None:
            info = HfApi().dataset_info(repository, revision=PARQUET_BRANCH)
            commit, files = _files_of_dataset(info)
        if not files:
            raise InputError(
                f"cannot read {repository}: it holds no JSON lines and no Parquet",
                f"See hf.co/datasets/{repository}.",
            )
        reporter.stage(f"downloading {repository}", len(files), "files")
        for name in files:
            path = hf_hub_download(repository, name, repo_type="dataset", revision=commit)
            paths.append(Path(path))
            reporter.advance(1)
    return paths


def _files_of_dataset(info: Any) -> tuple[str, list[str]]:
    """Return the commit, and the files of the first kind that there is."""
    names = sorted(file.rfilename for file in info.siblings or ())
    names = [name for name in names if Path(name).name not in DESCRIPTIONS]
    found = ([name for name in names if name.lower().endswith(kind)] for kind in KINDS)
    return info.sha, next(filter(None, found), [])
