"""The sources of a drafter as the caller gives them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_fields
from ngramkit.basics.errors import UsageError, require_list
from ngramkit.basics.kinds import ROLES, a_kind
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import ANOTHER_HISTORY, TokenizerRecord, record_of
from ngramkit.remote.urls import local_folder

if TYPE_CHECKING:
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.history import History


Given = str | Path | Artifact  # a folder, hf://USER/NAME@REVISION, a URL, or opened


@dataclass(frozen=True)
class PastUse:
    """How a drafter uses past requests.

    `path`: the history's local folder (None: in memory). `tokens`: how many of its newest are
    searched. `store`: add finished requests; without `prompts` only their outputs. `recorded`: for
    replays and measurements: the folder is not changed, nothing depends on timing. `grows`:
    remember requests even without a history.
    """

    path: Path | None = None
    tokens: int = HISTORY_TOKENS
    store: bool = True
    recorded: bool = False
    prompts: bool = True
    grows: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.path is not None:
            object.__setattr__(self, "path", local_folder("history", self.path))

    def require_usable(self, tokenizer: TokenizerRecord) -> None:
        """Raise as `history` for an existing folder, before anything is created.

        Raises OSError if requests cannot be added: an answer would be lost for it.
        """
        if self.path is not None and os.path.lexists(self.path):
            history = self.history(tokenizer)
            if history is not None and self.store and not self.recorded:
                history.log.open_file("r+b").close()

    def history(self, tokenizer: TokenizerRecord) -> History | None:
        """Open the history, or create one unless it would stay empty.

        Raises ArtifactError for another kind or tokenizer.
        """
        from ngramkit.formats.history import History

        if self.path is None or (self.recorded and not self.path.exists()):
            return None
        if not self.recorded:
            return History.at(self.path, tokenizer)
        history = History.open(self.path)
        history.tokenizer.require(tokenizer, str(self.path), ANOTHER_HISTORY)
        return history

    def open(self, tokenizer: TokenizerRecord, *, forgetful: bool = False) -> PastRequests:
        """Open the past requests for a drafter; with `forgetful` none are added."""
        from ngramkit.drafters.past_requests import PastRequests

        tokenizer = record_of(tokenizer)
        return PastRequests(
            self.history(tokenizer),
            tokenizer=tokenizer,
            capacity=self.tokens,
            background=not self.recorded,
            prompts=self.prompts,
            read_only=self.recorded,
            forgetful=forgetful or not self.store,
        )


@dataclass(frozen=True)
class Sources:
    """Artifacts by role, and past requests. Without artifacts, `choose_drafter` searches."""

    datastores: Sequence[Given] = ()
    frozen_table: Given | None = None
    bigram: Given | None = None
    unigram: Given | None = None
    past: PastUse = field(default_factory=PastUse)

    def __post_init__(self) -> None:
        require_list("datastores", self.datastores)
        object.__setattr__(self, "datastores", tuple(self.datastores))
        if not isinstance(self.past, PastUse):
            raise UsageError(f"past must be a PastUse, got {self.past!r:.60}", option="past")

    @classmethod
    def of(cls, given: Sources | Sequence[Given] | Given) -> Sources:
        """Sort artifacts into roles by their kinds.

        Raises UsageError for too many artifacts of a role or an unused kind, ArtifactError for a
        missing artifact.
        """
        from ngramkit.remote.fetch import fetch_artifact

        if isinstance(given, Sources):
            return given
        sources: Any = [given] if isinstance(given, str | Path | Artifact) else given
        require_list("artifacts", sources)
        by_role: dict[str, list[Artifact]] = {}
        for source in sources:
            artifact = fetch_artifact(source)
            if artifact.kind not in ROLES:
                raise UsageError(
                    f"{artifact.where} must be a {', '.join(ROLES)}, got {a_kind(artifact.kind)}"
                )
            by_role.setdefault(ROLES[artifact.kind], []).append(artifact)
        chosen: dict[str, Any] = {}
        for role, artifacts in by_role.items():
            if role != "datastores" and len(artifacts) > 1:
                raise UsageError(
                    f"{role} must be one artifact, got {len(artifacts)}", option="artifacts"
                )
            chosen[role] = artifacts if role == "datastores" else artifacts[0]
        return cls(**chosen)

    def recorded(self) -> Sources:
        """Return the sources for requests that are replayed or measured."""
        return replace(self, past=replace(self.past, recorded=True))


def given_sources(
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
) -> Sources:
    """Return sources from `artifacts` in any order or from artifacts by role.

    Raises UsageError for both, and as `Sources.of`.
    """
    past = PastUse(None if history is None else Path(history), history_tokens, store=store)
    named = Sources(
        datastores=datastores,
        frozen_table=frozen_table,
        bigram=bigram,
        unigram=unigram,
        past=past,
    )
    if isinstance(artifacts, Sequence) and not len(artifacts):
        return named
    if replace(named, past=PastUse()) != Sources():
        raise UsageError(
            "artifacts must be the only parameter with artifacts, got others too",
            "Give all of them as artifacts.",
            option="artifacts",
        )
    if isinstance(artifacts, Sources) and history is None:
        return artifacts
    return replace(Sources.of(artifacts), past=past)
