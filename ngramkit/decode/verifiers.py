"""Which verifier a model can be given, and which engine runs its passes, found by trying.

A draft is verified in one tree, else in rows, of models with recurrent layers as a chain or
chains; a pass runs as it comes (eager) or in a fixed shape (static). What a model can be given is
tried once and remembered as long as the model lives.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import transformers

from ngramkit.decode.base import ResumableVerifier
from ngramkit.decode.probe import counted, fits, known, known_to_fit, remember
from ngramkit.decode.recurrent_cache import is_recurrent
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.static_check import SelfCheck, check_static
from ngramkit.decode.verify_chain import ChainsVerifier, ChainVerifier
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.errors import InputError, UsageError, meant

VERIFIERS: dict[str, type[TreeVerifier | BatchVerifier | ChainVerifier]] = {
    "tree": TreeVerifier,
    "batch": BatchVerifier,
    "chain": ChainVerifier,
}
ENGINES = ("auto", "eager", "static")
_FOUND: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_STATIC: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_GAINS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_CHECKS: WeakKeyDictionary[Any, SelfCheck] = WeakKeyDictionary()
GAINS = "StaticGains"


def require_known(engine: str, mode: str | None) -> None:
    """Raises UsageError for an unknown engine or mode, and for two that exclude each other."""
    if engine not in ENGINES:
        raise UsageError(f"there is no engine called {engine!r}", meant(engine, ENGINES))
    if mode not in (None, *VERIFIERS):
        said = f"there is no way to verify called {mode!r}"
        raise UsageError(said, meant(str(mode), VERIFIERS))
    if engine == "static" and mode in ("batch", "chain"):
        raise UsageError("the static engine verifies drafts as trees alone", "leave one out")


def settled(model: Any, engine: str = "auto", mode: str | None = None) -> tuple[str, str]:
    """What the model is run with: eager or static, and tree, batch or chain. As `engine_of`,
    `verify_mode`."""
    found = engine_of(model, engine, mode)
    return found, "tree" if found == "static" else verify_mode(model, mode)


def open_verifier(
    model: Any, mode: str | None = None, engine: str = "auto", *, room: int
) -> ResumableVerifier:
    """A verifier for one request of a transformers causal LM; `mode` as in `verify_mode`, `engine`
    as in `engine_of`."""
    if engine_of(model, engine, mode) == "static":
        return StaticVerifier(model, room=room)
    found = verify_mode(model, mode)
    kind = ChainsVerifier if found == "batch" and is_recurrent(model) else VERIFIERS[found]
    return kind(model, room=room)


def engine_of(model: Any, engine: str = "auto", mode: str | None = None) -> str:
    """eager or static. auto is static on CUDA, where it is no slower; a model that cannot be run so
    is run eagerly. Both are tried first where they were not before, and what fell is said once.

    Raises UsageError for an unknown engine, and for static where drafts are asked for as rows.
    """
    require_known(engine, mode)
    asked = engine == "static"
    if engine == "auto" and model.device.type == "cuda" and mode not in ("batch", "chain"):
        engine = "static"
    if engine != "static" or not takes_static(model):
        return "eager"
    return "static" if asked or gains_from_static(model) else "eager"


def is_known(model: Any) -> bool:
    """Whether it is known what engine=auto would give the model, so that settling runs no pass."""
    recurrent = is_recurrent(model)
    mode = model in _FOUND or known_to_fit(model, ChainVerifier if recurrent else TreeVerifier)
    if model.device.type != "cuda" or recurrent or not mode:
        return mode
    return model in _GAINS or (known_to_fit(model, StaticVerifier) and known(model, GAINS))


def takes_static(model: Any) -> bool:
    if model not in _STATIC:
        reason = _against_static(model)
        if reason is not None:
            logging.getLogger("ngramkit").warning(
                "%s %s; it runs with engine=eager", model.config.model_type, reason
            )
        _STATIC[model] = reason is None
    return _STATIC[model]


def gains_from_static(model: Any) -> bool:
    """Whether passes of fixed shape are no slower here; for a model that takes them."""
    if model not in _GAINS:
        found = None if known(model, GAINS) else _checked(model)
        _GAINS[model] = found is None or found.pays
        if found is not None and found.pays:
            remember(model, GAINS)
        elif found is not None:
            logging.getLogger("ngramkit").warning(
                "passes of fixed shape have %.2f times the eager engine's speed here; %s runs with "
                "engine=eager",
                found.gain,
                model.config.model_type,
            )
    return _GAINS[model]


def _checked(model: Any) -> SelfCheck:
    if model not in _CHECKS:
        with counted(model):
            _CHECKS[model] = check_static(model)
    return _CHECKS[model]


def _against_static(model: Any) -> str | None:
    if len({parameter.device for parameter in model.parameters()}) > 1:
        return "is spread over several devices"
    if verify_mode(model) != "tree":
        return "cannot verify a draft as a tree"
    if known_to_fit(model, StaticVerifier):
        return None
    fault = _checked(model).fault
    if not fault and not fits(model, StaticVerifier):
        fault = "writes something else in passes of fixed shape beyond a window"
    return fault or None


def verify_mode(model: Any, mode: str | None = None) -> str:
    """`mode` if it is given and the model can take it; else tree, or batch where that fails, or
    chain where layers are recurrent.

    Raises UsageError for an unknown mode, InputError where the model can take none.
    """
    require_known("auto", mode)
    recurrent = is_recurrent(model)
    if mode in ("batch", "chain") and not recurrent:
        return mode
    if model not in _FOUND:
        ways = ("chain",) if recurrent else ("tree", "batch")
        fit = next((name for name in ways if fits(model, VERIFIERS[name])), None)
        if fit is None:
            raise _takes_no_drafts(model.config.model_type)
        if fit == "batch":
            logging.getLogger("ngramkit").warning(
                "%s cannot verify a draft as a tree; it is verified as rows, verify=batch",
                model.config.model_type,
            )
        _FOUND[model] = fit
    return "batch" if recurrent and mode == "batch" else _FOUND[model]


def _takes_no_drafts(kind: str) -> InputError:
    return InputError(
        f"transformers {transformers.__version__} reads several tokens of {kind} at once otherwise "
        "than one by one",
        "drafts need a model for which both are the same; docs/decoding.md names those that do",
    )
