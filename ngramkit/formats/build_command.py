"""The command that builds an artifact again, reconstructed from its manifest.

The typed command is not kept: it may hold paths and signed URLs.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from ngramkit.basics.kinds import KINDS
from ngramkit.formats.manifest import Corpus, Manifest, parts_of

MODEL_OPTIONS = ("k", "width", "extend", "prefix", "rule", "dtype")
# Keys of a corpus record that are command-line options.
CORPUS_OPTIONS = ("revision", "split", "column", "sample", "seed", "limit")
# Keys that a command sets for all corpora of a mixture at once.
COMMON = ("sample", "join_turns", "skip_bad", "licenses_kept", "excluded", "private")
SESSIONS = "sessions"  # the format of agents' sessions; all others are of imported files
DEFAULT_SPLITS = (None, "train", "train_sft")


def build_command(manifest: Manifest) -> str:
    """Return a shell command that builds the same artifact; "" if one command cannot."""
    corpus, parameters = manifest.corpus, dict(manifest.parameters)
    kind = KINDS.get(manifest.kind)
    if kind is None or "merged" in parameters:
        return ""
    if "pruned" in corpus:
        return _prune_command(manifest)
    if is_imported(corpus):
        words = ["ngramkit import", quoted(corpus["id"]), "--from", str(corpus["format"])]
        return " ".join([*words, "--model", quoted(manifest.tokenizer.id)])
    if kind.of_model:
        model = quoted(parameters.pop("model", manifest.tokenizer.id))
        given = {name: value for name, value in parameters.items() if name in MODEL_OPTIONS}
        return " ".join(["ngramkit", kind.command, model, *_as_option_words(given)])
    chosen = _corpus_words(corpus)
    if not chosen:
        return ""
    words = ["ngramkit", kind.command, *chosen]
    if "dedup" in corpus:
        words += ["--dedup", quoted(corpus["dedup"])]
    if "evaluation" in corpus:
        words += ["--exclude", "FILE.jsonl"]
    words += ["--model", quoted(manifest.tokenizer.id)]
    words += [] if parameters.pop("eos", True) else ["--no-eos"]
    return " ".join([*words, *_as_option_words({} if manifest.kind == "tokens" else parameters)])


def _prune_command(manifest: Manifest) -> str:
    corpus = dict(manifest.corpus)
    pruning = corpus.pop("pruned")
    whole = pruning.get("of") if isinstance(pruning, dict) else None
    if not isinstance(whole, dict) or "answers" in pruning or "pruned" in whole:
        return ""
    parameters = whole.get("parameters")
    if not isinstance(parameters, dict):
        return ""
    first = build_command(replace(manifest, corpus=corpus, parameters=parameters))
    size = quoted(pruning.get("bytes"))
    return first and f"{first} --out whole && ngramkit prune whole --bytes {size} --out pruned"


def _as_option_words(parameters: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')} {quoted(value)}" for name, value in parameters.items()]


def is_imported(corpus: Corpus) -> bool:
    """Return whether this is a file of another program."""
    return "format" in corpus and corpus["format"] != SESSIONS


def corpora_of(corpus: Corpus) -> list[Corpus]:
    """Return the corpora in a mixture or merge, or the corpus itself."""
    return [each for part in parts_of(corpus) for each in corpora_of(part)] or [corpus]


def _corpus_words(corpus: Corpus) -> list[str]:
    """Return the options that select the same documents; [] if none can."""
    if any("texts" in part for part in corpora_of(corpus)):  # texts passed from Python
        return []
    parts = parts_of(corpus, "mixed")
    if not parts:
        name = _corpus_name(corpus)
        return ["--corpus", quoted(name), *_option_words(corpus, name)]
    common = {key: parts[0][key] for key in COMMON if key in parts[0]}
    for part in parts:
        alike = {key: part[key] for key in COMMON if key in part} == common
        if not alike or "data_dir" in part or part.get("split") not in DEFAULT_SPLITS:
            return []
    words = []
    for part in parts:
        weight = part.get("weight", 1.0)
        words += ["--corpus", quoted(_corpus_name(part) + ("" if weight == 1 else f":{weight}"))]
    seeds = {part["seed"] for part in parts if part.get("seed")}  # a whole corpus has none
    if len(seeds) > 1:
        return []
    options = {**common, "seed": next(iter(seeds), None), "limit": corpus.get("limit")}
    given = {key: value for key, value in options.items() if value is not None}
    return [*words, *_option_words(given, "")]


def _corpus_name(corpus: Corpus) -> str:
    name = str(corpus.get("id", "CORPUS"))
    if "dataset" in corpus and name == corpus["dataset"]:
        name = ":".join(["hf", name, *([corpus["config"]] if "config" in corpus else [])])
    return name


def _option_words(corpus: Corpus, name: str) -> list[str]:
    words: list[str] = []
    for key in CORPUS_OPTIONS:
        if key in corpus and (key != "column" or "dataset" not in corpus or name.startswith("hf:")):
            words += [f"--{key}", quoted(corpus[key])]
    if "data_dir" in corpus:
        words += ["--language", quoted(corpus["data_dir"].rpartition("/")[2])]
    if corpus.get("join_turns"):
        words.append("--join-turns")
    if corpus.get("skip_bad"):
        words.append("--skip-bad")
    if "licenses_kept" in corpus:
        words += ["--licenses", quoted(",".join(corpus["licenses_kept"]))]
    if "excluded" in corpus:
        words += ["--exclude", "FILE"]
    if corpus.get("private"):
        words.append("--private")
    return words


def quoted(value: Any) -> str:
    return shlex.quote(str(value))
