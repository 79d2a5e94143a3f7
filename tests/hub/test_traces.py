"""Datasets of agents' sessions on the Hub: JSON lines, tables, and the Hub's own conversion."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ngramkit
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.tokens import TokenStore

SAMPLES = Path(__file__).parents[1] / "logs/samples/sessions"
TAGGED = {"tags": ["format:agent-traces"], "license": "mit"}
ABOUT = {"README.md": b"# Sessions\n"}


def parquet(paths):
    text = pa.array([json.dumps(path.read_text()) for path in paths], pa.json_())
    names = pa.array([path.stem for path in paths])
    table = {"harness": ["codex"] * len(paths), "session_id": names, "prompt": names, "trace": text}
    file = io.BytesIO()
    pq.write_table(pa.table(table), file)
    return file.getvalue()


def test_a_dataset_of_traces(hub, shared, tmp_path):
    paths = sorted(SAMPLES.glob("codex/2026/**/*.jsonl"))
    lines = {f"data/{path.name}": path.read_bytes() for path in paths}
    hub.add("dataset", "acme/traces", {**ABOUT, "about.json": b"{}", **lines}, card=TAGGED)
    tables = {"a.parquet": parquet(paths), "dataset_infos.json": b"{}"}
    hub.add("dataset", "acme/tables", {**ABOUT, **tables}, card=TAGGED)
    hub.add("dataset", "acme/converted", ABOUT, card=TAGGED)
    hub.add("dataset", "acme/converted", {"a.parquet": parquet(paths)}, ref="refs/convert/parquet")
    hub.add("dataset", "acme/nothing", ABOUT, card=TAGGED)
    demo = ["--model", "demo", "--json", "--out"]
    *read, tables, replayed, wrong, none, split, config = shared(
        *(["history", "import", f"hf:acme/{name}", *demo, name]
          for name in ("traces", "tables", "converted")),
        ["tokenize", "--corpus", "hf:acme/traces", *demo, "tokens"],
        ["tokenize", "--corpus", "hf:acme/tables", *demo, "more"],
        ["replay", "--answers", "hf:acme/traces", "--drafter", "context", *demo[:-1]],
        ["history", "import", "hf:acme/nothing", *demo, "no"],
        ["tokenize", "--corpus", "hf:acme/nothing", *demo, "no"],
        ["tokenize", "--corpus", "hf:acme/traces", "--split", "test", *demo, "no"],
        ["tokenize", "--corpus", "hf:acme/traces:data", *demo, "no"],
    )  # fmt: skip
    *imported, lines = read
    local = ngramkit.history_import(paths, tmp_path / "local", model="demo")
    for each in imported:
        assert each.code == 0, each.err
        assert each.json["imported_tokens"] == local.imported_tokens
    assert replayed.code == 0, replayed.err
    files = replayed.json["provenance"]["files"]
    assert [Path(each["path"]).name for each in files] == [path.name for path in paths]
    stores = []
    for each in (lines, tables):
        assert each.code == 0, each.err
        stores.append(TokenStore.open(tmp_path / each.json["artifact"]))
    of_files = list(open_corpus(str(SAMPLES / "codex/2026")).documents())
    assert {store.manifest.counts["documents"] for store in stores} == {len(of_files)}
    assert not any(store.manifest.private for store in stores)
    card = (stores[0].path / "README.md").read_text()
    commit = stores[0].manifest.corpus["revision"]
    assert "The source dataset's licence: mit." in card
    assert f"tokenize --corpus hf:acme/traces --revision {commit} --model demo" in card
    assert (split.code, "cannot choose 'test' of acme/traces" in split.err) == (2, True)
    assert (config.code, "cannot choose 'data' of acme/traces" in config.err) == (2, True)
    assert (wrong.code, none.code) == (3, 3)
    assert "acme/nothing" in wrong.err
    assert "acme/nothing" in none.err
