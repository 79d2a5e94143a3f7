"""Recipes as files: artifacts/NAME.toml says everything that decides an artifact.

    kind = "frozen-table"               datastore, frozen-table or model-bigram
    summary = "..."                     for people
    destination = "USER/NAME"           where `--push` puts it

    dedup = "exact"                     exact or minhash: leave out duplicates (corpus.sifting)
    exclude = ["questions.jsonl"]       leave out what holds texts of these evaluation sets

    [model]                             its tokenizer, or for a model-bigram its weights
    id = "vicuna-7b"
    revision = "main"                   a branch, tag or commit
    fingerprint = "..."                 the tokenizer's, if it is to be compared

    [corpus]                            the options of `ngramkit tokenize`, see CORPUS; several
    name = "openwebtext"                [[corpus]] are mixed, each with options of its own
    weight = 0.3                        the share of its documents that is kept

    [parameters]                        those of the kind, see PARAMETERS; defaults are pinned there

    [prune]                             made smaller at the end, as `ngramkit prune` does
    bytes = "2G"                        the most it may take; NAME-whole stays beside it

Unknown keys are errors. This module reads files; it builds nothing.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.errors import InputError, UsageError, meant
from ngramkit.formats.files import read_plain
from ngramkit.formats.json_text import nests_within
from ngramkit.machine import parse_size
from ngramkit.progress import SILENT, Reporter

if TYPE_CHECKING:
    from ngramkit.corpus.document import Corpus
    from ngramkit.corpus.open import AnyCorpus

FOLDER = Path("artifacts")
MOST = 1 << 16  # bytes of a recipe
MOST_DOTS = 1_000  # in a line: the time for a key grows with its dots squared
DEEPEST = 8  # tables and lists inside each other; [[corpus]] with licenses needs four
LARGEST = (1 << 64) - 1  # a number: Python writes out no number of any length
TOP: dict[str, type | tuple[type, ...]] = {
    "kind": str, "summary": str, "destination": str, "model": dict, "corpus": (dict, list),
    "parameters": dict, "prune": dict, "dedup": str, "exclude": list,
}  # fmt: skip
MODEL = {"id": str, "revision": str, "fingerprint": str}
CORPUS = {
    "name": str, "revision": str, "split": str, "column": str, "language": str,
    "weight": float, "join_turns": bool, "sample": float, "seed": int, "limit": int,
    "licenses": list, "exclude": str,
}  # fmt: skip
# Defaults that do not depend on the machine, as those of the commands may.
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
    name: str  # the file's, and the artifact folder's
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
        """Its corpus; of several, or of one with a weight, a mixture; of that, what is left."""
        from ngramkit.corpus.evaluation import read_evaluation_texts
        from ngramkit.corpus.open import open_corpus
        from ngramkit.corpus.sifting import sifted

        evaluation = read_evaluation_texts([self.folder / name for name in self.exclude])
        parts: list[tuple[Corpus, float | None]] = []
        for table in self.corpus:
            options = dict(table)
            name, weight = options.pop("name"), options.pop("weight", None)
            if "exclude" in options:
                options["exclude"] = self._opt_outs(options["exclude"])
            opened: Any = open_corpus(name, **options, reporter=reporter)
            parts.append((opened, weight))
        (first, weight), *others = parts
        if not others and weight is None:
            return sifted(first, self.dedup, evaluation)
        mixture: Any = open_corpus([(corpus, 1.0 if w is None else w) for corpus, w in parts])
        return sifted(mixture, self.dedup, evaluation)

    def _opt_outs(self, name: str) -> Path:
        from ngramkit.corpus.evaluation import is_evaluation

        if is_evaluation(Path(name)):
            raise InputError(
                f"recipe {self.name}: corpus.exclude is a list of opt-outs, not {name}",
                "evaluation sets are left out of all corpora: exclude = [...] above [corpus]",
            )
        return self.folder / name


def read_recipe(source: str) -> Recipe:
    """`source` is a path, or the name of a file in artifacts/.

    Raises InputError where there is none, or a key is unknown, missing or of another type.
    """
    path = _path(source)
    raw = read_plain(path, MOST, error=InputError)
    if max(line.count(b".") for line in raw.split(b"\n")) > MOST_DOTS:
        raise _deep(path)
    try:
        body = tomllib.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise _deep(path) from error
    except ValueError as error:  # what is no TOML or no text, and numbers of thousands of digits
        raise InputError(f"{path} is not TOML: {error}", "mend that line") from error
    if not nests_within(body, DEEPEST):
        raise _deep(path)
    _check(path, "", body, TOP, required=("kind", "model"))
    kind = body["kind"]
    if kind not in PARAMETERS:
        raise InputError(
            f"{path}: kind {kind!r:.80} has no recipes", f"one of {', '.join(PARAMETERS)}"
        )
    defaults = PARAMETERS[kind]
    types = {name: type(value) for name, value in defaults.items()}
    model, parameters = body["model"], body.get("parameters", {})
    given = body.get("corpus", {})
    corpora = given if isinstance(given, list) else [given]
    _check(path, "model.", model, MODEL, required=("id",))
    _check(path, "parameters.", parameters, types)
    if not corpora or not all(isinstance(table, dict) for table in corpora):
        raise InputError(f"{path}: corpus is {given!r:.80}", "write [corpus] or [[corpus]] there")
    for table in corpora:
        if kind == "model-bigram":
            _check(path, "corpus.", table, {})
        else:
            _check(path, "corpus.", table, CORPUS, required=("name",))
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
        destination=body.get("destination"),
        prune=_pruned(path, kind, body),
        dedup=body.get("dedup"),
        exclude=_excluded(path, body.get("exclude", [])),
    )


def _deep(path: Path) -> InputError:
    return InputError(f"{path}: it nests too deeply", "write each value on a line of its own")


def _excluded(path: Path, given: list[Any]) -> tuple[str, ...]:
    from ngramkit.corpus.evaluation import is_evaluation

    for name in given:
        if not isinstance(name, str) or not is_evaluation(Path(name)):
            raise InputError(f"{path}: exclude names {name!r:.80}", "name .jsonl files there")
    return tuple(given)


def _pruned(path: Path, kind: str, body: Mapping[str, Any]) -> int | None:
    """The bytes that it may take; None where it is left whole."""
    if "prune" not in body:
        return None
    _check(path, "prune.", body["prune"], {"bytes": (str, int)}, required=("bytes",))
    if kind not in ("datastore", "frozen-table"):
        raise InputError(f"{path}: a {kind} cannot be pruned", "leave [prune] out")
    try:
        return parse_size(str(body["prune"]["bytes"]))
    except UsageError as error:
        raise InputError(f"{path}: prune.bytes: {error}", error.hint) from error


def _path(source: str) -> Path:
    given, named = Path(source), FOLDER / f"{source}.toml"
    if given.suffix == ".toml" and given.is_file():
        return given
    if named.is_file():
        return named
    names = sorted(path.stem for path in FOLDER.glob("*.toml"))
    where = f"no recipe is in {FOLDER}/: give a file, or begin from the repository's artifacts/"
    raise InputError(f"there is no recipe {source}", meant(given.stem, names) if names else where)


def _check(
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
            hint = f"did you mean {where}{near[0]}?" if near else f"known: {known}"
            raise InputError(f"{path}: unknown key {where}{key}", hint)
        wanted = allowed[key]
        number = wanted is float and type(value) is int
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        if type(value) is int and abs(value) > LARGEST:
            raise InputError(f"{path}: {where}{key} is too large a number", "write a smaller one")
        if wanted is list and isinstance(value, list):
            wrong = [each for each in value if not isinstance(each, str)]
            if wrong:
                raise InputError(
                    f"{path}: {where}{key} names {wrong[0]!r:.80}", "write strings there"
                )
        if value == "":
            raise InputError(f"{path}: {where}{key} is empty", "name one, or leave it out")
        if type(value) not in kinds and not number:
            raise InputError(
                f"{path}: {where}{key} is {value!r:.80}", f"write a {_said(kinds[0])} there"
            )
    for key in required:
        if key not in table:
            raise InputError(f"{path} has no {where}{key}", "add it")


def _said(kind: type) -> str:
    names = {str: "string", int: "whole number", float: "number", bool: "true or false"}
    return names.get(kind, "table" if kind is dict else "list")


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """One line for every value that is not what it was."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            inner = f"{name}.{key}" if name else key
            yield from differences(before.get(key), now.get(key), inner)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (one, other) in enumerate(zip(before, now, strict=True), 1):
            yield from differences(one, other, f"{name} {at}")
    elif before != now:
        yield f"{name} is {_short(now)}, was {_short(before)}"


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 20 else text[:12] + "..."
