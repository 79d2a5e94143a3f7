"""How passes are run and drafts verified, as somebody asked for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ngramkit.choose import DrafterChoice, choose_drafter, given_drafter
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.specache.options import SpeCache
from ngramkit.errors import UsageError
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.sources import Given, Sources
from ngramkit.warming import meanwhile

if TYPE_CHECKING:
    from ngramkit.decode.profile import Profile


@dataclass(frozen=True)
class PreparedModel:
    """A model's tokenizer, and what loads the model, once."""

    tokenizer: TextTokenizer
    load: Callable[[], LanguageModel]

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

    def load_for(self, *choices: DrafterChoice) -> LanguageModel:
        """The model; what the drafters need is compiled meanwhile.

        Raises ArtifactError where transformers gives it other ids than its files.
        """
        meanwhile.begin(*(choice.spec.name for choice in choices if choice.made is None))
        model = self.load()
        meanwhile.wait()
        for choice in choices:
            for artifact in choice.opened:
                artifact.tokenizer.require(model.tokenizer.record, str(artifact.path))
        return model


@dataclass(frozen=True)
class PassOptions:
    """`budget`: draft nodes per pass; auto: as many as pay for their time on this machine, see
    `ngramkit.calibrate`; None: auto where the model was calibrated, else by the device. `verify`:
    tree or batch; None: tree where the model can. `engine`: auto, eager or static. `cache`: a
    SpeCache in place of the full one; then what is written is not the model's own. `device`,
    `dtype` and `device_map` as in load_model."""

    budget: int | Literal["auto"] | None = None
    verify: str | None = None
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    device_map: str | None = None
    cache: SpeCache | None = None

    def __post_init__(self) -> None:
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
            return PreparedModel(model.tokenizer, lambda: model)
        chosen = chosen_model(model)
        if chosen.why:
            reporter.note(f"model: {chosen.name} ({chosen.why})")
        where: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "device_map": self.device_map,
        }
        load = functools.cache(lambda: load_model(chosen.name, **where))
        return PreparedModel(load_tokenizer(chosen.name), load)

    def nodes(
        self, model: LanguageModel, reporter: Reporter = SILENT
    ) -> tuple[int | None, Profile | None]:
        """Draft nodes per pass, or the profile that decides; says where one was found.

        Raises UsageError for a budget below 1, and for auto without a profile.
        """
        from ngramkit.decode.profile import find_profile, profile_path
        from ngramkit.decode.verifiers import verify_mode

        if self.cache is not None:
            return 1, None
        budget, engine = self.budget, self.engine
        if isinstance(budget, int):
            if budget < 1:
                raise UsageError(f"budget must be at least 1, is {budget}", option="budget")
            return budget, None
        tree = verify_mode(model.model, self.verify) == "tree"
        profile = find_profile(model, engine) if tree else None
        if profile is not None:
            reporter.note(f"budget: auto ({profile_path(model, engine)})")
        elif budget == "auto" and not tree:
            raise UsageError(
                "budget=auto needs drafts verified as trees", "give a number", option="budget"
            )
        elif budget == "auto":
            which = "" if engine == "auto" else f" --engine {engine}"
            raise UsageError(
                f"{model.name} was not calibrated on this device with this engine",
                f"run: ngramkit calibrate {model.name}{which}",
                option="budget",
            )
        return None, profile
