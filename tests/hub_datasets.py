"""Small datasets in the real layout of those that have names, for the Hub stand-in."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
from hub_standin import HubStandIn

WORDS = ["tree", "river", "leaves", "lamp", "while", "nobody", "counts", "house", "burns", "low"]
LICENSES = (["MIT"], ["Apache-2.0"], ["MIT", "GPL-3.0"], ["BSD-3-Clause"])
PAGES = 600  # openwebtext's documents

TEXT = "the river counts the leaves of the tree and the lamp burns low\n"


def text(seed: int, words: int = 40) -> str:
    """Always the same for the same seed."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words)).capitalize() + "."


def parquet(table: pa.Table, row_group: int = 50) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=row_group, compression="snappy")
    return file.getvalue()


def add_all(hub: HubStandIn) -> None:
    add_openwebtext(hub)
    add_the_stack(hub)
    add_ultrachat(hub)
    add_ultrachat_200k(hub)
    add_speed_bench(hub)
    add_script(hub)
    add_unlike(hub)
    hub.add("dataset", "acme/empty", {"data/train.jsonl": b""})
    hub.add("dataset", "acme/malformed", {"train.jsonl": b'{"text": "a"}\n{"text": \n'})
    hub.add("dataset", "acme/two-columns", {"train.jsonl": b'{"question": "q", "answer": "a"}\n'})


def add_unlike(hub: HubStandIn) -> None:
    """Datasets of two files whose schemas differ, called by how they do."""
    ours, number = pa.array(["a", "b"]), pa.array([1, 2])
    seconds = {
        "extra": {"text": ours, "n": number.cast(pa.int64()), "more": number},
        "width": {"text": ours, "n": number.cast(pa.int64())},
        "order": {"n": number.cast(pa.int32()), "text": ours},
        "null": {"text": pa.nulls(2), "n": number},
        "large": {"text": ours.cast(pa.large_string()), "n": number},
        "lists": {"text": pa.array([["a"], ["b"]]), "n": number},
        "lacking": {"n": number},
    }
    first = {"text": ours, "n": number.cast(pa.int32())}
    pairs = {how: (first, second) for how, second in seconds.items()}
    pairs["null-first"] = pairs["null"][::-1]
    for how, tables in pairs.items():
        files = {f"train-{i}.parquet": parquet(pa.table(table)) for i, table in enumerate(tables)}
        hub.add("dataset", f"acme/unlike-{how}", files)
    lines = {"train-0.jsonl": b'{"text": "a"}\n', "train-1.jsonl": b'{"text": "b", "n": 1}\n'}
    hub.add("dataset", "acme/unlike-lines", lines)


def add_openwebtext(hub: HubStandIn) -> None:
    card = """---
license: [cc0-1.0]
dataset_info:
  config_name: plain_text
  features:
  - name: text
    dtype: string
  splits:
  - name: train
configs:
- config_name: plain_text
  data_files:
  - split: train
    path: plain_text/train-*
  default: true
---
# OpenWebText
"""
    third = PAGES // 3
    files = {"README.md": card.encode()}
    for part in range(3):
        texts = [text(index) for index in range(part * third, (part + 1) * third)]
        files[f"plain_text/train-{part:05d}-of-00003.parquet"] = parquet(pa.table({"text": texts}))
    hub.add("dataset", "Skylion007/openwebtext", files, card={"license": ["cc0-1.0"]})


def stack_table(language: str, rows: int) -> pa.Table:
    """The Stack's columns, those that matter here and some that must not be fetched."""
    return pa.table(
        {
            "hexsha": [f"{index:040x}" for index in range(rows)],
            "size": list(range(rows)),
            "ext": ["py"] * rows,
            "lang": [language] * rows,
            "max_stars_repo_path": [f"src/{index}.py" for index in range(rows)],
            "max_stars_repo_name": [f"owner{index % 7}/project" for index in range(rows)],
            "max_stars_repo_licenses": [LICENSES[index % 4] for index in range(rows)],
            "content": [f"# {language}\n{text(index)}\n" for index in range(rows)],
            "avg_line_length": [20.0] * rows,
        }
    )


def add_the_stack(hub: HubStandIn) -> None:
    card = b"---\nlicense: [other]\nextra_gated_prompt: Terms of use.\n---\n# The Stack\n"
    files = {"README.md": card}
    for language, rows in (("python", 80), ("rust", 24)):
        half = rows // 2
        table = stack_table(language, rows)
        for part in range(2):
            name = f"data/{language}/data-{part:05d}-of-00002.parquet"
            files[name] = parquet(table.slice(part * half, half))
    hub.add("dataset", "bigcode/the-stack-dedup", files, gated=True, card={"license": ["other"]})


def add_ultrachat(hub: HubStandIn) -> None:
    files = {"README.md": b"---\nlicense: mit\n---\n# UltraChat\n"}
    for part in range(2):
        rows = [
            {"id": str(n), "data": [text(n, 12), text(n + 1000, 30)]}
            for n in range(part * 30, part * 30 + 30)
        ]
        files[f"train_{part}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    hub.add("dataset", "stingning/ultrachat", files, card={"license": "mit"})


def add_ultrachat_200k(hub: HubStandIn) -> None:
    splits = ("train_sft", "test_sft", "train_gen", "test_gen")
    configs = "".join(f"  - split: {s}\n    path: data/{s}-*\n" for s in splits)
    card = f"---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n{configs}---\n"
    files = {"README.md": card.encode()}
    for number, split in enumerate(splits):
        rows = range(number * 100, number * 100 + 20)
        messages = [
            [
                {"content": text(n, 10), "role": "user"},
                {"content": text(n + 50), "role": "assistant"},
            ]
            for n in rows
        ]
        table = pa.table(
            {
                "prompt": [m[0]["content"] for m in messages],
                "prompt_id": [str(n) for n in rows],
                "messages": messages,
            }
        )
        files[f"data/{split}-00000-of-00001-a3ecf92756993583.parquet"] = parquet(table)
    hub.add("dataset", "HuggingFaceH4/ultrachat_200k", files, card={"license": "mit"})


def add_speed_bench(hub: HubStandIn) -> None:
    """SPEED-Bench's columns and configurations, with other questions."""
    configs = ("qualitative", "throughput_8k")
    listed = "".join(
        f"- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}/test-*\n"
        for config in configs
    )
    card = {"license": "other", "license_name": "nvidia-evaluation-dataset-license"}
    files = {"README.md": f"---\nlicense: other\nconfigs:\n{listed}---\n".encode()}
    missing = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    kinds = {"qualitative": ("coding", "rag"), "throughput_8k": ("low_entropy", "mixed")}
    for config in configs:
        rows = [
            {
                "question_id": f"{config}-{n}",
                "category": kinds[config][n % 2],
                "sub_category": None,
                "turns": [missing] if n == 3 else [text(n, 12), text(n + 50, 12)],
                "source": "made up",
                "src_id": str(n),
                "difficulty": None,
                "multiturn": n != 3,
            }
            for n in range(4)
        ]
        table = pa.Table.from_pylist(rows)
        files[f"{config}/test-00000-of-00001.parquet"] = parquet(table)
    hub.add("dataset", "nvidia/SPEED-Bench", files, gated=True, card=card)


def add_script(hub: HubStandIn) -> None:
    """A dataset that is still a script on main, and Parquet on the Hub's own branch."""
    id = "acme/scripted"
    hub.add("dataset", id, {"README.md": b"# Scripted\n", "scripted.py": b"import datasets\n"})
    table = pa.table({"text": [text(n) for n in range(25)], "label": list(range(25))})
    files = {
        "default/train/0000.parquet": parquet(table),
        "default/test/0000.parquet": parquet(table),
    }
    hub.add("dataset", id, files, ref="refs/convert/parquet")


def add(hub, path, **changed):
    """The artifact at `path` as acme/our-data; `changed` holds other contents, None for none."""
    files = {file.name: file.read_bytes() for file in path.iterdir()} | changed
    hub.add("dataset", "acme/our-data", {n: c for n, c in files.items() if c is not None})
