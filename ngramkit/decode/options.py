"""The options of decoding, named as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngramkit.basics.arguments import check_fields
from ngramkit.basics.errors import UsageError, hint_for_unknown, require_between, require_texts
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.chat import AUTO
from ngramkit.decode.placement import require_placement
from ngramkit.decode.sampling import Sampling
from ngramkit.decode.specache.options import SpeCache, cache_of
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.references import require_references
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.drafters.spec import MAX_BUDGET, DrafterSpec, require_not_made

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.reference_files import Reference

    Budget = int | Literal["auto"] | None

# transformers' own decoding methods: name -> arguments of `generate`.
GENERATE = "generate"
TRANSFORMERS_WAYS: dict[str, dict[str, Any]] = {
    GENERATE: {},
    "generate-lookup": {"prompt_lookup_num_tokens": 10},  # as in its documentation
}

COMPARED = "a comparison needs drafters that do not know the answer"
VERIFY_MODES = ("tree", "batch", "chain")

Show = Callable[[str, bool], None]  # a piece of text, and whether it was drafted


@dataclass(frozen=True)
class DecodeOptions:
    """The options of decoding, in Python and on the command line.

    Raises TypeError for wrong types and UsageError for invalid values or combinations.
    """

    model: str | Path | LanguageModel | None = None
    """A short name, a Hub id (ID@REVISION), a folder, PATH.gguf, hf:ID:FILE.gguf or a loaded model.
    Default: the model of `ngramkit use`."""
    _: KW_ONLY
    drafter: str | Drafter | Callable[[], Drafter] | None = None
    """NAME or NAME:OPTION=VALUE,..., a drafter, or a function that makes one. Default: blend."""
    artifacts: Sources | Sequence[Given] | Given = ()
    """What to draft from, in any order; the role of each follows from its kind. Default: all that
    fit under artifacts/."""
    datastores: Sequence[Given] = ()
    """Artifacts by role, in place of `artifacts`: folders, hf://USER/NAME@REVISION, URLs or opened
    artifacts."""
    frozen_table: Given | None = None
    bigram: Given | None = None
    unigram: Given | None = None
    history: str | Path | None = None
    """A folder of past requests, created if it is missing. Default: none are kept."""
    history_tokens: int = HISTORY_TOKENS
    """How many of the newest tokens of the history are searched."""
    store: bool = True
    """Whether finished requests are added to the history."""
    references: Sequence[Reference] = ()
    """Texts that the answers probably repeat: texts, paths of text files or token ids."""
    budget: Budget = None
    """The maximum of draft nodes per pass. "auto", the default, adapts it to measured pass times,
    so the number of passes varies; a number gives the same passes in every run."""
    verify: str | None = None
    """How drafts are verified: "tree", "batch" or "chain". Default: tree if the model can."""
    cache: SpeCache | Literal["full", "low-bit", "specache"] | None = None
    """A SpeCache in place of the full cache. It changes the text."""
    chat: bool = False
    """Whether each prompt is a user's turn in a chat template."""
    template: str | None = None
    """The name of the template; implies `chat`. Default: the model's own, else the one known for
    it."""
    system: str | None = None
    """The system message of a conversation."""
    max_new_tokens: int = 128
    stop: Sequence[str] = ()
    """Texts that end an answer; the token that completes one is the last."""
    temperature: float = 0.0
    """0 is greedy. temperature, top_k and top_p replace those of the model's generation config."""
    top_k: int = 0
    """Sample from this many of the most likely tokens; 0: from all."""
    top_p: float = 1.0
    """Sample from the most likely tokens up to this total probability."""
    seed: int = 0
    """The seed of sampling; the text is the same with and without drafts."""
    compare: bool = False
    """Also decode without drafts, and report the speed-up. `drafter` must be no object then."""
    device: str = "auto"
    """"cpu", "cuda" or "cuda:N"; "auto" takes CUDA if there is one."""
    dtype: str = "auto"
    """"float32", "float16" or "bfloat16"; "auto": bfloat16 on CUDA, float32 on the CPU."""
    device_map: str | None = None
    """Spread the layers over several devices as transformers does: "auto", "balanced", ..."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    show: Show | None = None
    """Called with each piece of accepted text and whether it was drafted, and with "" after each
    answer."""
    reporter: Reporter = NOTEBOOK_BARS
    """Receives progress and notes."""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_cache()
        self._check_budget()
        self._check_drafter()
        self.sampling  # noqa: B018 (raises)
        if self.verify not in (None, *VERIFY_MODES):
            raise UsageError(
                f"unknown verify mode {self.verify!r}", hint_for_unknown(self.verify, VERIFY_MODES)
            )
        require_placement(self.device, self.dtype, self.device_map)
        require_between("max_new_tokens", self.max_new_tokens, 1)
        if self.show is not None and not callable(self.show):
            raise UsageError(f"show must be a function, got {self.show!r:.60}", option="show")
        if self.system and self.chat_template is None:
            raise UsageError(
                "cannot use system: the prompt is not a conversation",
                "Add chat=True.",
                option=("system", "chat"),
            )
        require_texts("stop", self.stop)
        if "" in self.stop:
            raise UsageError("stop must be texts, got an empty one", option="stop")

    def _check_cache(self) -> None:
        if isinstance(self.cache, str):
            object.__setattr__(self, "cache", cache_of(self.cache, SpeCache()))
        elif self.cache is not None and not isinstance(self.cache, SpeCache):
            raise UsageError(
                f"cache must be a SpeCache or its name, got {self.cache!r:.60}", option="cache"
            )
        if self.specache is None:
            return
        guesses = self.specache.speculative == "drafter"
        names = ["references", "budget", "verify", "compare"]
        if not guesses:
            names += [*KIND_OF_ROLE, "history"]
        for name in names:
            if getattr(self, name):
                raise UsageError(
                    f"cannot use {name} with a SpeCache: it verifies no drafts",
                    f"Leave out {name}.",
                    option=name,
                )
        if not guesses and self.drafter not in (None, "none"):
            raise UsageError(
                "cannot verify drafts with a SpeCache: a drafter may only guess the next token",
                "Leave out the drafter, or add speculative=drafter.",
                option="speculative",
            )

    def _check_budget(self) -> None:
        if isinstance(self.budget, Integral):
            require_between("budget", self.budget, 1, MAX_BUDGET)
            object.__setattr__(self, "budget", int(self.budget))
        elif self.budget not in (None, "auto"):
            raise UsageError(
                f"budget must be a number of nodes or 'auto', got {self.budget!r:.60}",
                option="budget",
            )

    def _check_drafter(self) -> None:
        if self.compare:
            require_not_made(self.drafter, COMPARED)
        given: Any = () if self.drafter is None else self.drafter  # `generate` takes one per row
        for each in given if isinstance(given, list | tuple) else [given]:
            spec = DrafterSpec.parse(each)
            if len(self.references) and (spec.make is None or hasattr(each, "draft")):
                require_references(spec.name if spec.make is None else each)

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    @property
    def chat_template(self) -> str | None:
        """The name of the template; None: prompts are used as they are."""
        return self.template or (AUTO if self.chat else None)

    @property
    def specache(self) -> SpeCache | None:
        """The SpeCache, None for the full cache."""
        return self.cache if isinstance(self.cache, SpeCache) else None

    def sources(self) -> Sources:
        """Return the sources by role; raise as `given_sources`."""
        return given_sources(
            self.artifacts, datastores=self.datastores, frozen_table=self.frozen_table,
            bigram=self.bigram, unigram=self.unigram, history=self.history,
            history_tokens=self.history_tokens, store=self.store,
        )  # fmt: skip
