"""What trying models has found, in memory and, for other processes, on disk: it is done once.

A file probes/KIND-DIGEST in the user's cache folder says that drafts verified by KIND get the
model's own logits. DIGEST is over all that decides that: the model's class and its source, its
config, dtype and device, and everything that verifies. Only models that came from a checkpoint and
were not altered since are kept so; that a model cannot be verified so is found out anew each time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ngramkit.caches import private_folder
from ngramkit.decode.device import device_facts
from ngramkit.decode.probe import Kind, agrees
from ngramkit.formats.writer import write_text

LOG = logging.getLogger("ngramkit")
FOLDER = "probes"
_FIT: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()
_PASSES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def fits(model: Any, kind: Kind) -> bool:
    """Whether drafts verified by `kind` get the model's own logits: `probe.agrees`, tried once."""
    if not known_to_fit(model, kind):
        found = _FIT.setdefault(model, {})
        if kind.__name__ not in found:
            found[kind.__name__] = _try(model, kind)
        return found[kind.__name__]
    return True


def known_to_fit(model: Any, kind: Kind) -> bool:
    """Whether it was found before that they do; runs no pass."""
    found = _FIT.setdefault(model, {})
    if kind.__name__ not in found:
        file = _file(model, kind)
        if file is not None and file.is_file():
            found[kind.__name__] = True
    return found.get(kind.__name__, False)


def probe_passes(model: Any) -> int:
    """How many passes of the model were spent on trying it, in this process."""
    return _PASSES.get(model, 0)


def _try(model: Any, kind: Kind) -> bool:
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    hook = model.register_forward_hook(count)
    try:
        fit = agrees(model, kind)
    finally:
        hook.remove()
        _PASSES[model] = probe_passes(model) + passes
    file = _file(model, kind) if fit else None
    if file is not None:
        try:
            write_text(file, "fits\n")
        except OSError as error:
            LOG.debug("%s: %s", file, error)
    kept = "remembered on disk" if file is not None else "remembered in this process"
    LOG.info(
        "%s: %d passes to try %s, which %s; %s", model.config.model_type, passes, kind.__name__,
        "fits" if fit else "does not fit", kept,
    )  # fmt: skip
    return fit


def _file(model: Any, kind: Kind) -> Path | None:
    """None for a model that is not as its checkpoint and config tell, and where nothing is kept."""
    if not getattr(model, "name_or_path", "") or _altered(model):
        return None
    folder = private_folder(FOLDER)
    return None if folder is None else folder / f"{kind.__name__}-{_digest(model)}"


def _altered(model: Any) -> bool:
    """Whether some part runs other code than its class's: patched, or wrapped by a library."""
    return any("forward" in vars(part) or part._forward_pre_hooks for part in model.modules())


def _digest(model: Any) -> str:
    config = {
        key: value
        for key, value in model.config.to_dict().items()
        if key not in ("_name_or_path", "transformers_version")
    }
    classes = {f"{type(part).__module__}.{type(part).__qualname__}" for part in model.modules()}
    decides = {
        "config": config,
        "attention": model.config._attn_implementation,
        "classes": sorted(classes),
        "devices": sorted({str(each.device) for each in model.parameters()}),
        "versions": [version(name) for name in ("transformers", "torch", "ngramkit")],
        **device_facts(model),
    }
    found = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode())
    own = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    for file in [*([Path(own)] if own else []), *sorted(Path(__file__).parent.glob("*.py"))]:
        found.update(file.read_bytes())
    return found.hexdigest()[:32]
