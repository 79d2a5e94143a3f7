"""What trying models has found, in memory and, for other processes, on disk: it is done once.

A file probes/WHAT-DIGEST in the user's cache folder says that WHAT is true of a model: a verifier's
name, that drafts verified by it get the model's own logits. DIGEST is over all that decides that:
the model's class and its source, its config, dtype and device, versions and driver, and everything
that verifies. Only models that came from a checkpoint and were not altered since are kept so; what
a model cannot do is found out anew each time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ngramkit.caches import private_folder
from ngramkit.decode.device import device_facts, software_facts
from ngramkit.decode.probe import Kind, agrees
from ngramkit.formats.writer import write_text

LOG = logging.getLogger("ngramkit")
FOLDER = "probes"
_FOUND: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()
_PASSES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def fits(model: Any, kind: Kind) -> bool:
    """Whether drafts verified by `kind` get the model's own logits: `probe.agrees`, tried once."""
    found = _FOUND.setdefault(model, {})
    if not known_to_fit(model, kind) and kind.__name__ not in found:
        with counted(model) as passes:
            found[kind.__name__] = agrees(model, kind)
        kept = remember(model, kind.__name__) if found[kind.__name__] else ""
        LOG.info(
            "%s: %d passes to try %s, which %s; remembered %s", model.config.model_type, passes(),
            kind.__name__, "fits" if found[kind.__name__] else "does not fit",
            kept or "in this process",
        )  # fmt: skip
    return found[kind.__name__]


def known_to_fit(model: Any, kind: Kind) -> bool:
    """Whether it was found before that they do; runs no pass."""
    return known(model, kind.__name__)


def known(model: Any, what: str) -> bool:
    """Whether `what` was remembered to be true of the model, here or on disk."""
    found = _FOUND.setdefault(model, {})
    if what not in found:
        file = _file(model, what)
        if file is not None and file.is_file():
            found[what] = True
    return found.get(what, False)


def remember(model: Any, what: str) -> str:
    """`what` is true of the model; "on disk" where other processes will know, too."""
    _FOUND.setdefault(model, {})[what] = True
    file = _file(model, what)
    if file is None:
        return ""
    try:
        write_text(file, "fits\n")
    except OSError as error:
        LOG.debug("%s: %s", file, error)
        return ""
    return "on disk"


@contextmanager
def counted(model: Any) -> Iterator[Callable[[], int]]:
    """Inside, passes of the model are for trying it; gives how many they were."""
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    hook = model.register_forward_hook(count)
    try:
        yield lambda: passes
    finally:
        hook.remove()
        _PASSES[model] = probe_passes(model) + passes


def probe_passes(model: Any) -> int:
    """How many passes of the model were spent on trying it, in this process."""
    return _PASSES.get(model, 0)


def _file(model: Any, what: str) -> Path | None:
    """None for a model that is not as its checkpoint and config tell, and where nothing is kept."""
    if not getattr(model, "name_or_path", "") or _altered(model):
        return None
    folder = private_folder(FOLDER)
    return None if folder is None else folder / f"{what}-{_digest(model)}"


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
        "software": software_facts(),
        **device_facts(model),
    }
    found = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode())
    own = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    for file in [*([Path(own)] if own else []), *sorted(Path(__file__).parent.glob("*.py"))]:
        found.update(file.read_bytes())
    return found.hexdigest()[:32]
