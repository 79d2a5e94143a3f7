"""README.md of an artifact: a card for the Hub, rendered from the manifest by `card.md.jinja`.

The YAML header is written here, since a manifest must give the same bytes with any version of the
Hub's client. Every printed value is escaped, so a hostile name cannot add markup.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ngramkit.basics.kinds import KINDS
from ngramkit.basics.models import DEFAULT_MODEL, HUB_IDS
from ngramkit.basics.terminal_text import visible
from ngramkit.formats.build_command import build_command, corpora_of, quoted
from ngramkit.formats.manifest import FORMAT_VERSION, Corpus, Manifest, parts_of
from ngramkit.formats.outputs import PREVIEW

# The Hub's classes by number of documents.
SIZE_CATEGORIES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"),
)  # fmt: skip
PLACEHOLDER = "USER/NAME"  # repository name until it is pushed
LANGUAGE = re.compile(r"[a-z]{2,3}|code")  # ISO 639
# Lines of the header that not every card of a manifest has: older ones, and those without preview.
CARD_METADATA = {"task_categories": ["text-generation"], "library_name": "ngramkit"}
PREVIEW_CONFIG = {"configs": [{"config_name": "preview", "data_files": PREVIEW}]}
NOT_SHOWN = {"viewer": False}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
# Characters with a meaning in Markdown, and places where a link would begin.
MARKUP = re.compile(r"([\\`*_\[\]<>#|~$&@!])|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)

# (phrase, its most frequent successors, its count).
Entry = tuple[str, Sequence[str], int]


def artifact_card(
    manifest: Manifest,
    entries: Sequence[Entry] = (),
    *,
    language: Sequence[str] = (),
    preview: bool = False,
) -> str:
    """Return the card.

    `entries` are the most frequent ones, best first. `language`: codes of ISO 639. `preview`: the
    repository has the table PREVIEW.
    """
    shown, corpus = without_paths(manifest), manifest.corpus
    counts = corpus.get("left_out")
    evaluation = corpus.get("evaluation")
    text: str = _load_template().render(
        header=_card_header(shown, language, preview),
        title=card_title(shown),
        about=_describe_file(manifest.kind),
        facts={name: value for name, value in _facts_of_manifest(shown).items() if value},
        commands=_commands_by_name(
            ("Use it", _command_to_use(shown)), ("How it was built", build_command(manifest))
        ),
        entries=entries,
        corpus=corpus,
        licence=_describe_licences(corpus),
        left_out=defaultdict(int, counts if isinstance(counts, dict) else {}),
        evaluation={"sha256": None, **evaluation} if isinstance(evaluation, dict) else None,
        licences=sorted(
            (corpus.get("licenses") or {}).items(), key=lambda each: (-each[1], each[0])
        ),
    )
    return text


def card_pattern(manifest: Manifest) -> re.Pattern[str]:
    """Return what cards of the manifest match, without entries and the newline at the end.

    The repository, the language and the preview may be any; cards of 0.2.0 match too. Those of
    merges have no licence and no datasets, those of mixtures only a common licence.
    """
    corpus = {name: value for name, value in manifest.corpus.items() if name != "merged"}
    if "mixed" in corpus and license_of(corpus) is None:
        corpus["mixed"] = [{**part, "dataset_license": None} for part in corpus["mixed"]]
    older = replace(manifest, corpus=corpus)
    return re.compile("|".join(dict.fromkeys(map(_form_of_card, (manifest, older)))))


def _form_of_card(manifest: Manifest) -> str:
    form = re.escape(artifact_card(manifest).rstrip("\n"))
    form = form.replace(re.escape(PLACEHOLDER), r"[\w.-]+/[\w.-]+")
    about, shown, not_shown = (
        _lines_of_header(CARD_METADATA),
        _lines_of_header(PREVIEW_CONFIG),
        _lines_of_header(NOT_SHOWN),
    )
    form = form.replace(about, rf'(?:(?:language: \["[a-z", ]+"\]\n)?{about})?', 1)
    return form.replace(not_shown, f"(?:{not_shown}|{shown})", 1)


def _lines_of_header(header: dict[str, Any]) -> str:
    return re.escape("".join(f"{key}: {escaped_yaml(value)}\n" for key, value in header.items()))


@cache
def _load_template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ngramkit.formats", ""),
        finalize=lambda value: value if isinstance(value, _Markup) else escaped_markdown(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "markup": _Markup,
        "code": lambda value: _Markup(escaped_code(str(value))),
        "yaml": lambda value: _Markup(escaped_yaml(value)),
    }
    return environment.get_template("card.md.jinja")


class _Markup(str):
    """Text that the template prints unescaped."""

    __slots__ = ()


def _describe_file(name: str) -> str:
    if name == "history":
        return (
            "A model's past requests, as tokens: whoever has the tokenizer can read what people "
            "wrote. Made by ngramkit."
        )
    kind = KINDS.get(name)
    about = kind.about if kind else "An artifact of training-free speculative decoding."
    return f"{about} Made by ngramkit; read through a memory map, see `manifest.json`."


def without_paths(manifest: Manifest) -> Manifest:
    tokenizer, parameters = manifest.tokenizer, dict(manifest.parameters)
    if isinstance(parameters.get("model"), str):
        parameters["model"] = model_name(parameters["model"])
    named = replace(tokenizer, id=model_name(tokenizer.id))
    return replace(manifest, tokenizer=named, parameters=parameters)


def model_name(model: str) -> str:
    """Return a model's name without its folder. Only the text decides, so all machines agree."""
    path = model.replace("\\", "/").rstrip("/")
    local = path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(".gguf")
    if model.startswith("hf:") or not local or visible(model) != model:  # not a local path
        return model
    return path.rpartition("/")[2].removesuffix(".gguf").strip(".~") or "a local model"


def card_title(manifest: Manifest) -> str:
    source = manifest.corpus.get("id") or manifest.parameters.get("model") or "no corpus"
    return f"{source}: {manifest.kind} for {manifest.tokenizer.id}"


def _card_header(manifest: Manifest, language: Sequence[str], preview: bool) -> dict[str, Any]:
    corpus, tokenizer = manifest.corpus, manifest.tokenizer
    documents = manifest.counts.get("documents")
    size = next((name for most, name in SIZE_CATEGORIES if (documents or 0) < most), "n>1B")
    hub_id = HUB_IDS.get(tokenizer.id, tokenizer.id)
    header: dict[str, Any] = {
        "tags": ["ngramkit", manifest.kind],
        "pretty_name": card_title(manifest),
        "license": license_of(corpus),
        "language": list(language) or None,
        **CARD_METADATA,
        "size_categories": None if documents is None else [size],
        "base_model": hub_id if is_hub_id(hub_id) else None,
        "source_datasets": datasets_of(corpus) or None,
        **(PREVIEW_CONFIG if preview else NOT_SHOWN),
        "ngramkit": {
            "version": FORMAT_VERSION,
            "kind": manifest.kind,
            "tokenizer": hub_id,
            "vocabulary": tokenizer.vocabulary,
            "fingerprint": tokenizer.fingerprint,
            "bytes": manifest.bytes,
        },
    }
    return {key: value for key, value in header.items() if value is not None}


def _facts_of_manifest(manifest: Manifest) -> dict[str, str]:
    tokenizer, counts = manifest.tokenizer, manifest.counts
    parameters = {
        name.replace("_", " ") + (", at most" if name in counts else ""): str(value)
        for name, value in manifest.parameters.items()
    }
    return {
        "kind": manifest.kind,
        "private": "yes: made of private texts" if manifest.private else "",
        "tokenizer": f"{tokenizer.id} ({tokenizer.vocabulary:,} tokens, "
        f"{tokenizer.fingerprint[:12]})",
        **sources_of(manifest.corpus),
        **pruned_from(manifest.corpus),
        **{name: f"{count:,}" for name, count in counts.items()},
        **parameters,
        "bytes": f"{manifest.bytes:,}",
    }


def _command_to_use(manifest: Manifest) -> str:
    if manifest.kind == "history":
        return f"ngramkit pull {PLACEHOLDER} --out past"
    kind = KINDS.get(manifest.kind)
    if kind is None or kind.drafter is None:
        return ""
    name = manifest.tokenizer.id
    model = "" if name == DEFAULT_MODEL else f" --model {quoted(name)}"
    source = f"--drafter {kind.drafter} {kind.flag} hf://{PLACEHOLDER}"
    return f"ngramkit decode {source}{model} --prompt ..."


def _commands_by_name(*named: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return (name, command, fence) of commands without control characters."""
    rows = []
    for name, command in named:
        if command and visible(command) == command:
            longest = max(map(len, re.findall("`{3,}", command)), default=2)
            rows.append((name, command, "`" * (longest + 1)))
    return rows


def license_of(corpus: dict[str, Any]) -> Any:
    licences = [part.get("dataset_license") for part in corpora_of(corpus)]
    return licences[0] if all(each == licences[0] for each in licences) else None


def _describe_licences(corpus: dict[str, Any]) -> str:
    """Return a sentence about the licences of the source datasets, "" if none is named."""
    parts = corpora_of(corpus)
    named = [_text_of_licence(part.get("dataset_license")) for part in parts]
    if not any(named):
        return ""
    if license_of(corpus) is not None:
        return f"The source dataset's licence: {named[0]}."
    licences = zip(named, parts, strict=True)
    listed = [f"{name or 'none named'} ({part.get('id', 'unknown')})" for name, part in licences]
    return f"The source datasets' licences: {', '.join(dict.fromkeys(listed))}."


def _text_of_licence(licence: Any) -> str:
    return ", ".join(map(str, licence)) if isinstance(licence, list) else licence or ""


def datasets_of(corpus: dict[str, Any]) -> list[str]:
    names = [part.get("dataset") for part in corpora_of(corpus)]
    return list(dict.fromkeys(str(name) for name in names if is_hub_id(name)))


def is_hub_id(name: Any) -> bool:
    return isinstance(name, str) and HUB_ID.fullmatch(name) is not None


def sources_of(corpus: dict[str, Any]) -> dict[str, str]:
    parts = parts_of(corpus, "mixed")
    if not parts:
        corpus_id, revision = corpus.get("id", "none"), corpus.get("revision", "")
        return {"corpus": str(corpus_id), "revision": str(revision)}
    return {f"corpus {at}": corpus_part(part) for at, part in enumerate(parts, 1)}


def pruned_from(corpus: dict[str, Any]) -> dict[str, str]:
    pruning = corpus.get("pruned")
    whole = pruning.get("of") if isinstance(pruning, dict) else None
    if not isinstance(pruning, dict) or not isinstance(whole, dict):
        return {}
    judge = "recorded answers" if "answers" in pruning else "its own text"
    sizes = f"to {pruning.get('bytes')} bytes of {whole.get('bytes')}, by {judge}"
    return {"pruned": f"{sizes} (build {str(whole.get('build'))[:12]})"}


def corpus_part(part: Corpus) -> str:
    words = str(part.get("id", "unknown"))
    if "weight" in part:
        words += f", weight {part['weight']}"
    for pin in ("revision", "sha256", "listing"):
        if part.get(pin):
            return f"{words}, {pin} {str(part[pin])[:12]}"
    return words


def escaped_markdown(value: Any) -> str:
    return MARKUP.sub(lambda match: "\\" + (match[1] or ""), visible(value))


def escaped_code(value: str) -> str:
    """Return a code span, with a fence longer than any backticks inside."""
    shown = visible(value).replace("|", "\\|") or " "
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def escaped_yaml(value: Any) -> str:
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 2**16 else f"\\U{ord(c):08x}"
        for c in json.dumps(value, ensure_ascii=False)
    )
