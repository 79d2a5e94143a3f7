"""README.md of an artifact: a Hub card for people, made from the manifest alone."""

from __future__ import annotations

from ngramkit.formats.manifest import Manifest

ABOUT = {
    "tokens": "A corpus, tokenised once: the input of ngramkit's builders.",
    "datastore": "A REST datastore: suffix arrays over a tokenised corpus "
    "(He et al., 2023, arXiv:2311.08252).",
    "frozen-table": "A frozen n-gram table of a corpus, most frequent followers first "
    "(Cacheback, arXiv:2511.21699).",
}


def card(manifest: Manifest) -> str:
    rows = {
        "kind": manifest.kind,
        "tokenizer": f"{manifest.tokenizer.id} ({manifest.tokenizer.vocabulary:,} tokens)",
        "corpus": manifest.corpus.get("id", "none"),
        **{name: f"{count:,}" for name, count in manifest.counts.items()},
        **manifest.parameters,
        "bytes": f"{manifest.bytes:,}",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""---
tags:
- ngramkit
- {manifest.kind}
---

# {manifest.corpus.get("id", manifest.kind)}

{ABOUT.get(manifest.kind, "An artifact of training-free speculative decoding.")}
Made by ngramkit; read through a memory map, see `manifest.json`.

| | |
|---|---|
{table}
"""
