"""README.md of an artifact: a Hub card for people, made from the manifest alone.

Its YAML header is what the Hub indexes; under `ngramkit:` stands what `ngramkit search` reads. It
is written here and not by the Hub's client, because the same manifest must give the same bytes
whatever version of that is installed; a test reads it with the client.
The table of frequent entries needs a tokenizer, so it comes from outside. No string of a manifest
is trusted: see markdown.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ngramkit.formats import markdown
from ngramkit.formats.card_corpus import (
    corpus_words,
    datasets_of,
    is_hub_id,
    licences,
    license_of,
    pruned_from,
    quoted,
    sources_of,
)
from ngramkit.formats.manifest import VERSION, Manifest
from ngramkit.models import DEFAULT, HUB_IDS
from ngramkit.visible import visible

ABOUT = {
    "tokens": "A corpus, tokenised once: the input of ngramkit's builders.",
    "datastore": "A REST datastore: suffix arrays over a tokenised corpus "
    "(He et al., 2023, arXiv:2311.08252).",
    "frozen-table": "A frozen n-gram table of a corpus, most frequent followers first "
    "(Cacheback, arXiv:2511.21699).",
    "model-bigram": "What a language model holds likely after every single token "
    "(N-Grammys, Stewart et al., 2024, arXiv:2411.03786).",
    "model-unigram": "The tokens that a model's embeddings make likely anywhere "
    "(N-Grammys, Stewart et al., 2024, arXiv:2411.03786).",
}
# How each kind is used: the options of `ngramkit decode`.
USES = {
    "datastore": "--drafter rest --datastore",
    "frozen-table": "--drafter cacheback --frozen-table",
    "model-bigram": "--drafter ngrammys --bigram",
    "model-unigram": "--drafter unigram --unigram",
}
COMMANDS = {
    "tokens": "tokenize",
    "datastore": "build-datastore",
    "frozen-table": "build-frozen",
    "model-bigram": "model-bigram",
    "model-unigram": "model-unigram",
}
SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
         (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip

MODEL_OPTIONS = ("k", "width", "extend", "prefix", "rule", "dtype")

# What, what follows it most often, how often it was seen.
Entry = tuple[str, Sequence[str], int]


PLACEHOLDER = "USER/NAME"  # where it will be, in a card that does not know yet


def card(manifest: Manifest, entries: Sequence[Entry] = (), *, paths: bool = False) -> str:
    """The whole text. `entries` are the most frequent ones, best first. `paths`: models are called
    by where they lay, as in cards of 0.1; else only in the line that builds the same again."""
    shown = manifest if paths else without_paths(manifest)
    parts = [
        _header(shown),
        f"# {markdown.text(title(shown))}",
        ABOUT.get(manifest.kind, "An artifact of training-free speculative decoding.")
        + " Made by ngramkit; read through a memory map, see `manifest.json`.",
        markdown.table(_facts(shown)),
        _use(shown),
        _build(manifest),
        _entries(entries),
        licences(manifest.corpus),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def without_paths(manifest: Manifest) -> Manifest:
    """The same with names for models that were folders or files of some machine."""
    tokenizer, parameters = manifest.tokenizer, dict(manifest.parameters)
    if isinstance(parameters.get("model"), str):
        parameters["model"] = model_name(parameters["model"])
    named = replace(tokenizer, id=model_name(tokenizer.id))
    return replace(manifest, tokenizer=named, parameters=parameters)


def model_name(model: str) -> str:
    """What a model is called, without where it lies; by its look alone, so everywhere the same.

    >>> model_name("/home/me/models/My-2.5/"), model_name("me/model"), model_name("./a.Q4.gguf")
    ('My-2.5', 'me/model', 'a.Q4')
    """
    path = model.replace("\\", "/").rstrip("/")
    local = path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(".gguf")
    if model.startswith("hf:") or not local or visible(model) != model:  # no folder of a person's
        return model
    return path.rpartition("/")[2].removesuffix(".gguf").strip(".~") or "a local model"


def title(manifest: Manifest) -> str:
    source = manifest.corpus.get("id") or manifest.parameters.get("model") or "no corpus"
    return f"{source}: {manifest.kind} for {manifest.tokenizer.id}"


def _header(manifest: Manifest) -> str:
    corpus, tokenizer = manifest.corpus, manifest.tokenizer
    hub_id = HUB_IDS.get(tokenizer.id, tokenizer.id)
    header: dict[str, Any] = {
        "tags": ["ngramkit", manifest.kind],
        "pretty_name": title(manifest),
        "license": license_of(corpus),
        "size_categories": _size(manifest.counts.get("documents")),
        "base_model": hub_id if is_hub_id(hub_id) else None,
        "source_datasets": datasets_of(corpus) or None,
        "viewer": False,
        "ngramkit": {
            "version": VERSION,
            "kind": manifest.kind,
            "tokenizer": hub_id,
            "vocabulary": tokenizer.vocabulary,
            "fingerprint": tokenizer.fingerprint,
            "bytes": manifest.bytes,
        },
    }
    lines = [f"{key}: {markdown.yaml(v)}" for key, v in header.items() if v is not None]
    return "\n".join(["---", *lines, "---"])


def _size(documents: int | None) -> list[str] | None:
    if documents is None:
        return None
    return [next((name for most, name in SIZES if documents < most), "n>1B")]


def _facts(manifest: Manifest) -> dict[str, str]:
    tokenizer = manifest.tokenizer
    return {
        "kind": manifest.kind,
        "tokenizer": f"{tokenizer.id} ({tokenizer.vocabulary:,} tokens, "
        f"{tokenizer.fingerprint[:12]})",
        **sources_of(manifest.corpus),
        **pruned_from(manifest.corpus),
        **{name: f"{count:,}" for name, count in manifest.counts.items()},
        **{_parameter(name, manifest): str(v) for name, v in manifest.parameters.items()},
        "bytes": f"{manifest.bytes:,}",
    }


def _parameter(name: str, manifest: Manifest) -> str:
    """Its row's name: a count of the same name is what there is, the parameter what was allowed."""
    said = name.replace("_", " ")
    return f"{said}, at most" if name in manifest.counts else said


def _use(manifest: Manifest) -> str:
    if manifest.kind not in USES:
        return ""
    model = "" if manifest.tokenizer.id == DEFAULT else f" --model {quoted(manifest.tokenizer.id)}"
    command = f"ngramkit decode {USES[manifest.kind]} hf://{PLACEHOLDER}{model} --prompt ..."
    return _section("Use it", command)


def _build(manifest: Manifest) -> str:
    return _section("How it was built", build_command(manifest))


def _section(name: str, command: str) -> str:
    """Nothing for a command that holds a control character: nobody is to paste it."""
    if not command or visible(command) != command:
        return ""
    return f"## {name}\n\n{markdown.shell(command)}"


def build_command(manifest: Manifest) -> str:
    """A line for a shell that builds the same again; empty where one line cannot."""
    corpus, parameters = manifest.corpus, dict(manifest.parameters)
    if manifest.kind not in COMMANDS or "merged" in parameters:
        return ""
    if "pruned" in corpus:
        return _prune_command(manifest)
    if "format" in corpus:
        words = ["ngramkit import", quoted(corpus["id"]), "--from", str(corpus["format"])]
        return " ".join([*words, "--model", quoted(manifest.tokenizer.id)])
    if manifest.kind.startswith("model-"):
        model = quoted(parameters.pop("model", manifest.tokenizer.id))
        given = {name: value for name, value in parameters.items() if name in MODEL_OPTIONS}
        return " ".join(["ngramkit", COMMANDS[manifest.kind], model, *_options(given)])
    chosen = corpus_words(corpus)
    if not chosen:
        return ""
    words = ["ngramkit", COMMANDS[manifest.kind], *chosen]
    words += ["--model", quoted(manifest.tokenizer.id)]
    if manifest.kind == "tokens":
        return " ".join([*words, *([] if parameters.get("eos", True) else ["--no-eos"])])
    return " ".join([*words, *_options(parameters)])


def _prune_command(manifest: Manifest) -> str:
    """The whole artifact's line, and the one that made it smaller; none where answers decided."""
    corpus = dict(manifest.corpus)
    made = corpus.pop("pruned")
    whole = made.get("of") if isinstance(made, dict) else None
    if not isinstance(whole, dict) or "answers" in made or "pruned" in whole:
        return ""
    parameters = whole.get("parameters")
    if not isinstance(parameters, dict):
        return ""
    first = build_command(replace(manifest, corpus=corpus, parameters=parameters))
    size = quoted(made.get("bytes"))
    return first and f"{first} --out whole && ngramkit prune whole --bytes {size} --out pruned"


def _options(parameters: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')} {quoted(value)}" for name, value in parameters.items()]


def _entries(entries: Sequence[Entry]) -> str:
    if not entries:
        return ""
    rows = [
        f"| {markdown.code(what)} | {count:,} | {' '.join(map(markdown.code, following))} |"
        for what, following, count in entries
    ]
    head = ["## Most frequent entries", "", "| | seen | followed most often by |", "|---|---|---|"]
    return "\n".join([*head, *rows])
