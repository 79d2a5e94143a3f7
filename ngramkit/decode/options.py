"""The options of a request, in the command line's own words."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar

from ngramkit.basics.errors import UsageError, require_between, require_list, require_texts
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.public import plain_arguments, require_plain
from ngramkit.corpus.chat import AUTO
from ngramkit.decode.placement import require_mode, require_placement
from ngramkit.decode.sampling import Sampling
from ngramkit.decode.specache.options import SpeCache, cache_of, require_no_drafts
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.references import require_references
from ngramkit.drafters.registry import DrafterSpec
from ngramkit.drafters.sources import (
    HISTORY_TOKENS,
    Given,
    Sources,
    SourceWords,
    given_sources,
)

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.text import Reference

# transformers' own ways to write an answer, by name, and what its `generate` is given for them.
GENERATE = "generate"
TRANSFORMERS_WAYS: dict[str, dict[str, Any]] = {
    GENERATE: {},
    "generate-lookup": {"prompt_lookup_num_tokens": 10},  # as its documentation has it
}
MOST_NODES = 4096  # of a draft; attention to itself grows with their square

Show = Callable[[str, bool], None]  # a piece of text, and whether a draft held it
P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True)
class DecodeOptions:
    """The options of decoding, for Python and the command line alike.

    Raises UsageError for a value or a combination that makes no sense, before anything is loaded.
    """

    model: str | Path | LanguageModel | None = None
    """A short name, a Hub id (ID@REVISION), a folder, PATH.gguf, hf:ID:FILE.gguf or what
    `load_model` gave; None: as `basics.models.chosen_model`."""
    _: KW_ONLY
    drafter: str | Drafter | Callable[[], Drafter] | None = None
    """NAME or NAME:OPTION=VALUE,..., an object, or a function that makes one; None: blend."""
    artifacts: Sources | Sequence[Given] | Given = ()
    """What to draft from, in any order: their kinds say what they are for. Without these and the
    next four, what is found under artifacts/ and fits."""
    datastores: Sequence[Given] = ()
    """What to draft from by its role; each a folder, hf://USER/NAME@REVISION, a URL or an opened
    artifact."""
    frozen_table: Given | None = None
    bigram: Given | None = None
    unigram: Given | None = None
    history: str | Path | None = None
    """A folder of past requests, for the drafters that learn from them; made where there is none.
    None: nothing outlives the process."""
    history_tokens: int = HISTORY_TOKENS
    """How many of its newest tokens are searched."""
    store: bool = True
    """Whether finished requests join the history."""
    references: Sequence[Reference] = ()
    """What answers are likely to repeat: texts, paths of text files or token ids."""
    budget: int | Literal["auto"] | None = None
    """Draft nodes per pass at most. "auto" or None: as many as pay for their time on this machine,
    learnt from the passes, so that their number differs from run to run; a number gives the same
    passes each time."""
    verify: str | None = None
    """How drafts are verified: "tree", "batch" or "chain"; None: tree where the model can."""
    cache: SpeCache | Literal["full", "low-bit", "specache"] | None = None
    """A SpeCache in place of the full one; what is written is not the model's own then."""
    chat: bool = False
    """Whether each prompt is a user's turn, wrapped in a template."""
    template: str | None = None
    """The template's name; implies `chat`. None: the model's own, else the one known for it."""
    system: str | None = None
    """The system message of a conversation."""
    max_new_tokens: int = 128
    stop: Sequence[str] = ()
    """End with the token that completes one of these texts."""
    temperature: float = 0.0
    """0 is greedy. Sampling takes temperature, top_k and top_p from here; all else of the model's
    generation config applies in both cases."""
    top_k: int = 0
    """Keep this many of the likeliest tokens; 0: all."""
    top_p: float = 1.0
    """Keep the likeliest tokens up to this probability."""
    seed: int = 0
    """Seed of the sampling; it gives the same text with and without drafts."""
    compare: bool = False
    """Decode without drafts too, in turns, for the speed-up."""
    device: str = "auto"
    """"cpu", "cuda" or "cuda:N"; "auto": CUDA where there is one."""
    dtype: str = "auto"
    """"float32", "float16" or "bfloat16"; "auto": bfloat16 on CUDA, float32 on the CPU."""
    device_map: str | None = None
    """Spread the layers over several devices as transformers does: "auto", "balanced", ..."""
    trust_remote_code: bool = False
    """Run Python code that the model brings."""
    show: Show | None = None
    """Called with every piece of text as it is accepted and whether a draft held it, and with an
    empty piece after each answer."""
    reporter: Reporter = SILENT
    """Hears of progress and of what was chosen."""

    def __post_init__(self) -> None:
        require_plain(self)
        if isinstance(self.cache, str):
            object.__setattr__(self, "cache", cache_of(self.cache, SpeCache()))
        elif self.cache is not None and not isinstance(self.cache, SpeCache):
            raise UsageError(
                f"cache is {self.cache!r:.60}",
                "give an ngramkit.SpeCache, or a name",
                option="cache",
            )
        if self.show is not None and not callable(self.show):
            raise UsageError(f"show is {self.show!r:.60}", "give a function", option="show")
        self.sampling  # noqa: B018 (raises)
        require_mode(self.verify)
        require_placement(self.device, self.dtype, self.device_map)
        if isinstance(self.budget, Integral):
            require_between("budget", self.budget, 1, MOST_NODES)
            object.__setattr__(self, "budget", int(self.budget))
        elif self.budget not in (None, "auto"):
            raise UsageError(f"budget {self.budget!r} is no number of nodes", "give one, or auto")
        require_between("max_new_tokens", self.max_new_tokens, 1)
        if isinstance(self.drafter, str):
            DrafterSpec.parse(self.drafter)
        elif self.drafter is not None:
            given: Any = self.drafter  # `generate` takes one per row, too
            for each in given if isinstance(given, list | tuple) else [given]:
                require_drafter(each, or_maker=True)
        if self.system and self.chat_template is None:
            raise UsageError(
                "system needs a conversation", "give chat too", option=("system", "chat")
            )
        for name in ("references", "datastores"):
            require_list(name, getattr(self, name))
        require_texts("stop", self.stop)
        if "" in self.stop:
            raise UsageError("stop is empty", "leave it out", option="stop")
        self._require_sense_of_cache()
        if len(self.references):  # None is not chosen yet
            if isinstance(self.drafter, str):
                require_references(DrafterSpec.parse(self.drafter).name)
            elif hasattr(self.drafter, "draft"):  # a class that makes one, or an object
                require_references(self.drafter)

    def _require_sense_of_cache(self) -> None:
        if self.specache is None:
            return
        drafted_from = (*KIND_OF_ROLE, "history")
        guesses = self.specache.speculative == "drafter"  # at the next token, from all of these
        for name in ("budget", "verify", "compare", *(() if guesses else drafted_from)):
            if getattr(self, name):
                raise UsageError(f"{name} is for drafts, a SpeCache takes none", option=name)
        require_no_drafts(self.specache, self.drafter)
        if len(self.references):
            raise UsageError(
                "a SpeCache takes no drafts and no references",
                "leave them out",
                option="references",
            )

    @property
    def sampling(self) -> Sampling:
        """The rule that chooses tokens. Raises UsageError for what makes no sense."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    @property
    def chat_template(self) -> str | None:
        """The template's name; None: prompts are taken as they stand."""
        return self.template or (AUTO if self.chat else None)

    @property
    def specache(self) -> SpeCache | None:
        """The cache where it is not the full one."""
        return self.cache if isinstance(self.cache, SpeCache) else None

    def sources(self) -> Sources:
        """Return what to draft from, by its role.

        Raises UsageError where `artifacts` and a role are given, else as `Sources.of`.
        """
        return given_sources(
            self.artifacts,
            datastores=self.datastores,
            frozen_table=self.frozen_table,
            bigram=self.bigram,
            unigram=self.unigram,
            history=self.history,
            history_tokens=self.history_tokens,
            store=self.store,
        )


class LoadWords(TypedDict, total=False):
    """The keywords that say where a model runs."""

    device: str
    dtype: str
    device_map: str | None
    trust_remote_code: bool


class SamplingWords(TypedDict, total=False):
    """The keywords that say how the next token is chosen."""

    temperature: float
    top_k: int
    top_p: float
    seed: int


class PassWords(LoadWords, SourceWords, total=False):
    """The keywords of a verification pass and of its drafter's sources."""

    budget: int | Literal["auto"] | None
    verify: str | None


class BenchWords(PassWords, SamplingWords, total=False):
    """The keywords of a verification pass, its drafter's sources and sampling."""


def takes_words(
    _options: Callable[P, DecodeOptions], **defaults: Any
) -> Callable[[Callable[[S, DecodeOptions], R]], Callable[Concatenate[S, P], R]]:
    """Let a function of something and DecodeOptions be called with the options as keywords.

    @takes_words(DecodeOptions)
    def decode(prompts, options): ...

    decode("def main(", "demo", drafter="rest")

    `defaults` are words whose defaults differ for this function. Its signature names every word,
    for editors, type checkers and `help`; an unknown one is a TypeError that names the nearest.
    """
    parameters = inspect.signature(DecodeOptions).parameters

    def decorate(
        function: Callable[[S, DecodeOptions], R],
    ) -> Callable[Concatenate[S, P], R]:
        name = function.__qualname__.removesuffix(".__init__")
        first, *_ = inspect.signature(function).parameters.values()

        @functools.wraps(function)
        def call(*args: Any, **words: Any) -> R:
            if first.name in words:
                args = (words.pop(first.name), *args)
            rest, words = plain_arguments(name, parameters, args[1:], words)
            if not args:
                raise TypeError(f"{name}() misses its argument {first.name!r}")
            return function(args[0], DecodeOptions(*rest, **{**defaults, **words}))

        own = [
            word.replace(default=defaults.get(word.name, word.default))
            for word in parameters.values()
        ]
        call.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
        return call

    return decorate
