"""`DraftSource`: what all of an engine's requests draft from, opened once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ngramkit.drafters.blend import Blend
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import DrafterSpec, drafter_entry, load_drafter
from ngramkit.drafters.sources import PastUse, open_given
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.model_tokens import Built
from ngramkit.engines.workspace import BlendSource, DrafterSource
from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import TokenizerRecord

LOG = logging.getLogger("ngramkit")
DraftSource = BlendSource | DrafterSource


def open_source(config: DraftConfig, vocabulary: int | None = None) -> DraftSource:
    """Opens the artifacts that `config` names, and says in the log what was taken.

    `vocabulary` is how many ids the engine's model knows: an artifact with more is another
    tokenizer's. Without artifacts it must be given, here or in `config`.

    Raises ArtifactError where an artifact cannot be opened or does not fit, UsageError where the
    drafter misses one or a tokenizer, NetworkError where the Hub cannot be reached.
    """
    spec = DrafterSpec.parse(config.drafter)
    vocabulary = config.vocabulary if vocabulary is None else vocabulary
    named = {
        "datastores": list(config.datastores),
        "frozen_table": config.frozen_table,
        "bigram": config.bigram,
        "unigram": config.unigram,
    }
    sources: dict[str, Any] = {
        role: [open_given(each).artifact for each in names]
        if isinstance(names, list)
        else open_given(names).artifact
        for role, names in named.items()
        if names
    }
    built = [Built(str(each.path), each.tokenizer) for each in _flat(sources)]
    tokenizer = _tokenizer(built, vocabulary)
    takes = drafter_entry(spec.name).sources
    if drafter_entry(spec.name).needs_evidence:
        LOG.warning("the drafter %s listens to the model, and engines tell it nothing", spec.name)
    for role in [*(role for role in sources if role not in takes)]:
        LOG.warning("%s is not used: the drafter %s takes none", role, spec.name)
    past = _past(config, tokenizer) if tokenizer and "past" in takes else None
    if config.history and "past" not in takes:
        LOG.warning("history is not used: the drafter %s takes none", spec.name)
    LOG.info("drafting with %s over %s", spec, _described(sources, config))

    def make() -> Any:
        given = {**sources, "past": past, "tokenizer": tokenizer}
        return load_drafter(spec.name, **given, **spec.options)

    first = make()
    known = tokenizer.vocabulary if tokenizer else (1 << 31) - 1
    source = BlendSource(first) if isinstance(first, Blend) else DrafterSource(make, known)
    source.built = built
    return source


class _AsItWas(PastRequests):
    """Past requests that no other process adds to: every rank of an engine finds the same."""

    def refresh(self) -> None: ...


def _past(config: DraftConfig, tokenizer: TokenizerRecord) -> PastRequests | None:
    if config.history is None:
        return None
    use = PastUse(Path(config.history), recorded=True)
    history = use.history(tokenizer)
    if history is None:
        raise ArtifactError(
            f"there is no history at {config.history}", "check the path, or leave history out"
        )
    return _AsItWas(history, background=False, read_only=True, forgetful=True)


def _flat(sources: dict[str, Any]) -> list[Artifact]:
    found: list[Artifact] = []
    for value in sources.values():
        found += value if isinstance(value, list) else [value]
    return found


def _tokenizer(built: list[Built], vocabulary: int | None) -> TokenizerRecord | None:
    """The artifacts' own, else one made up of the engine's vocabulary."""
    for each in built:
        known = each.tokenizer.vocabulary
        if vocabulary is not None and known > vocabulary:
            raise ArtifactError(
                f"{each.path} was built for the tokenizer of {each.tokenizer.id} "
                f"({known:,} tokens); the engine's model knows {vocabulary:,}",
                "build it with the model's own tokenizer",
            )
    if built:
        return built[0].tokenizer
    if vocabulary is None:
        return None
    return TokenizerRecord("the engine's model", vocabulary, f"engine-{vocabulary}")


def _described(sources: dict[str, Any], config: DraftConfig) -> str:
    names = [str(each.path) for each in _flat(sources)]
    names += [config.history] if config.history else []
    return ", ".join(names) or "the requests' own text alone"
