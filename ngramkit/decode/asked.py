"""The keywords of `ngramkit.decode`: their types, and what they are where they are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ngramkit.decode.load import LanguageModel
from ngramkit.decode.pass_options import PassOptions
from ngramkit.decode.references import Reference, require_use
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.specache.decoding import require_no_drafts
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.errors import UsageError
from ngramkit.progress import SILENT, Reporter
from ngramkit.sources import Given, Sources

Model = str | LanguageModel | None
Show = Callable[[str, bool], None]  # a piece of text, and whether a draft held it


class Options(TypedDict, total=False):
    """The keywords of `decode`."""

    drafter: str | Drafter | Callable[[], Drafter] | None
    artifacts: Sources | Sequence[Given] | Given
    template: str | None
    system: str | None
    max_new_tokens: int
    stop: Sequence[str]
    references: Sequence[Reference]
    sampling: Sampling
    passes: PassOptions
    show: Show | None
    reporter: Reporter


@dataclass(frozen=True)
class Asked:
    """The same, and what they are where they are left out."""

    drafter: str | Drafter | Callable[[], Drafter] | None = None
    artifacts: Sources | Sequence[Given] | Given = ()
    template: str | None = None
    system: str | None = None
    max_new_tokens: int = 128
    stop: Sequence[str] = ()
    references: Sequence[Reference] = ()
    sampling: Sampling = GREEDY
    passes: PassOptions = PassOptions()  # noqa: RUF009 (frozen)
    show: Show | None = None
    reporter: Reporter = SILENT

    def require_sense(self) -> None:
        """Raises UsageError for what makes none, before anything is loaded."""
        if isinstance(self.drafter, str):
            DrafterSpec.parse(self.drafter)
        if self.system and self.template is None:
            option = ("system", "chat")
            raise UsageError("system needs a conversation", "give chat too", option=option)
        if self.passes.cache is not None:
            require_no_drafts(self.passes.cache, self.drafter)
        require_use(self.references, self.drafter, self.passes.cache)
