"""README.md of an artifact: a Hub card for people, made from the manifest alone.

Its YAML header is what the Hub indexes; under `ngramkit:` stands what `ngramkit search` reads. It
is written here and not by the Hub's client, because the same manifest must give the same bytes
whatever version of that is installed; a test reads it with the client.
The table of frequent entries needs a tokenizer, so it comes from outside.

A corpus is called what its author wants. Whatever it is called, it stays one piece of text: no line
break, heading, link, image, HTML or table border comes out of it (`markdown_text`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ngramkit.basics.kinds import KINDS
from ngramkit.basics.models import DEFAULT, HUB_IDS
from ngramkit.basics.terminal_text import visible
from ngramkit.formats.manifest import VERSION, Manifest

SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
         (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip

MODEL_OPTIONS = ("k", "width", "extend", "prefix", "rule", "dtype")

PLACEHOLDER = "USER/NAME"  # the repository, in a card that does not know it yet
# A corpus record's keys that are options of the same meaning.
CORPUS_OPTIONS = {
    "revision": "--revision",
    "split": "--split",
    "column": "--column",
    "sample": "--sample",
    "seed": "--seed",
    "limit": "--limit",
}
# Keys that a command gives for all corpora of a mixture at once.
COMMON = ("sample", "join_turns", "skip_bad", "licenses_kept", "excluded")
DEFAULT_SPLITS = (None, "train", "train_sft")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
# Characters that mean something in Markdown, and places where a link would begin.
MEANS = re.compile(r"([\\`*_\[\]<>#|~$&@!])|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
FENCE = re.compile(r"`{3,}")

# A phrase, what follows it most often, and how often it was seen.
Entry = tuple[str, Sequence[str], int]


def card(manifest: Manifest, entries: Sequence[Entry] = ()) -> str:
    """Return the whole text. `entries` are the most frequent ones, best first.

    Only the line that builds the same again says where a local model lay.
    """
    shown = without_paths(manifest)
    parts = [
        _header(shown),
        f"# {markdown_text(title(shown))}",
        _about(manifest.kind),
        table(_facts(shown)),
        _use(shown),
        _section("How it was built", build_command(manifest)),
        _entries(entries),
        licences(manifest.corpus),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(name: str) -> str:
    if name == "history":
        return (
            "A model's past requests, as tokens: whoever has the tokenizer can read what people "
            "wrote. Made by ngramkit."
        )
    kind = KINDS.get(name)
    about = kind.about if kind else "An artifact of training-free speculative decoding."
    return f"{about} Made by ngramkit; read through a memory map, see `manifest.json`."


def without_paths(manifest: Manifest) -> Manifest:
    """Return the same with names for models that were folders or files of some machine."""
    tokenizer, parameters = manifest.tokenizer, dict(manifest.parameters)
    if isinstance(parameters.get("model"), str):
        parameters["model"] = model_name(parameters["model"])
    named = replace(tokenizer, id=model_name(tokenizer.id))
    return replace(manifest, tokenizer=named, parameters=parameters)


def model_name(model: str) -> str:
    """Return a model's name without its folder; by its look alone, so everywhere the same.

    >>> model_name("/home/me/models/My-2.5/"), model_name("me/model"), model_name("./a.Q4.gguf")
    ('My-2.5', 'me/model', 'a.Q4')
    """
    path = model.replace("\\", "/").rstrip("/")
    local = path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(".gguf")
    if model.startswith("hf:") or not local or visible(model) != model:  # no folder of a person's
        return model
    return path.rpartition("/")[2].removesuffix(".gguf").strip(".~") or "a local model"


def title(manifest: Manifest) -> str:
    """Return "CORPUS: KIND for TOKENIZER"."""
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
    lines = [f"{key}: {yaml(v)}" for key, v in header.items() if v is not None]
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
    """Return a parameter's row name; where a count has it too, the parameter is the most."""
    words = name.replace("_", " ")
    return f"{words}, at most" if name in manifest.counts else words


def _use(manifest: Manifest) -> str:
    if manifest.kind == "history":
        return _section("Use it", f"ngramkit pull {PLACEHOLDER} --out past")
    kind = KINDS.get(manifest.kind)
    if kind is None or kind.drafter is None:
        return ""
    model = "" if manifest.tokenizer.id == DEFAULT else f" --model {quoted(manifest.tokenizer.id)}"
    source = f"--drafter {kind.drafter} {kind.flag} hf://{PLACEHOLDER}"
    return _section("Use it", f"ngramkit decode {source}{model} --prompt ...")


def _section(name: str, command: str) -> str:
    """Return a section with a command; empty if it holds a control character, not to be pasted."""
    if not command or visible(command) != command:
        return ""
    longest = max(map(len, FENCE.findall(command)), default=2)
    fence = "`" * (longest + 1)  # nothing in the command ends it
    return f"## {name}\n\n{fence}sh\n{command}\n{fence}"


def build_command(manifest: Manifest) -> str:
    """Return a line for a shell that builds the same again; empty where one line cannot."""
    corpus, parameters = manifest.corpus, dict(manifest.parameters)
    kind = KINDS.get(manifest.kind)
    if kind is None or "merged" in parameters:
        return ""
    if "pruned" in corpus:
        return _prune_command(manifest)
    if "format" in corpus:
        words = ["ngramkit import", quoted(corpus["id"]), "--from", str(corpus["format"])]
        return " ".join([*words, "--model", quoted(manifest.tokenizer.id)])
    if kind.of_model:
        model = quoted(parameters.pop("model", manifest.tokenizer.id))
        given = {name: value for name, value in parameters.items() if name in MODEL_OPTIONS}
        return " ".join(["ngramkit", kind.command, model, *_options(given)])
    chosen = corpus_words(corpus)
    if not chosen:
        return ""
    words = ["ngramkit", kind.command, *chosen]
    words += ["--model", quoted(manifest.tokenizer.id)]
    if manifest.kind == "tokens":
        return " ".join([*words, *([] if parameters.get("eos", True) else ["--no-eos"])])
    return " ".join([*words, *_options(parameters)])


def _prune_command(manifest: Manifest) -> str:
    """Return the whole artifact's line and the pruning one; empty where answers decided."""
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


def _options(parameters: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')} {quoted(value)}" for name, value in parameters.items()]


def _entries(entries: Sequence[Entry]) -> str:
    if not entries:
        return ""
    rows = [
        f"| {code(what)} | {count:,} | {' '.join(map(code, following))} |"
        for what, following, count in entries
    ]
    head = ["## Most frequent entries", "", "| | seen | followed most often by |", "|---|---|---|"]
    return "\n".join([*head, *rows])


# Lines about the corpus, or the several corpora of a mixture.


def corpora_of(corpus: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the corpora of a mixture, in order; else the one."""
    return corpus.get("mixed") or [corpus]


def license_of(corpus: dict[str, Any]) -> Any:
    """Return the datasets' licence; of several, the one that all have."""
    licences = [part.get("dataset_license") for part in corpora_of(corpus)]
    return licences[0] if all(each == licences[0] for each in licences) else None


def datasets_of(corpus: dict[str, Any]) -> list[str]:
    """Return the Hub ids of its datasets, each once."""
    names = [part.get("dataset") for part in corpora_of(corpus)]
    return list(dict.fromkeys(str(name) for name in names if is_hub_id(name)))


def is_hub_id(name: Any) -> bool:
    return isinstance(name, str) and HUB_ID.fullmatch(name) is not None


def sources_of(corpus: dict[str, Any]) -> dict[str, str]:
    """Return rows of the corpus and its revision; of a mixture each, with its weight."""
    if "mixed" not in corpus:
        corpus_id, revision = corpus.get("id", "none"), corpus.get("revision", "")
        return {"corpus": str(corpus_id), "revision": str(revision)}
    return {f"corpus {at}": mixed_part(part) for at, part in enumerate(corpus["mixed"], 1)}


def pruned_from(corpus: dict[str, Any]) -> dict[str, str]:
    """Return a row of how an artifact was pruned, if it was."""
    pruning = corpus.get("pruned")
    whole = pruning.get("of") if isinstance(pruning, dict) else None
    if not isinstance(pruning, dict) or not isinstance(whole, dict):
        return {}
    judge = "recorded answers" if "answers" in pruning else "its own text"
    sizes = f"to {pruning.get('bytes')} bytes of {whole.get('bytes')}, by {judge}"
    return {"pruned": f"{sizes} (build {str(whole.get('build'))[:12]})"}


def mixed_part(part: dict[str, Any]) -> str:
    """Return one corpus of a mixture: "code, weight 0.3, revision 1a2b3c4d5e6f"."""
    words = f"{part.get('id', 'unknown')}, weight {part.get('weight', 1.0)}"
    for pin in ("revision", "sha256", "listing"):
        if part.get(pin):
            return f"{words}, {pin} {str(part[pin])[:12]}"
    return words


def corpus_words(corpus: dict[str, Any]) -> list[str]:
    """Return the options that choose the same again; none where a command cannot say it."""
    words = _chosen_words(corpus)
    if words and "dedup" in corpus:
        words += ["--dedup", quoted(corpus["dedup"])]
    if words and "evaluation" in corpus:
        words += ["--exclude", "FILE.jsonl"]
    return words


def _chosen_words(corpus: dict[str, Any]) -> list[str]:
    if any("texts" in part for part in corpora_of(corpus)):  # that a program held
        return []
    if "mixed" not in corpus:
        name = _name(corpus)
        return ["--corpus", quoted(name), *_option_words(corpus, name)]
    parts = corpus["mixed"]
    common = {key: parts[0][key] for key in COMMON if key in parts[0]}
    for part in parts:
        alike = {key: part[key] for key in COMMON if key in part} == common
        if not alike or "data_dir" in part or part.get("split") not in DEFAULT_SPLITS:
            return []
    words = []
    for part in parts:
        weight = part.get("weight", 1.0)
        words += ["--corpus", quoted(_name(part) + ("" if weight == 1 else f":{weight}"))]
    seeds = {part["seed"] for part in parts if part.get("seed")}  # all of a corpus needs none
    if len(seeds) > 1:
        return []
    options = {**common, "seed": next(iter(seeds), None), "limit": corpus.get("limit")}
    given = {key: value for key, value in options.items() if value is not None}
    return [*words, *_option_words(given, "")]


def _name(corpus: dict[str, Any]) -> str:
    name = str(corpus.get("id", "CORPUS"))
    if "dataset" in corpus and name == corpus["dataset"]:
        name = ":".join(["hf", name, *([corpus["config"]] if "config" in corpus else [])])
    return name


def _option_words(corpus: dict[str, Any], name: str) -> list[str]:
    words: list[str] = []
    for key, option in CORPUS_OPTIONS.items():
        if key in corpus and (key != "column" or "dataset" not in corpus or name.startswith("hf:")):
            words += [option, quoted(corpus[key])]
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
    return words


def quoted(value: Any) -> str:
    return shlex.quote(str(value))


def licences(corpus: dict[str, Any]) -> str:
    """Return the section on licences, opt-outs and left-out documents; empty of no corpus."""
    if not corpus:
        return ""
    licence = license_of(corpus)
    lines = ["What this artifact holds of the text can be read back from it."]
    if licence:
        named = licence if isinstance(licence, str) else ", ".join(map(str, licence))
        lines.append(f"The source dataset's licence: {markdown_text(named)}.")
    if "licenses_kept" in corpus:
        kept = markdown_text(", ".join(map(str, corpus["licenses_kept"])))
        lines.append(f"Only documents under {kept} were kept.")
    if "excluded" in corpus:
        lines.append(
            "Repositories and documents on an opt-out list were left out (sha256 of the list: "
            f"{code(str(corpus['excluded']))})."
        )
    lines += _left_out(corpus)
    if not licence and "licenses" not in corpus:
        lines.append("The source says nothing of its licence.")
    text = "## Licences and opt-outs\n\n" + "\n".join(lines)
    if corpus.get("licenses"):
        pairs = sorted(corpus["licenses"].items(), key=lambda pair: (-pair[1], pair[0]))
        counts = {name: f"{count:,}" for name, count in pairs}
        text += "\n\n" + table(counts, ("licence", "documents"))
    return text


def _left_out(corpus: dict[str, Any]) -> list[str]:
    """Return lines on duplicates, evaluation texts and bad records that were left out."""
    counts, lines = corpus.get("left_out"), []
    if not isinstance(counts, dict):
        counts = {}
    if "dedup" in corpus:
        many = markdown_text(str(counts.get("duplicates", 0)))
        method = markdown_text(str(corpus["dedup"]))
        lines.append(f"Duplicates were left out ({method}): {many} documents.")
    if isinstance(corpus.get("evaluation"), dict):
        many = markdown_text(str(counts.get("evaluation", 0)))
        digest = code(str(corpus["evaluation"].get("sha256")))
        lines.append(
            f"Documents that hold texts of an evaluation set were left out: {many} "
            f"(sha256 of its texts: {digest})."
        )
    if "bad_records" in corpus:
        many = markdown_text(str(corpus["bad_records"]))
        lines.append(f"Records that could not be read were left out: {many}.")
    return lines


# Markdown and YAML around strings that others wrote.


def markdown_text(value: Any) -> str:
    """Escape `value` for a paragraph, a heading or a table cell: "a_b" -> "a\\_b"."""
    return MEANS.sub(lambda match: "\\" + (match[1] or ""), visible(value))


def code(value: str) -> str:
    """Return a code span for a table cell; backticks become quotes."""
    shown = visible(value).replace("|", "\\|").replace("`", "'")
    return f"`{shown or ' '}`"


def table(rows: Mapping[str, Any], head: Sequence[str] = ("", "")) -> str:
    """Return a table of two columns; rows without a value are left out."""
    cells = [
        f"| {markdown_text(name)} | {markdown_text(value)} |"
        for name, value in rows.items()
        if value
    ]
    titles = "|".join(f" {title} " if title else " " for title in head)
    return "\n".join([f"|{titles}|", "|---|---|", *cells])


def yaml(value: Any) -> str:
    """Return a YAML value in one line: JSON, with what YAML forbids in a file escaped too."""
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 2**16 else f"\\U{ord(c):08x}"
        for c in json.dumps(value, ensure_ascii=False)
    )
