"""A card's lines about the corpus, or the several of a mixture; see formats.card."""

from __future__ import annotations

import re
import shlex
from typing import Any

from ngramkit.formats import markdown

# A corpus record's keys that are options of the same meaning.
CORPUS_OPTIONS = {
    "revision": "--revision",
    "split": "--split",
    "column": "--column",
    "sample": "--sample",
    "seed": "--seed",
    "limit": "--limit",
}
# Those of them, and the others, that a command says of all corpora of a mixture at once.
COMMON = ("sample", "join_turns", "licenses_kept", "excluded")
DEFAULT_SPLITS = (None, "train", "train_sft")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def corpora_of(corpus: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a mixture, in order; else the one."""
    return corpus.get("mixed") or [corpus]


def license_of(corpus: dict[str, Any]) -> Any:
    """The datasets' licence; of several, the one that all have."""
    said = [part.get("dataset_license") for part in corpora_of(corpus)]
    return said[0] if all(each == said[0] for each in said) else None


def datasets_of(corpus: dict[str, Any]) -> list[str]:
    found = [part.get("dataset") for part in corpora_of(corpus)]
    return list(dict.fromkeys(str(name) for name in found if is_hub_id(name)))


def is_hub_id(name: Any) -> bool:
    return isinstance(name, str) and HUB_ID.fullmatch(name) is not None


def sources_of(corpus: dict[str, Any]) -> dict[str, str]:
    """The corpus and its revision; of a mixture each, with its weight."""
    if "mixed" not in corpus:
        said = {"corpus": str(corpus.get("id", "none"))}
        return {**said, "revision": str(corpus.get("revision", ""))}
    return {f"corpus {at}": mixed_part(part) for at, part in enumerate(corpus["mixed"], 1)}


def pruned_from(corpus: dict[str, Any]) -> dict[str, str]:
    """How an artifact was made smaller, if it was."""
    made = corpus.get("pruned")
    whole = made.get("of") if isinstance(made, dict) else None
    if not isinstance(made, dict) or not isinstance(whole, dict):
        return {}
    judge = "recorded answers" if "answers" in made else "its own text"
    said = f"to {made.get('bytes')} bytes of {whole.get('bytes')}, by {judge}"
    return {"pruned": f"{said} (build {str(whole.get('build'))[:12]})"}


def mixed_part(part: dict[str, Any]) -> str:
    """One corpus of a mixture: "code, weight 0.3, revision 1a2b3c4d5e6f"."""
    said = f"{part.get('id', 'unknown')}, weight {part.get('weight', 1.0)}"
    for pin in ("revision", "sha256", "listing"):
        if part.get(pin):
            return f"{said}, {pin} {str(part[pin])[:12]}"
    return said


def corpus_words(corpus: dict[str, Any]) -> list[str]:
    """The options that choose the same again; none where a command cannot say it."""
    words = _chosen_words(corpus)
    if words and "dedup" in corpus:
        words += ["--dedup", quoted(corpus["dedup"])]
    if words and "evaluation" in corpus:
        words += ["--exclude", "FILE.jsonl"]
    return words


def _chosen_words(corpus: dict[str, Any]) -> list[str]:
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
    said = {**common, "seed": next(iter(seeds), None), "limit": corpus.get("limit")}
    given = {key: value for key, value in said.items() if value is not None}
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
    if "licenses_kept" in corpus:
        words += ["--licenses", quoted(",".join(corpus["licenses_kept"]))]
    if "excluded" in corpus:
        words += ["--exclude", "FILE"]
    return words


def quoted(value: Any) -> str:
    return shlex.quote(str(value))


def licences(corpus: dict[str, Any]) -> str:
    if not corpus:
        return ""
    said = license_of(corpus)
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
    lines += _sifted(corpus)
    if not said and "licenses" not in corpus:
        lines.append("The source says nothing of its licence.")
    text = "## Licences and opt-outs\n\n" + "\n".join(lines)
    if corpus.get("licenses"):
        found = sorted(corpus["licenses"].items(), key=lambda pair: (-pair[1], pair[0]))
        counts = {name: f"{count:,}" for name, count in found}
        text += "\n\n" + markdown.table(counts, ("licence", "documents"))
    return text


def _sifted(corpus: dict[str, Any]) -> list[str]:
    """What was left out because it came twice, or holds texts of an evaluation set."""
    counts, lines = corpus.get("left_out"), []
    found = counts if isinstance(counts, dict) else {}
    if "dedup" in corpus:
        many = markdown.text(str(found.get("duplicates", 0)))
        method = markdown.text(str(corpus["dedup"]))
        lines.append(f"Duplicates were left out ({method}): {many} documents.")
    if isinstance(corpus.get("evaluation"), dict):
        many = markdown.text(str(found.get("evaluation", 0)))
        digest = markdown.code(str(corpus["evaluation"].get("sha256")))
        lines.append(
            f"Documents that hold texts of an evaluation set were left out: {many} "
            f"(sha256 of its texts: {digest})."
        )
    return lines
