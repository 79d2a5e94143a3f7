"""`ngramkit.self_check`: what a bug report about the static engine needs."""

from __future__ import annotations

from ngramkit.decode.load import LanguageModel
from ngramkit.decode.session import PassOptions
from ngramkit.decode.static_check import SelfCheck, check_static
from ngramkit.errors import UsageError
from ngramkit.progress import SILENT, Reporter


def self_check(
    model: str | LanguageModel | None = None,
    *,
    passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
    reporter: Reporter = SILENT,
) -> SelfCheck:
    """Compares the static engine with the eager one on a model; of `passes` the device and the
    dtype count.

    Raises UsageError for another engine than auto or static.
    """
    if passes.engine == "eager":
        raise UsageError("the eager engine is what others are compared with", option="engine")
    loaded = passes.load(model, reporter)
    return check_static(loaded.model, loaded.name)
