"""What test_killed_builds kills. Imported once by the server that forks the builds."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus


def build_all(text: Path, out: Path) -> None:
    """The whole way: tokens, datastore, frozen table, in several files or steps each."""
    store = tokenize(open_corpus(str(text)), "demo", out / "tokens", shard_tokens=1 << 13)
    build_datastore(store, out / "datastore", shard_tokens=1 << 14, workers=2)
    build_frozen(store, out / "frozen", leaders=500, followers=20)


# What a build imports and loads is there in every fork.
with tempfile.TemporaryDirectory() as _place:
    Path(_place, "text.txt").write_text("alpha beta")
    build_all(Path(_place, "text.txt"), Path(_place, "built"))
