"""Recipes: build the artifact that a recipe describes, if it is missing or stale.

recipe.json records a build's resolved commits, fingerprints and parameters, also on the Hub, so any
machine can compare that copy with the recipe. Builds are byte-identical in any folder, with any
number of workers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError, InputError, hub_errors, require_between
from ngramkit.basics.kinds import KINDS
from ngramkit.basics.models import ModelRef
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted, size_text
from ngramkit.basics.untrusted import read_json
from ngramkit.builders.tasks import Executor, open_executor, require_executor
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import FORMAT_VERSION, build_id, is_private_corpus, read_manifest
from ngramkit.formats.opening import open_artifact_folder, verify_artifact
from ngramkit.formats.outputs import ARTIFACTS, RECIPE
from ngramkit.formats.replacing import clear_killed_run, replace_text
from ngramkit.formats.resumable_writer import recipe_text
from ngramkit.formats.safetensors import sha256_of
from ngramkit.gguf.model_folders import find_gguf
from ngramkit.hub.push import push as upload, require_allow_private
from ngramkit.recipe_files import Recipe, read_recipe
from ngramkit.remote.fetch import fetch, silence_client
from ngramkit.remote.publishing import require_out
from ngramkit.remote.url_cache import fetch_manifest_and_recipe, upload_text
from ngramkit.remote.urls import UrlFolder, as_path, as_url

Inputs = dict[str, Any]
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class RecipeResult(Result):
    recipe: str
    status: str  # "built", "would build" or "up to date"
    why: str
    artifact: str
    bytes: int | None = None
    destination: str | None = None
    revision: str | None = None  # the pushed commit


def build(
    recipe: str | Path | Recipe,
    out: str | Path = ARTIFACTS,
    *,
    push: bool = False,
    check: bool = False,
    allow_private: bool = False,
    workers: int | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
) -> RecipeResult:
    """Build `out`/NAME if it is missing or differs from the recipe; `out` may be a URL.

    `recipe`: a file, or the name of one in artifacts/. `check` builds nothing. `push` verifies and
    uploads, private artifacts only with `allow_private`. `workers` bounds the threads; `executor`,
    `ray_address`: as in `tokenize`.

    Raises InputError for an invalid recipe or missing destination, ArtifactError for another
    tokenizer, and as `push`.
    """
    require_executor(executor, ray_address)
    wanted = recipe if isinstance(recipe, Recipe) else read_recipe(str(recipe))
    if push and wanted.destination is None:
        raise InputError(
            f"cannot push {wanted.name}: its recipe has no destination",
            "Add destination, or leave out push.",
            option="push",
        )
    url = as_url(out)
    root = as_path(out) if url is None else ARTIFACTS
    place = str(root / wanted.name) if url is None else f"{url.rstrip('/')}/{wanted.name}"
    if not check:
        require_out(place, force=True)
    resolved = resolve(wanted, reporter)
    if push:
        is_private = is_private_corpus(resolved.inputs.get("corpus", {}))
        require_allow_private(wanted.name, is_private, allow_private)
    verdict = _judge_place_then_hub(resolved, place, hub=push)
    status, size = "up to date", None
    if verdict.stale and check:
        status = "would build"
    elif verdict.stale:
        reporter.note(f"{wanted.name}: {verdict.why}")
        with open_executor(executor, ray_address, workers, reporter) as runner:
            artifact = build_resolved(
                resolved, root, place, workers=workers, executor=runner, reporter=reporter
            )
        status, size = "built", artifact.manifest.bytes
    destination = revision = None
    if push and not check and wanted.destination is not None and not verdict.hub_only:
        path = fetch(place, reporter=reporter).path
        for _ in verify_artifact(path):
            pass  # it raises at the first breach, so nothing unproven is published
        pushed = upload(path, wanted.destination, allow_private=allow_private, reporter=reporter)
        destination, revision = pushed.repository, pushed.revision
        sent = f"{counted(pushed.files, 'file')}, {size_text(pushed.bytes)} sent to {pushed.url}"
        reporter.note(f"{wanted.name}: {sent}")
    return RecipeResult(wanted.name, status, verdict.why, place, size, destination, revision)


# Resolving, judging and building a recipe.


@dataclass(frozen=True)
class Verdict:
    stale: bool
    why: str
    hub_only: bool = False  # up to date at the destination, missing or stale on this machine


@dataclass(frozen=True)
class Resolved:
    recipe: Recipe
    tokenizer: TextTokenizer
    corpus: AnyCorpus | None  # None for a model's table
    inputs: Inputs  # everything that decides the bytes, with branches resolved to commits


def resolve(recipe: Recipe, reporter: Reporter = SILENT) -> Resolved:
    """Load tokenizer and corpus.

    Raises UsageError for wrong parameters, ArtifactError for another fingerprint.
    """
    _require_parameters(recipe)
    tokenizer = load_tokenizer(recipe.model, recipe.revision)
    record = tokenizer.record
    if recipe.fingerprint not in (None, record.fingerprint):
        raise ArtifactError(
            f"the fingerprint of {recipe.model} must be {recipe.fingerprint} by the recipe "
            f"{recipe.name}, got {record.fingerprint[:12]}",
            "Pin model.revision, or correct model.fingerprint.",
        )
    inputs: Inputs = {
        "version": FORMAT_VERSION,
        "kind": recipe.kind,
        "tokenizer": {"id": record.id, "fingerprint": record.fingerprint},
        "parameters": recipe.parameters,
    }
    if recipe.prune is not None:
        inputs["prune"] = {"bytes": recipe.prune}
    if KINDS[recipe.kind].of_model:
        return Resolved(recipe, tokenizer, None, {**inputs, "weights": _digest_of_weights(recipe)})
    corpus = recipe.open_corpus(reporter)
    return Resolved(recipe, tokenizer, corpus, {**inputs, "corpus": corpus.record()})


def _require_parameters(recipe: Recipe) -> None:
    """Raise early what the builder would raise after the text is tokenised or the model loaded."""
    from ngramkit.builders.frozen import FrozenParameters
    from ngramkit.builders.model_table import require_bigram_options

    given = {name: value for name, value in recipe.parameters.items() if name != "eos"}
    if recipe.kind == "datastore":
        require_between("shard_tokens", given["shard_tokens"], 2)
    elif recipe.kind == "frozen-table":
        FrozenParameters(**given).validate()
    else:
        del given["dtype"]
        require_bigram_options(**given)


def _digest_of_weights(recipe: Recipe) -> str:
    model = ModelRef.of(recipe.model, recipe.revision)
    if Path(model.source).is_dir():
        folder = Path(model.source)
        files = [*folder.glob("*.safetensors")] or folder.glob("pytorch_model*.bin")
        return build_id({file.name: sha256_of(file) for file in sorted(files)})
    if model.is_gguf:
        return sha256_of(find_gguf(model))
    from huggingface_hub import HfApi

    with hub_errors(model.source, "model"):
        return str(HfApi().model_info(model.source, revision=model.revision).sha)


def _judge_place_then_hub(resolved: Resolved, place: str, *, hub: bool) -> Verdict:
    if as_url(place) is None:
        verdict = judge_staleness(resolved, Path(place))
        if not verdict.stale:
            verdict = _judge_files(verdict, lambda: open_artifact_folder(place))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path, there = Path(folder) / resolved.recipe.name, UrlFolder.at(place, "out")
            fetch_manifest_and_recipe(there, path)
            verdict = judge_staleness(resolved, path)
            verdict = replace(verdict, why=verdict.why.replace(str(path), place))
            if not verdict.stale:
                files = read_manifest(path).files
                verdict = _judge_files(verdict, lambda: there.require_listed(files))
    destination = resolved.recipe.destination
    if not verdict.stale or not hub or destination is None:
        return verdict
    there = _hub_recipe(destination)
    if there is not None and not any(differing_inputs(there.get("inputs"), resolved.inputs)):
        return Verdict(False, f"hf://{destination}", hub_only=True)
    return verdict


def _judge_files(verdict: Verdict, require_whole: Callable[[], object]) -> Verdict:
    try:
        require_whole()
    except ArtifactError as error:
        return Verdict(True, str(error))
    return verdict


def judge_staleness(resolved: Resolved, path: Path) -> Verdict:
    clear_killed_run(path)
    if not path.exists():
        return Verdict(True, "missing")
    made_of = _read_made_of(path / RECIPE)
    try:
        manifest = read_manifest(path)
    except ArtifactError:
        made_of = None
    if made_of is None:
        return Verdict(True, f"{path} was not built by this recipe")
    if made_of.get("build") != manifest.build:
        return Verdict(True, f"{path} was built again otherwise")
    changed = next(differing_inputs(made_of.get("inputs"), resolved.inputs), None)
    return Verdict(True, changed) if changed else Verdict(False, str(path))


def _hub_recipe(destination: str) -> Any:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        GatedRepoError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
    )

    silence_client()
    with hub_errors(destination):
        try:
            path = hf_hub_download(destination, RECIPE, repo_type="dataset")
        except GatedRepoError:  # a kind of RepositoryNotFoundError, but the repository is there
            raise
        except (RemoteEntryNotFoundError, RepositoryNotFoundError):
            return None
    made_of = _read_made_of(Path(path))
    if made_of is None or not isinstance(made_of.get("inputs"), dict):
        raise ArtifactError(f"cannot read {RECIPE} of {destination}", "Push it again.")
    return made_of


def _read_made_of(path: Path) -> Any:
    try:
        body = read_json(path)
    except (ArtifactError, OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def build_resolved(
    resolved: Resolved,
    root: Path,
    place: str | None = None,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    reporter: Reporter = SILENT,
) -> Artifact:
    """Build the recipe at `place`, a path or a URL (default: `root`/NAME); replace what is there.

    Intermediate artifacts are in `root`. A killed build continues.
    """
    place = place or str(root / resolved.recipe.name)
    options = {"recipe": resolved.inputs, "reporter": reporter, "force": True}
    if resolved.corpus is None:
        artifact = _build_bigram(resolved, place, options)
    else:
        running = {"workers": workers, "executor": executor}
        artifact = _build_from_corpus(resolved, resolved.corpus, root, place, running, options)
    # A new folder holds its recipe already; nothing was built if only recipe.json differed.
    text = recipe_text(artifact.manifest.build, resolved.inputs)
    if as_url(place) is not None:
        upload_text(UrlFolder.at(place), RECIPE, text)
    elif judge_staleness(resolved, Path(place)).stale:
        replace_text(Path(place) / RECIPE, text)
    return artifact


def _build_from_corpus(
    resolved: Resolved,
    corpus: AnyCorpus,
    root: Path,
    place: str,
    running: dict[str, Any],
    options: dict[str, Any],
) -> Artifact:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.builders.prune_by_worth import prune_artifact
    from ngramkit.builders.tokens import existing_or_default_store_path, tokenize, tokens_plan

    parameters = dict(resolved.recipe.parameters)
    eos = parameters.pop("eos")
    plan = tokens_plan(corpus, resolved.tokenizer, eos=eos)
    tokens = existing_or_default_store_path(resolved.recipe.model, plan, root)
    reporter = options["reporter"]
    store = tokenize(
        corpus, resolved.tokenizer, tokens, eos=eos, **running, reporter=reporter, force=True
    )
    make: Any = build_datastore if resolved.recipe.kind == "datastore" else build_frozen
    if resolved.recipe.prune is None:
        built: Artifact = make(store, place, **running, **parameters, **options)
        return built
    whole_options = {**options, "recipe": None}
    whole = root / f"{resolved.recipe.name}-whole"
    artifact = make(store, whole, **running, **parameters, **whole_options)
    return prune_artifact(artifact, place, resolved.recipe.prune, **options)


def _build_bigram(resolved: Resolved, place: str, options: dict[str, Any]) -> Artifact:
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.decode.load import load_model

    recipe, weights = resolved.recipe, str(resolved.inputs["weights"])
    # The commit, because the branch may have moved.
    revision = weights if COMMIT.fullmatch(weights) else recipe.revision
    parameters = dict(recipe.parameters)
    loaded = load_model(recipe.model, revision=revision, dtype=parameters.pop("dtype"))
    return build_model_bigram(loaded.model, loaded.tokenizer, place, **parameters, **options).table


def differing_inputs(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            inner = f"{name}.{key}" if name else key
            yield from differing_inputs(before.get(key), now.get(key), inner)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True), 1):
            yield from differing_inputs(old, new, f"{name} {number}")
    elif before != now:
        yield f"{name} is {_shorten(now)}, was {_shorten(before)}"


def _shorten(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 20 else text[:12] + "..."
