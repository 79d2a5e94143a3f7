"""The source that an engine's requests draft from, checked against the engine's model.

An artifact of another tokenizer costs speed and nothing shows it, so it is refused.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import ArtifactError, require_between
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import drafter_entry
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.engines.blend_source import BlendSource
from ngramkit.engines.config import (
    KEY_RANGES,
    DraftConfig,
    existing_history,
    require_config,
)
from ngramkit.engines.drafter_requests import DrafterSource
from ngramkit.engines.growing_history import GrowingHistory
from ngramkit.engines.request_texts import Encode
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import (
    TokenizerRecord,
    encode_probes,
    first_difference,
    text_encoded_differently,
)
from ngramkit.remote.fetch import fetch_artifact

LOG = logging.getLogger("ngramkit")
DraftSource = BlendSource | DrafterSource


def open_source(
    config: DraftConfig,
    vocabulary: int | None = None,
    *,
    tokenizer: TokenizerRecord | None = None,
    writes: bool = True,
) -> DraftSource:
    """Open the artifacts and the history that `config` names.

    `vocabulary`: ids of the engine's model, needed without sources, here or in `config`.
    `tokenizer`: the engine's own, for a new history. `writes`: this rank, only one of all, writes
    the history.

    Raises ArtifactError if an artifact cannot be opened or has other ids, UsageError for a missing
    source or tokenizer, NetworkError if the Hub cannot be reached, TypeError for other types.
    """
    require_config(config)
    if vocabulary is not None:
        vocabulary = check_type("vocabulary", vocabulary, [int])
        require_between("vocabulary", vocabulary, *KEY_RANGES["vocabulary"])
    config.require_sources()
    spec = DrafterSpec.parse(config.drafter)
    entry = drafter_entry(spec.name)
    opened = {
        role: [fetch_artifact(name) for name in names] for role, names in config.artifacts.items()
    }
    artifacts = [artifact for of_role in opened.values() for artifact in of_role]
    sources: dict[str, Any] = {
        role: of_role if role == "datastores" else of_role[0] for role, of_role in opened.items()
    }
    vocabulary = config.vocabulary if vocabulary is None else vocabulary
    kept = existing_history(config)
    compared = [] if kept is None else [kept]
    record = _tokenizer_of_engine([*artifacts, *compared], vocabulary, tokenizer)
    if entry.needs_evidence:
        LOG.warning("the drafter %s needs evidence, which engines do not give", spec.name)
    roles = [*sources, "history"] if config.history else [*sources]
    for role in roles:
        if not entry.uses(role):
            LOG.warning("%s is not used: the drafter %s does not draft from it", role, spec.name)
    history = None
    if config.history and record is not None and entry.uses("history"):
        history = GrowingHistory(config, record, stores=config.store, writes=writes)
    names = [str(each.path) for each in artifacts]
    if config.history:
        names.append("requests in memory" if config.history is True else config.history)
    LOG.info("drafting with %s over %s", spec, ", ".join(names) or "only the requests' own text")
    if history is not None and history.stores and writes:
        LOG.warning("%s", history.notice)

    def make(past: PastRequests | None = None) -> Any:
        given = {**sources, "past": past, "tokenizer": record}
        return load_drafter(spec.name, **given, **spec.options)

    first = make(None if history is None else history.past(""))
    ids = record.vocabulary if record else (1 << 31) - 1
    source = BlendSource(first) if isinstance(first, Blend) else DrafterSource(make, ids)
    source.artifacts, source.history = artifacts, history
    source.compared = [each for each in compared if each.tokenizer.encodes is not None]
    return source


def _tokenizer_of_engine(
    artifacts: Sequence[Artifact], vocabulary: int | None, engine: TokenizerRecord | None
) -> TokenizerRecord | None:
    if vocabulary is not None:
        require_known_ids(artifacts, vocabulary)
    if artifacts:
        return artifacts[0].tokenizer
    if engine is not None or vocabulary is None:
        return engine
    return TokenizerRecord.unknown(vocabulary)


def require_known_ids(artifacts: Sequence[Artifact], vocabulary: int) -> None:
    """Raise ArtifactError if an artifact has ids beyond `vocabulary`."""
    for artifact in artifacts:
        record = artifact.tokenizer
        if record.vocabulary > vocabulary:
            raise ArtifactError(
                f"cannot use {artifact.path}: it was built for the tokenizer of {record.id} "
                f"({record.vocabulary:,} tokens), and the engine's model has {vocabulary:,}",
                "Build it with the model's own tokenizer.",
            )


def require_same_encoding(artifacts: Sequence[Artifact], tokenizer: Any) -> None:
    """Raise ArtifactError, naming a text, if an artifact's tokenizer encodes it differently.

    `tokenizer`: a fast one of transformers, or a function from text to ids without BOS; for others
    a warning is logged.
    """
    if not artifacts:
        return
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None and not inspect.isroutine(tokenizer):
        LOG.warning(
            "the engine gives no tokenizer: only the number of ids of %s was compared",
            ", ".join(str(artifact.path) for artifact in artifacts),
        )
        return
    encode: Encode = tokenizer if backend is None else partial(_encode_text, backend)
    for artifact in artifacts:
        path, record = artifact.path, artifact.tokenizer
        if record.encodes is None:
            LOG.warning("%s is of an older format: only its number of ids was compared", path)
            continue
        text = first_difference(record.encodes, encode)
        if text is not None:
            raise ArtifactError(
                f"cannot use {path}: it was built for the tokenizer of {record.id}, and the "
                f"engine's model encodes {text!r} differently",
                "Build it with the model's own tokenizer.",
            )
        if backend is not None:
            vocabulary = backend.get_vocab(with_added_tokens=True)
            differs = text_encoded_differently(record.encodes, encode_probes(vocabulary, encode))
            if differs:  # for example, tokens were added
                LOG.warning("%s and the engine's model: %s", path, differs)


def engine_record(tokenizer: Any, vocabulary: int | None) -> TokenizerRecord | None:
    """Return the record of a fast tokenizer; None for others, or more ids than the model has."""
    from ngramkit.corpus.tokenizer import tokenizer_digests

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    found = tokenizer_digests(backend)
    if vocabulary is not None and found.vocabulary > vocabulary:
        return None
    eos = getattr(tokenizer, "eos_token_id", None)
    name = str(getattr(tokenizer, "name_or_path", "")) or "the engine's model"
    return TokenizerRecord(id=name, eos=eos if type(eos) is int else None, **found._asdict())


def _encode_text(backend: Any, text: str) -> Sequence[int]:
    ids: Sequence[int] = backend.encode(text, add_special_tokens=False).ids
    return ids


def load_engine_tokenizer(name: str, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Load a tokenizer (Hub id or folder) by transformers; log errors and return None.

    Its own code runs only with `trust_remote_code`.
    """
    try:
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(
            name, trust_remote_code=trust_remote_code, **options
        )
    except Exception as error:  # whatever a tokenizer's own code raises
        LOG.warning("cannot load the tokenizer %s: %s", name, error)
        return None
