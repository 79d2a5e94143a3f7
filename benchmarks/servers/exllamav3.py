"""ExLlamaV3's own loader and matcher on an export, against the `automaton` drafter.

    python -m benchmarks.servers.exllamav3 FOLDER [--version 1.6.5]

Downloads ExLlamaV3's wheel to FOLDER and compiles only the part of it that matches corpora, so it
needs g++ and the package zstandard, but no GPU. The corpus is Python's standard library, in shards
of a million tokens. Every context is an end of 1 to 60 tokens of its held-out files, or of its own.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.cpp_extension import include_paths, library_paths

import ngramkit
from benchmarks.servers.environment import download, folder_and_version
from ngramkit.drafters.base import Source
from ngramkit.kernels.automaton import first_match_in_corpus
from ngramkit.kernels.suffix.search import shard_table

CONTEXTS, LONGEST, WIDTH, MATCH = 4000, 60, 10, 64  # tokens
PARTS = ("exllamav3_ext/sam.cpp", "exllamav3_ext/sam.h", "exllamav3_ext/sam_bc.h")
UTIL = '#define TORCH_CHECK_DTYPE(x, t) TORCH_CHECK((x).dtype() == at::t, "dtype")\n'
BIND = """#include <torch/extension.h>
#include "sam.h"
PYBIND11_MODULE(exllamav3_ext, m) {
#include "sam_bc.h"
}
"""


def main(words: list[str] | None = None) -> None:
    folder, version = folder_and_version(__doc__, "1.6.5", words)
    folder.mkdir(parents=True, exist_ok=True)
    reader = real_reader(folder, version)
    corpus, model = "python-stdlib", ngramkit.resolve_model("demo")
    store = ngramkit.build_datastore(corpus, folder / "store", model="demo", shard_tokens=1_000_000)
    held = ngramkit.tokenize(corpus, "demo", folder / "held", split="held-out", limit=40)
    path = folder / "corpus.sam"
    done = ngramkit.export(store, "exllamav3", path, model=model, force=True)
    config = types.SimpleNamespace(directory=model)
    vocabulary = store.tokenizer.vocabulary
    bank = reader(path, types.SimpleNamespace(actual_vocab_size=vocabulary, config=config))
    own = np.split(store.shards[0].tokens, np.flatnonzero(store.shards[0].tokens == vocabulary))
    texts = [text[text < vocabulary] for text in [*held.documents(), *own[:40]]]
    compare(bank, store, [text for text in texts if len(text) > LONGEST])
    print(f"ExLlamaV3 {version}; {len(store.shards)} shards, {done.counts}")


def compare(bank: Any, store: Any, texts: list[Any]) -> None:
    """Print how many drafts are equal: those of the kernel, and those that the drafter chose."""
    arrays = [(s.tokens, s.suffix_array, s.first_token) for s in store.shards]
    table, eos = shard_table(arrays), store.tokenizer.eos
    name = f"automaton:threshold=1,bias=0,width={WIDTH},max_match={MATCH}"
    drafter = ngramkit.load_drafter(name, datastores=[store])
    rng = np.random.default_rng(0)
    equal = chosen = equally_chosen = 0
    for _ in range(CONTEXTS):
        text = texts[rng.integers(len(texts))]
        end = int(rng.integers(2, len(text)))
        context = text[max(0, end - int(rng.integers(1, LONGEST + 1))) : end].astype(np.int64)
        matched, drafted = bank.cursor().draft(torch.from_numpy(context), 1, WIDTH)
        theirs, context = drafted[0].tolist(), context.astype(np.int32)
        length, ours = first_match_in_corpus(
            table, context, MATCH, 1, WIDTH, -1 if eos is None else eos
        )
        if (length, ours.tolist()) == (matched, theirs):
            equal += 1
        else:
            print("different:", context.tolist(), matched, theirs, length, ours.tolist())
        drafter.start(context)
        tree = drafter.draft(WIDTH)
        if len(tree.token_ids) and tree.source[0] == Source.DATASTORE:
            chosen += 1
            equally_chosen += tree.token_ids.tolist() == theirs
    print(f"equal matches and drafts: {equal:,} of {CONTEXTS:,}")
    print(f"equal drafts, where the drafter prefers the corpus: {equally_chosen:,} of {chosen:,}")


def real_reader(folder: Path, version: str) -> Any:
    """Return ExLlamaV3's `NgramCorpus`, over its compiled matcher."""
    package = folder / "exllamav3"
    wheel = download(Path(sys.executable), f"exllamav3=={version}", folder)
    with zipfile.ZipFile(wheel) as archive:
        for name in (*PARTS, "generator/ngram.py"):
            archive.extract(f"exllamav3/{name}", folder)
    (package / "exllamav3_ext" / "util.h").write_text(UTIL)
    (package / "exllamav3_ext" / "bind.cpp").write_text(BIND)
    (package / "ext.py").write_text("import exllamav3_ext\n")  # the wheel's compiles all kernels
    compile_matcher(package / "exllamav3_ext", folder)
    sys.path.insert(0, str(folder))
    return importlib.import_module("exllamav3.generator.ngram").NgramCorpus


def compile_matcher(sources: Path, folder: Path) -> None:
    libraries = library_paths()[0]
    includes = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_paths()["include"])]
    target = folder / f"exllamav3_ext{sysconfig.get_config_var('EXT_SUFFIX')}"
    words = ["-O1", "-std=c++20", "-fPIC", "-shared", "-DTORCH_EXTENSION_NAME=exllamav3_ext"]
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lc10", "-ltorch", "-ltorch_cpu"]
    files = [str(sources / name) for name in ("sam.cpp", "bind.cpp")]
    subprocess.run(
        ["g++", *words, *includes, *files, *linked, "-ltorch_python", "-o", str(target)], check=True
    )


if __name__ == "__main__":
    main()
