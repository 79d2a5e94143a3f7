"""README.md of an artifact: a Hub card for people, made from the manifest alone.

Its YAML header is what the Hub indexes; under `ngramkit:` stands what `ngramkit search` reads. It
is written here and not by the Hub's client, because the same manifest must give the same bytes
whatever version of that is installed; a test reads it with the client.
The table of frequent entries needs a tokenizer, so it comes from outside. No string of a manifest
is trusted: see markdown.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from ngramkit.formats import markdown
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
# A corpus record's keys that are options of the same meaning.
CORPUS_OPTIONS = {
    "revision": "--revision",
    "split": "--split",
    "column": "--column",
    "sample": "--sample",
    "seed": "--seed",
    "limit": "--limit",
}
SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
         (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip

MODEL_OPTIONS = ("k", "width", "extend", "prefix", "rule", "dtype")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)

# What, what follows it most often, how often it was seen.
Entry = tuple[str, Sequence[str], int]


PLACEHOLDER = "USER/NAME"  # where it will be, in a card that does not know yet


def card(manifest: Manifest, entries: Sequence[Entry] = ()) -> str:
    """The whole text. `entries` are the most frequent ones, best first."""
    parts = [
        _header(manifest),
        f"# {markdown.text(title(manifest))}",
        ABOUT.get(manifest.kind, "An artifact of training-free speculative decoding.")
        + " Made by ngramkit; read through a memory map, see `manifest.json`.",
        markdown.table(_facts(manifest)),
        _use(manifest),
        _build(manifest),
        _entries(entries),
        _licences(manifest.corpus),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def title(manifest: Manifest) -> str:
    source = manifest.corpus.get("id") or manifest.parameters.get("model") or "no corpus"
    return f"{source}: {manifest.kind} for {manifest.tokenizer.id}"


def _header(manifest: Manifest) -> str:
    corpus, tokenizer = manifest.corpus, manifest.tokenizer
    hub_id = HUB_IDS.get(tokenizer.id, tokenizer.id)
    header: dict[str, Any] = {
        "tags": ["ngramkit", manifest.kind],
        "pretty_name": title(manifest),
        "license": corpus.get("dataset_license"),
        "size_categories": _size(manifest.counts.get("documents")),
        "base_model": hub_id if _is_hub_id(hub_id) else None,
        "source_datasets": [dataset] if _is_hub_id(dataset := corpus.get("dataset")) else None,
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


def _is_hub_id(name: Any) -> bool:
    return isinstance(name, str) and HUB_ID.fullmatch(name) is not None


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
        "corpus": str(manifest.corpus.get("id", "none")),
        "revision": str(manifest.corpus.get("revision", "")),
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
    model = "" if manifest.tokenizer.id == DEFAULT else f" --model {_quoted(manifest.tokenizer.id)}"
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
    if "format" in corpus:
        words = ["ngramkit import", _quoted(corpus["id"]), "--from", str(corpus["format"])]
        return " ".join([*words, "--model", _quoted(manifest.tokenizer.id)])
    if manifest.kind.startswith("model-"):
        model = _quoted(parameters.pop("model", manifest.tokenizer.id))
        given = {name: value for name, value in parameters.items() if name in MODEL_OPTIONS}
        return " ".join(["ngramkit", COMMANDS[manifest.kind], model, *_options(given)])
    words = ["ngramkit", COMMANDS[manifest.kind], *_corpus_words(corpus)]
    words += ["--model", _quoted(manifest.tokenizer.id)]
    if manifest.kind == "tokens":
        return " ".join([*words, *([] if parameters.get("eos", True) else ["--no-eos"])])
    return " ".join([*words, *_options(parameters)])


def _corpus_words(corpus: dict[str, Any]) -> list[str]:
    name = str(corpus.get("id", "CORPUS"))
    if "dataset" in corpus and name == corpus["dataset"]:
        name = ":".join(["hf", name, *([corpus["config"]] if "config" in corpus else [])])
    words = ["--corpus", _quoted(name)]
    for key, option in CORPUS_OPTIONS.items():
        if key in corpus and (key != "column" or "dataset" not in corpus or name.startswith("hf:")):
            words += [option, _quoted(corpus[key])]
    if "data_dir" in corpus:
        words += ["--language", _quoted(corpus["data_dir"].rpartition("/")[2])]
    if corpus.get("join_turns"):
        words.append("--join-turns")
    if "licenses_kept" in corpus:
        words += ["--licenses", _quoted(",".join(corpus["licenses_kept"]))]
    if "excluded" in corpus:
        words += ["--exclude", "FILE"]
    return words


def _options(parameters: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')} {_quoted(value)}" for name, value in parameters.items()]


def _quoted(value: Any) -> str:
    return shlex.quote(str(value))


def _entries(entries: Sequence[Entry]) -> str:
    if not entries:
        return ""
    rows = [
        f"| {markdown.code(what)} | {count:,} | {' '.join(map(markdown.code, following))} |"
        for what, following, count in entries
    ]
    head = ["## Most frequent entries", "", "| | seen | followed most often by |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _licences(corpus: dict[str, Any]) -> str:
    if not corpus:
        return ""
    said = corpus.get("dataset_license")
    lines = ["What this artifact holds of the text can be read back from it."]
    if said:
        named = said if isinstance(said, str) else ", ".join(map(str, said))
        lines.append(f"The source dataset's licence: {markdown.text(named)}.")
    if "licenses_kept" in corpus:
        kept = markdown.text(", ".join(map(str, corpus["licenses_kept"])))
        lines.append(f"Only documents under {kept} were kept.")
    if "excluded" in corpus:
        lines.append(
            "Repositories and documents on an opt-out list were left out (sha256 of the list: "
            f"{markdown.code(str(corpus['excluded']))})."
        )
    if not said and "licenses" not in corpus:
        lines.append("The source says nothing of its licence.")
    text = "## Licences and opt-outs\n\n" + "\n".join(lines)
    if corpus.get("licenses"):
        found = sorted(corpus["licenses"].items(), key=lambda pair: (-pair[1], pair[0]))
        counts = {name: f"{count:,}" for name, count in found}
        text += "\n\n" + markdown.table(counts, ("licence", "documents"))
    return text
