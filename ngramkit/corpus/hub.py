"""Datasets of the Hub as a corpus, streamed and pinned to a commit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, first_line, hub_errors
from ngramkit.basics.progress import SILENT, Reporter, show_downloads
from ngramkit.corpus.agent_sessions.source import SessionSource
from ngramkit.corpus.arrow_tables import table_rows
from ngramkit.corpus.columns import Columns
from ngramkit.corpus.document import DocumentSource, Row
from ngramkit.corpus.files import reader_suffix
from ngramkit.corpus.remote_files import remote_source
from ngramkit.corpus.rows import INSPECTED_RECORDS, ReaderOptions, RowMaker
from ngramkit.remote.urls import plain_path

STREAMED_ROWS = 1000
TRACES = "format:agent-traces"  # a tag
PARQUET_BRANCH = "refs/convert/parquet"
# Parts of error messages of `datasets`: a file's types differ from the first one's; a script.
CAST_ERROR = "Couldn't cast"
SCRIPT_ERROR = "scripts are no longer supported"


@dataclass(frozen=True)
class HubSource(DocumentSource):
    """A dataset of the Hub; a shard of `stream` (datasets.IterableDataset) is a part."""

    id: str  # the user's name for it
    repository: str
    stream: Any
    maker: RowMaker
    reading: ReaderOptions
    facts: Mapping[str, Any]
    files: Sequence[str] = ()  # hf://datasets/ID@COMMIT/PATH

    @property
    def parts(self) -> int:
        return int(self.stream.num_shards)

    def record(self) -> dict[str, Any]:
        return {**self.facts, **self.reading.record(), "column": self.maker.column}

    def _file(self, part: int) -> str:
        if len(self.files) != self.parts:
            return f"shard {part}"
        return self.files[part].partition("@")[2].partition("/")[2] or self.files[part]

    def rows(self, part: int) -> Iterator[Row]:
        with dataset_errors(self.repository, self._file(part)):
            with _without_torch():
                shard = self.stream.shard(num_shards=self.parts, index=part).with_format("arrow")
            yield from dataset_rows(shard, f"{self.id}, shard {part}", self.maker, self.reading)


def dataset_rows(
    dataset: Any, where: str, maker: RowMaker, reading: ReaderOptions
) -> Iterator[Row]:
    """Yield the rows of a dataset of `datasets` in the format "arrow"."""
    tables = dataset.iter(batch_size=STREAMED_ROWS)
    batches = chain.from_iterable(table.to_batches() for table in tables)
    yield from table_rows(where, maker, batches, reading)


def hub_source(
    repository: str,
    reading: ReaderOptions,
    *,
    id: str,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    data_dir: str | None = None,
    reporter: Reporter = SILENT,
) -> DocumentSource:
    """Open a dataset for streaming; a dataset script by its Parquet conversion.

    The files of a dataset of agents' sessions are read as they are.

    Raises InputError for unknown names, NetworkError if the Hub fails.
    """
    with ExitStack() as stack:
        stack.enter_context(dataset_errors(repository))
        info = _dataset_info(repository, revision)
        if TRACES in (info.tags or ()) and reading.column is None:
            _require_all_files(repository, config, split)
            return _session_files(repository, info, reading, id, reporter)
        stack.enter_context(_without_torch())
        try:
            builder = _dataset_builder(repository, config, info.sha, data_dir)
        except RuntimeError as error:
            if SCRIPT_ERROR not in str(error):
                raise
            reporter.note(f"{repository} is a script: reading its Parquet branch instead")
            info = _dataset_info(repository, PARQUET_BRANCH)
            folder = _parquet_folder(repository, config, info)
            builder = _dataset_builder(repository, None, info.sha, folder)
        stream = _dataset_split(builder, repository, split)
        maker = RowMaker.of(columns_of(stream), repository, reading)
        if hasattr(builder.config, "columns"):  # Parquet: other columns are never fetched
            builder.config.columns = maker.columns
            stream = _dataset_split(builder, repository, split)
        else:
            stream = stream.select_columns(maker.columns)
    facts = _facts_of(repository, info, split=split, config=config, data_dir=data_dir)
    files = [*map(str, (builder.config.data_files or {}).get(split, ()))]
    return HubSource(id, repository, stream, maker, reading, facts, files)


def _facts_of(repository: str, info: Any, **names: str | None) -> dict[str, str]:
    """Return what records of a dataset hold."""
    licence = None if info.card_data is None else info.card_data.get("license")
    facts = {"dataset": repository, "revision": info.sha, **names, "dataset_license": licence}
    return {name: value for name, value in facts.items() if value is not None}


def _require_all_files(repository: str, config: str | None, split: str) -> None:
    """Raise UsageError for a part of a dataset of sessions, whose files are all read."""
    if config is not None or split != "train":
        raise UsageError(
            f"cannot choose {config or split!r:.80} of {repository}: all its sessions are read",
            "Leave it out, or name files as hf://datasets/ID/...",
        )


def _session_files(
    repository: str, info: Any, reading: ReaderOptions, id: str, reporter: Reporter
) -> DocumentSource:
    """Return the JSON lines of sessions, else their Parquet tables."""
    files = remote_source(f"hf://datasets/{repository}@{info.sha}", reading, reporter)
    kinds = [reader_suffix(plain_path(str(file["name"]))) for file in files.files]
    kind = next((kind for kind in (".jsonl", ".json", ".parquet") if kind in kinds), None)
    if kind is None:
        raise InputError(
            f"cannot read {repository}: it holds no sessions", f"See hf.co/datasets/{repository}."
        )
    chosen = files.choose([i for i, each in enumerate(kinds) if each == kind])
    return SessionSource(id, chosen, _facts_of(repository, info))


def hub_records(
    repository: str, config: str, split: str, revision: str | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Return the commit and all records of a small dataset. Raises like `hub_source`."""
    commit = hub_commit(repository, revision)
    with dataset_errors(repository), _without_torch():
        stream = _dataset_split(
            _dataset_builder(repository, config, commit, None), repository, split
        )
        batches = stream.with_format("arrow").iter(batch_size=STREAMED_ROWS)
        return commit, [record for batch in batches for record in batch.to_pylist()]


def hub_commit(repository: str, revision: str | None = None) -> str:
    """Return the commit of a dataset's revision (default: main). Raises like `hub_source`."""
    with dataset_errors(repository):
        return str(_dataset_info(repository, revision).sha)


@contextmanager
def _without_torch() -> Iterator[None]:
    """Keep `datasets` from importing torch for every stream, which takes three seconds."""
    from datasets import config

    if "torch" in sys.modules:
        yield
        return
    available, config.TORCH_AVAILABLE = config.TORCH_AVAILABLE, False
    try:
        yield
    finally:
        config.TORCH_AVAILABLE = available


@contextmanager
def dataset_errors(repository: str, file: str = "a file") -> Iterator[None]:
    """Convert errors of the Hub and of damaged files to NgramkitErrors."""
    import pyarrow as pa

    with hub_errors(repository):
        try:
            yield
        except (pa.ArrowException, ValueError, TypeError) as error:
            damaged = isinstance(error, pa.ArrowException | UnicodeDecodeError)
            if not damaged and CAST_ERROR not in str(error):
                raise
            raise InputError(
                f"cannot read {file} of {repository}: {' '.join(str(error).split()):.200}",
                "Report it to the dataset's owner, or choose another revision.",
                option="revision",
            ) from error


def _dataset_info(repository: str, revision: str | None) -> Any:
    from huggingface_hub import HfApi

    info = HfApi().dataset_info(repository, revision=revision)
    if info.gated:  # the errors of `datasets` do not give the reason
        HfApi().auth_check(repository, repo_type="dataset")
    return info


def _dataset_builder(
    repository: str, config: str | None, revision: str, data_dir: str | None
) -> Any:
    import datasets

    datasets.disable_progress_bars()
    show_downloads()
    datasets.logging.set_verbosity_error()
    try:
        return datasets.load_dataset_builder(
            repository, config, revision=revision, data_dir=data_dir
        )
    except ValueError as error:
        raise InputError(
            f"cannot read {repository}: {first_line(error)}",
            "Choose a configuration as hf:ID:CONFIG.",
        ) from error
    except FileNotFoundError as error:
        where = f" under {data_dir}" if data_dir else ""
        raise InputError(
            f"cannot read {repository}: it holds no data files{where}",
            f"See hf.co/datasets/{repository}.",
        ) from error


def _parquet_folder(repository: str, config: str | None, info: Any) -> str:
    names = [file.rfilename for file in info.siblings or ()]
    folders = sorted({name.split("/")[0] for name in names if name.endswith(".parquet")})
    if config in folders or (config is None and len(folders) == 1):
        return config or folders[0]
    if not folders:
        raise InputError(
            f"cannot read {repository}: it is a loading script, without Parquet files",
            "Download it with its own script, then give the files as the corpus.",
            option="corpus",
        )
    problem = f"no configuration {config!r}" if config else "several configurations"
    raise InputError(
        f"cannot read {repository}: it has {problem}",
        f"Choose one as hf:{repository}:CONFIG: {', '.join(folders)}",
    )


def _dataset_split(builder: Any, repository: str, split: str) -> Any:
    try:
        return builder.as_streaming_dataset(split=split)
    except StopIteration as error:  # `datasets` raises it for an empty .jsonl
        raise InputError(
            f"cannot read {repository}: its split {split!r} holds no documents"
        ) from error
    except ValueError as error:
        if "Bad split" not in str(error):
            raise
        listed = str(error).partition("Available splits:")[2].strip(" []") or "none"
        raise InputError(
            f"unknown split {split!r} of {repository}",
            f"Choose one of: {listed.replace(chr(39), '')}",
        ) from error


def columns_of(stream: Any) -> Columns:
    if stream.features is not None:
        return Columns.of_schema(stream.features.arrow_schema)
    columns = Columns()
    for record in islice(stream, INSPECTED_RECORDS):
        columns.add(record)
        if columns.with_usual_name(final=False):
            break
    return columns
