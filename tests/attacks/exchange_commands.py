"""The killed commands that write or read other programs' files."""

from __future__ import annotations

from pathlib import Path

from ngramkit.basics.errors import UsageError
from ngramkit.exchange.llama_cpp import export_cache, import_cache
from ngramkit.exchange.parquet import export_parquet
from ngramkit.exchange.rest_idx import export_rest_idx, import_rest_idx
from ngramkit.exchange.text import export_jsonl
from ngramkit.exchange.transformers import export_folder
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.opening import open_artifact_folder

from .killing import Command
from .made import LINES, MODEL, datastore, frozen, source, texts, tokens


def exported(to: str, *, force: bool = True) -> Command:
    kind = "x" if to == "transformers" else f"x.{to}"

    def export() -> None:
        path = Path(kind)
        if to == "transformers":
            export_folder(open_artifact_folder("frozen"), path, force=force)
        elif to == "jsonl":
            export_jsonl(Datastore.open("store"), MODEL, path, force=force)
        elif to == "parquet":
            export_parquet(open_artifact_folder("frozen"), MODEL, path, force=force)
        elif to == "llama.cpp":
            export_cache(open_artifact_folder("frozen"), path, dynamic=True, force=force)
        else:
            export_rest_idx(Datastore.open("store"), path, force=force)

    def run() -> None:
        try:
            export()
        except UsageError:  # without --force, what is there is whole, and stays
            if force or not Path(kind).exists():
                raise

    def prepare() -> None:
        source()
        frozen("frozen", 3)
        datastore("store")
        if force:
            export()
        for name in ("frozen", "store"):
            for entry in Path(name).iterdir():
                entry.unlink()
            Path(name).rmdir()
        texts(lines=LINES[:9])
        tokens("tokens", shard_tokens=150, force=True)
        frozen("frozen", 30)
        datastore("store")

    return Command(kind, prepare, run)


def imported(to: str) -> Command:
    def prepare() -> None:
        source()
        frozen("frozen", 20)
        datastore("store", 1000)
        frozen("x", 5)
        export_cache(open_artifact_folder("frozen"), Path("llama.cpp"), dynamic=True)
        export_rest_idx(Datastore.open("store"), Path("rest-idx"))

    def run() -> None:
        if to == "llama.cpp":
            import_cache(Path(to), MODEL, Path("x"), order=1, force=True)
        else:
            import_rest_idx(Path(to), MODEL, Path("x"), force=True)

    return Command("x", prepare, run)
