"""The files of recipes: artifacts/NAME.toml describes an artifact, `ngramkit.recipes` builds it.

    kind = "frozen-table"               datastore, frozen-table or model-bigram
    summary = "..."                     for people
    destination = "USER/NAME"           where `--push` puts it

    dedup = "exact"                     exact or minhash: leave out duplicates
    exclude = ["questions.jsonl"]       leave out documents with texts of these evaluation sets

    [model]                             of the tokenizer, or of a model-bigram
    id = "vicuna-7b"
    revision = "main"                   a branch, tag or commit
    fingerprint = "..."                 expected fingerprint of the tokenizer

    [corpus]                            the options of `ngramkit tokenize`; several
    name = "openwebtext"                [[corpus]] are mixed
    weight = 0.3                        the share of its documents to keep

    [parameters]                        of the kind; no default depends on the machine

    [prune]                             prune the artifact, as `ngramkit prune`
    bytes = "2G"                        maximum size; NAME-whole keeps the unpruned one

Unknown keys are errors.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown
from ngramkit.basics.kinds import KINDS
from ngramkit.basics.machine import parse_size
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import nests_within, read_plain
from ngramkit.corpus.decontamination import is_evaluation, read_evaluation_texts
from ngramkit.corpus.deduplication import deduplicate
from ngramkit.corpus.document import Corpus
from ngramkit.corpus.open import AnyCorpus, open_corpus
from ngramkit.formats.outputs import ARTIFACTS
from ngramkit.remote.fetch import HubName

MAX_BYTES = 1 << 16  # bytes of a recipe
MAX_DOTS = 1_000  # dots in a line; parsing a dotted key takes quadratic time
MAX_DEPTH = 8  # levels of tables and lists; [[corpus]] with licenses needs four
MAX_NUMBER = (1 << 64) - 1  # Python limits the length of printed numbers
TOP: dict[str, type | tuple[type, ...]] = {
    "kind": str, "summary": str, "destination": str, "model": dict, "corpus": (dict, list),
    "parameters": dict, "prune": dict, "dedup": str, "exclude": list,
}  # fmt: skip
MODEL = {"id": str, "revision": str, "fingerprint": str}
CORPUS: dict[str, type | tuple[type, ...]] = {
    "name": str, "revision": str, "split": str, "column": str, "language": str,
    "weight": (float, int), "join_turns": bool, "skip_bad": bool, "sample": (float, int),
    "seed": int, "limit": int, "licenses": list, "exclude": str, "private": bool,
}  # fmt: skip
# These defaults must not depend on the machine; those of the commands may.
PARAMETERS: dict[str, dict[str, Any]] = {
    "datastore": {"eos": True, "shard_tokens": 1 << 26},
    "frozen-table": {
        "eos": True, "leader_len": 1, "leaders": 1 << 20, "follower_len": 3, "followers": 128,
    },
    "model-bigram": {
        "k": 100, "width": 4, "prefix": "none", "extend": "bigram", "dtype": "bfloat16",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    name: str  # of the file and of the artifact's folder
    folder: Path  # of the file, for relative paths
    kind: str
    model: str
    revision: str | None
    fingerprint: str | None
    corpus: list[dict[str, Any]]  # several are mixed
    parameters: dict[str, Any]
    summary: str = ""
    destination: str | None = None
    prune: int | None = None  # bytes
    dedup: str | None = None
    exclude: tuple[str, ...] = ()  # files of evaluation sets

    def open_corpus(self, reporter: Reporter = SILENT) -> AnyCorpus:
        evaluation = None
        if self.exclude:
            files = [self.folder / name for name in self.exclude]
            evaluation = read_evaluation_texts(files, reporter)
        parts: list[tuple[Corpus, float | None]] = []
        for table in self.corpus:
            options = dict(table)
            name, weight = options.pop("name"), options.pop("weight", None)
            if "exclude" in options:
                options["exclude"] = self._opt_outs(options["exclude"])
            opened: Any = open_corpus(name, **options, reporter=reporter)
            parts.append((opened, weight))
        whole: Any = parts[0][0]
        if len(parts) > 1 or parts[0][1] is not None:
            whole = open_corpus([(each, 1.0 if share is None else share) for each, share in parts])
        is_whole = self.dedup is None and evaluation is None
        corpus: AnyCorpus = whole if is_whole else deduplicate(whole, self.dedup, evaluation)
        return corpus

    def _opt_outs(self, name: str) -> Path:
        if is_evaluation(Path(name)):
            raise InputError(
                f"recipe {self.name}: corpus.exclude must be a list of opt-outs, got {name}",
                "Name evaluation sets in exclude = [...] above [corpus].",
            )
        return self.folder / name


def read_recipe(source: str) -> Recipe:
    """Read a recipe from a path, or by the name of a file in artifacts/.

    Raises InputError for a missing file and invalid keys.
    """
    path = _find_recipe(source)
    raw = read_plain(path, MAX_BYTES, error=InputError)
    too_deep = InputError(
        f"cannot read {path}: it nests too deeply", "Write each value on a separate line."
    )
    if max(line.count(b".") for line in raw.split(b"\n")) > MAX_DOTS:
        raise too_deep
    try:
        body = tomllib.loads(raw.decode("utf-8-sig"))
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:  # neither TOML nor text, or numbers of thousands of digits
        raise InputError(f"cannot read {path} as TOML: {error}", "Correct that line.") from error
    if not nests_within(body, MAX_DEPTH):
        raise too_deep
    _check_table(path, "", body, TOP, required=("kind", "model"))
    kind = body["kind"]
    if kind not in PARAMETERS:
        raise InputError(f"{path}: kind must be one of {', '.join(PARAMETERS)}, got {kind!r:.80}")
    defaults = PARAMETERS[kind]
    types = {name: type(value) for name, value in defaults.items()}
    model, parameters = body["model"], body.get("parameters", {})
    corpora = body.get("corpus", {})
    corpora = corpora if isinstance(corpora, list) else [corpora]
    _check_table(path, "model.", model, MODEL, required=("id",))
    _check_table(path, "parameters.", parameters, types)
    if not corpora or not all(isinstance(table, dict) for table in corpora):
        raise InputError(f"{path}: corpus must be [corpus] or [[corpus]], got {corpora!r:.80}")
    for table in corpora:
        if KINDS[kind].of_model:
            _check_table(path, "corpus.", table, {})
        else:
            _check_table(path, "corpus.", table, CORPUS, required=("name",))
    for name in body.get("exclude", []):
        if not is_evaluation(Path(name)):
            raise InputError(f"{path}: exclude must name .jsonl files, got {name!r:.80}")
    return Recipe(
        name=path.stem,
        folder=path.parent,
        kind=kind,
        model=model["id"],
        revision=model.get("revision"),
        fingerprint=model.get("fingerprint"),
        corpus=corpora,
        parameters={**defaults, **parameters},
        summary=body.get("summary", ""),
        destination=_destination(path, body),
        prune=_bytes_of_prune(path, kind, body),
        dedup=body.get("dedup"),
        exclude=tuple(body.get("exclude", [])),
    )


def _destination(path: Path, body: Mapping[str, Any]) -> str | None:
    if "destination" not in body:
        return None
    try:
        return HubName.to_push(body["destination"])
    except UsageError as error:
        raise InputError(f"cannot read destination of {path}: {error}", error.hint) from error


def _bytes_of_prune(path: Path, kind: str, body: Mapping[str, Any]) -> int | None:
    if "prune" not in body:
        return None
    _check_table(path, "prune.", body["prune"], {"bytes": (str, int)}, required=("bytes",))
    if KINDS[kind].of_model:
        raise InputError(f"cannot prune a {kind}, as {path} asks", "Leave out [prune].")
    try:
        return parse_size(str(body["prune"]["bytes"]))
    except UsageError as error:
        raise InputError(f"cannot read prune.bytes of {path}: {error}", error.hint) from error


def _find_recipe(source: str) -> Path:
    given, named = Path(source), ARTIFACTS / f"{source}.toml"
    if given.suffix == ".toml" and given.is_file():
        return given
    if named.is_file():
        return named
    names = sorted(path.stem for path in ARTIFACTS.glob("*.toml"))
    where = f"Give a file: {ARTIFACTS}/ has no recipe."
    raise InputError(
        f"unknown recipe {source!r}", hint_for_unknown(given.stem, names) if names else where
    )


def _check_table(
    path: Path,
    where: str,
    table: Mapping[str, Any],
    allowed: Mapping[str, type | tuple[type, ...]],
    required: tuple[str, ...] = (),
) -> None:
    for key, value in table.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.4)
            known = ", ".join(allowed) or "none here"
            hint = f"Did you mean {where}{near[0]}?" if near else f"Choose one of: {known}."
            raise InputError(f"unknown key {where}{key} in {path}", hint)
        wanted = allowed[key]
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        if type(value) is int and abs(value) > MAX_NUMBER:
            raise InputError(f"{path}: {where}{key} must be a smaller number")
        if wanted is list and isinstance(value, list):
            for name in value:
                if not isinstance(name, str):
                    raise InputError(f"{path}: {where}{key} must be strings, got {name!r:.80}")
        if value == "":
            raise InputError(f"{path}: {where}{key} must not be empty", "Leave it out.")
        if type(value) not in kinds:
            raise InputError(
                f"{path}: {where}{key} must be {_type_name(kinds[0])}, got {value!r:.80}"
            )
    for key in required:
        if key not in table:
            raise InputError(f"{path} must have {where}{key}", "Add it.")


def _type_name(kind: type) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a table" if kind is dict else "a list")
