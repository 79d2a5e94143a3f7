"""Recipes to artifacts: builds what is missing or stale, and says why.

What an artifact was built from stands in its recipe.json: the resolved commits, fingerprints and
parameters. It goes to the Hub with the artifact, so a machine that has nothing yet can tell whether
the Hub's copy is still that of the recipe. Two builds give the same bytes in any folder, with any
number of workers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.errors import ArtifactError
from ngramkit.executors.base import Executor
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.container import sha256_of
from ngramkit.formats.files import read_plain
from ngramkit.formats.json_text import read_json
from ngramkit.formats.manifest import VERSION, build_id, read_manifest
from ngramkit.formats.outputs import RECIPE
from ngramkit.formats.replacing import tidy
from ngramkit.formats.writer import recipe_text, write_text
from ngramkit.gguf.source import find_gguf
from ngramkit.hub import quiet
from ngramkit.hub_errors import hub_errors
from ngramkit.models import resolve_model, split_revision
from ngramkit.progress import SILENT, Reporter
from ngramkit.recipe_files import Recipe, differences

if TYPE_CHECKING:
    from ngramkit.corpus.open import AnyCorpus
    from ngramkit.corpus.tokenizer import TextTokenizer

Inputs = dict[str, Any]
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Verdict:
    """Whether a recipe must be built, and what differs or where the finished one is."""

    stale: bool
    why: str


@dataclass(frozen=True)
class Resolved:
    """A recipe with what it names: opened once, and used for judging and for building."""

    recipe: Recipe
    tokenizer: TextTokenizer
    corpus: AnyCorpus | None  # None for a model's table
    inputs: Inputs  # everything that decides the bytes, with branches resolved to commits


def resolve(recipe: Recipe, reporter: Reporter = SILENT) -> Resolved:
    """Loads the tokenizer and opens the corpus.

    Raises ArtifactError where the tokenizer is not the one whose fingerprint the recipe gives, else
    what opening the corpus and the tokenizer raises.
    """
    from ngramkit.corpus.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(recipe.model, recipe.revision)
    record = tokenizer.record
    if recipe.fingerprint not in (None, record.fingerprint):
        raise ArtifactError(
            f"the tokenizer of {recipe.model} is {record.fingerprint[:12]}, not "
            f"{recipe.fingerprint} as the recipe {recipe.name} says",
            "pin model.revision, or correct model.fingerprint",
        )
    inputs: Inputs = {
        "version": VERSION,
        "kind": recipe.kind,
        "tokenizer": {"id": record.id, "fingerprint": record.fingerprint},
        "parameters": recipe.parameters,
    }
    if recipe.prune is not None:
        inputs["prune"] = {"bytes": recipe.prune}
    if recipe.kind == "model-bigram":
        return Resolved(recipe, tokenizer, None, {**inputs, "weights": _weights(recipe)})
    corpus = recipe.open_corpus(reporter)
    return Resolved(recipe, tokenizer, corpus, {**inputs, "corpus": corpus.record()})


def _weights(recipe: Recipe) -> str:
    """The Hub's commit, or a digest of a folder's files."""
    source = resolve_model(recipe.model)
    if Path(source).is_dir():
        files = sorted(Path(source).glob("*.safetensors"))
        return build_id({file.name: sha256_of(file) for file in files})
    gguf = find_gguf(recipe.model, recipe.revision)
    if gguf is not None:
        return sha256_of(gguf)
    from huggingface_hub import HfApi

    with hub_errors(source, "model"):
        revision = split_revision(recipe.model, recipe.revision)[1]
        return str(HfApi().model_info(source, revision=revision).sha)


def judge(resolved: Resolved, root: Path, *, hub: bool = False) -> Verdict:
    """Looks at `root`/NAME and, if `hub`, at the recipe's destination."""
    recipe, inputs = resolved.recipe, resolved.inputs
    path = root / recipe.name
    local = _judge_folder(path, inputs)
    if not local.stale or not hub or recipe.destination is None:
        return local
    there = _hub_recipe(recipe.destination)
    if there is not None and not any(differences(there.get("inputs"), inputs)):
        return Verdict(False, f"hf://{recipe.destination}")
    return local


def _judge_folder(path: Path, inputs: Inputs) -> Verdict:
    tidy(path)
    if not path.exists():
        return Verdict(True, "missing")
    made_of = _made_of(path / RECIPE)
    try:
        manifest = read_manifest(path)
    except ArtifactError:
        made_of = None
    if made_of is None:
        return Verdict(True, f"{path} was not built by this recipe")
    if made_of.get("build") != manifest.build:
        return Verdict(True, f"{path} was built again otherwise")
    changed = next(differences(made_of.get("inputs"), inputs), None)
    return Verdict(True, changed) if changed else Verdict(False, str(path))


def _hub_recipe(destination: str) -> Any:
    """What the recipe.json at the destination says; None where there is none yet."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        GatedRepoError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
    )

    quiet()
    with hub_errors(destination):
        try:
            path = hf_hub_download(destination, RECIPE, repo_type="dataset")
        except GatedRepoError:  # a kind of RepositoryNotFoundError, but the repository is there
            raise
        except (RemoteEntryNotFoundError, RepositoryNotFoundError):
            return None
    found = _made_of(Path(path))
    if found is None or not isinstance(found.get("inputs"), dict):
        raise ArtifactError(f"{RECIPE} of {destination} is no recipe's record", "push it again")
    return found


def _made_of(path: Path) -> Any:
    """The content of a recipe.json; None where it cannot be read."""
    try:
        body = read_json(path)
    except (ArtifactError, OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def build(
    resolved: Resolved,
    root: Path,
    *,
    path: Path | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    reporter: Reporter = SILENT,
) -> Artifact:
    """Builds the recipe at `path` (default: `root`/NAME), in place of what is there.

    In `root` is what it is made from, a token store say. `workers` bounds the threads, not the
    bytes; `executor` runs the tasks, of all but a model's table. A killed build goes on where it
    was.
    """
    path = path or root / resolved.recipe.name
    options = {"recipe": resolved.inputs, "reporter": reporter, "force": True}
    if resolved.corpus is None:
        artifact = _build_bigram(resolved, path, options)
    else:
        running = {"workers": workers, "executor": executor}
        artifact = _build_from_corpus(resolved, resolved.corpus, root, path, running, options)
    text = recipe_text(artifact.manifest.build, resolved.inputs)
    if not _says(path / RECIPE, text):  # the artifact itself was up to date
        write_text(path / RECIPE, text)
    return artifact


def _says(path: Path, text: str) -> bool:
    try:
        return read_plain(path, len(text.encode())).decode() == text
    except (ArtifactError, OSError, ValueError):
        return False


def _build_from_corpus(
    resolved: Resolved,
    corpus: AnyCorpus,
    root: Path,
    path: Path,
    running: dict[str, Any],
    options: dict[str, Any],
) -> Artifact:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.builders.prune import prune
    from ngramkit.builders.tokens import build_tokens, default_path, tokens_plan

    parameters = dict(resolved.recipe.parameters)
    eos = parameters.pop("eos")
    plan = tokens_plan(corpus, resolved.tokenizer, eos=eos)
    store = build_tokens(
        corpus,
        resolved.tokenizer,
        root / default_path(resolved.recipe.model, plan).name,
        eos=eos,
        **running,
        reporter=options["reporter"],
    )
    make: Any = build_datastore if resolved.recipe.kind == "datastore" else build_frozen
    if resolved.recipe.prune is None:
        built: Artifact = make(store, path, **running, **parameters, **options)
        return built
    whole_options = {**options, "recipe": None}
    whole = root / f"{path.name}-whole"
    artifact = make(store, whole, **running, **parameters, **whole_options)
    return prune(artifact, path, resolved.recipe.prune, **options)


def _build_bigram(resolved: Resolved, path: Path, options: dict[str, Any]) -> Artifact:
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.decode.load import load_model

    recipe, weights = resolved.recipe, str(resolved.inputs["weights"])
    # The commit in place of a branch, which may have moved since.
    revision = weights if COMMIT.fullmatch(weights) else recipe.revision
    parameters = dict(recipe.parameters)
    loaded = load_model(recipe.model, revision=revision, dtype=parameters.pop("dtype"))
    return build_model_bigram(loaded.model, loaded.tokenizer, path, **parameters, **options).table
