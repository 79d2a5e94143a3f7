"""How passes are run and drafts verified, as somebody asked for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ngramkit.choose import DrafterChoice, choose_drafter, given_drafter
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.runner import MOST_NODES, Runner
from ngramkit.decode.sampling import Sampling
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.task import Task
from ngramkit.decode.verifiers import require_known
from ngramkit.errors import UsageError, require_between
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.sources import Given, Sources
from ngramkit.warming import meanwhile


@dataclass(frozen=True)
class PreparedModel:
    """A model's tokenizer, what loads the model, once, and how its passes are to be run."""

    tokenizer: TextTokenizer
    load: Callable[[], LanguageModel]
    passes: PassOptions

    def choose(
        self,
        drafter: Any,
        artifacts: Sources | Sequence[Given] | Given = (),
        reporter: Reporter = SILENT,
    ) -> DrafterChoice:
        """As `choose_drafter`; `drafter` may be an object or a function of the caller's too."""
        record = self.tokenizer.record
        if drafter is not None and not isinstance(drafter, str):
            return given_drafter(drafter, record)
        return choose_drafter(drafter, record, artifacts, reporter=reporter, load_model=self.load)

    def task(
        self,
        choices: Sequence[DrafterChoice],
        max_new_tokens: int,
        sampling: Sampling,
        stop: Sequence[str],
        reporter: Reporter = SILENT,
    ) -> tuple[Task, list[DrafterChoice]]:
        """What the loaded model is to write, and the choices as they suit it. What the drafters
        need is compiled while the model loads.

        Raises ArtifactError where transformers gives the model other ids than its files, else as
        `PassOptions.runner`.
        """
        named = [choice.spec.name for choice in choices if choice.made is None]
        meanwhile.begin(*named, vocabulary=self.tokenizer.record.vocabulary)
        model = self.load()
        meanwhile.wait()
        for artifact in (each for choice in choices for each in choice.opened):
            artifact.tokenizer.require(model.tokenizer.record, str(artifact.path))
        runner = self.passes.runner(model, reporter)
        task = Task(model, runner, max_new_tokens, sampling, tuple(stop))
        return task, [choice.with_default("least_score", model.least_score) for choice in choices]


@dataclass(frozen=True)
class PassOptions:
    """`budget`: draft nodes per pass at most; auto, or None: as many as pay for their time on this
    machine, which is learnt from the passes, so that their number differs from run to run; a number
    gives the same passes each time. `verify`: tree, batch or chain; None: tree where the model can.
    `engine`: auto, eager or static. `cache`: a SpeCache in place of the full one; then what is
    written is not the model's own. `device`, `dtype`, `device_map` and `trust_remote_code` as in
    load_model."""

    budget: int | Literal["auto"] | None = None
    verify: str | None = None
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    device_map: str | None = None
    cache: SpeCache | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        require_known(self.engine, self.verify)
        if isinstance(self.budget, int):
            require_between("budget", self.budget, 1, MOST_NODES)
        if self.cache is None:
            return
        for name in ("budget", "verify"):
            if getattr(self, name) is not None:
                raise UsageError(f"{name} is for drafts, a SpeCache takes none", option=name)
        if self.engine == "static":
            raise UsageError("a SpeCache runs eagerly", "leave out engine=static", option="engine")

    def require_full_cache(self, what: str) -> None:
        """Raises UsageError, naming `what` cannot have it, where a SpeCache was asked for."""
        if self.cache is not None:
            raise UsageError(
                f"{what} keeps its full cache; a SpeCache is for one prompt at a time",
                "leave out the cache, or give a prompt",
                option=("cache", "prompt"),
            )

    def load(self, model: str | LanguageModel | None, reporter: Reporter = SILENT) -> LanguageModel:
        """The model, loaded where it is named; None: the chosen one, which is said."""
        return self.prepare(model, reporter).load()

    def prepare(
        self, model: str | LanguageModel | None, reporter: Reporter = SILENT
    ) -> PreparedModel:
        """The same, loaded when it is needed: what makes no sense is told before."""
        if isinstance(model, LanguageModel):
            return PreparedModel(model.tokenizer, lambda: model, self)
        chosen = chosen_model(model)
        if chosen.why:
            reporter.note(f"model: {chosen.name} ({chosen.why})")
        where: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "device_map": self.device_map,
            "trust_remote_code": self.trust_remote_code,
        }
        load = functools.cache(lambda: load_model(chosen.name, **where))
        tokenizer = load_tokenizer(chosen.name, trust_remote_code=self.trust_remote_code)
        return PreparedModel(tokenizer, load, self)

    def runner(self, model: LanguageModel, reporter: Reporter = SILENT) -> Runner:
        """Everything settled for a loaded model; says what budget holds."""
        return Runner.of(
            model.model,
            budget=self.budget,
            engine=self.engine,
            verify=self.verify,
            cache=self.cache,
            reporter=reporter,
        )
