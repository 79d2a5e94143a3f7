"""corpus -> tokens -> artifact -> drafter -> decode

ngramkit builds, ships and runs the lookup artifacts of training-free speculative decoding.

    store = ngramkit.tokenize("python-stdlib", "demo")
    datastore = ngramkit.build_datastore(store, "artifacts/mine")
    drafter = ngramkit.load_drafter("rest", datastores=[datastore])

Everything below is imported at its first use: `import ngramkit` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ngramkit.errors import ArtifactError, InputError, NetworkError, NgramkitError, UsageError

if TYPE_CHECKING:
    from ngramkit.build import (
        BuiltTable,
        build_datastore,
        build_frozen,
        model_bigram,
        model_unigram,
        tokenize,
    )
    from ngramkit.choose import choose_drafter
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.decode.answer import decode
    from ngramkit.decode.calibrate import calibrate
    from ngramkit.decode.candidates import NgramkitCandidates
    from ngramkit.decode.conversation import Conversation
    from ngramkit.decode.generate import custom_generate, generate
    from ngramkit.decode.sampling import Sampling
    from ngramkit.decode.self_check import self_check
    from ngramkit.decode.session import PassOptions
    from ngramkit.decode.specache.options import SpeCache
    from ngramkit.drafters.base import Drafter, DraftTree, Evidence
    from ngramkit.drafters.registry import load_drafter
    from ngramkit.drafters.sources import PastUse, Sources
    from ngramkit.evaluate.bench import bench
    from ngramkit.evaluate.needle_test import needle_test
    from ngramkit.evaluate.prune import prune
    from ngramkit.evaluate.record import record
    from ngramkit.evaluate.replay import KeepState, replay
    from ngramkit.evaluate.self_corpus import self_corpus
    from ngramkit.exchange.convert import export, import_
    from ngramkit.inspect import (
        history,
        inspect,
        merge_histories,
        open_artifact,
        trim_history,
        verify,
    )
    from ngramkit.recipes import build_recipe
    from ngramkit.remote.staging import using_cache
    from ngramkit.ship import merge, pull, push, search
    from ngramkit.warming import Warmed, warm


__version__ = "0.2.0"

_HOMES = {
    "choose_drafter": "ngramkit.choose",
    "decode": "ngramkit.decode.answer",
    "calibrate": "ngramkit.decode.calibrate",
    "self_check": "ngramkit.decode.self_check",
    "build_datastore": "ngramkit.build",
    "build_frozen": "ngramkit.build",
    "model_bigram": "ngramkit.build",
    "model_unigram": "ngramkit.build",
    "tokenize": "ngramkit.build",
    "BuiltTable": "ngramkit.build",
    "history": "ngramkit.inspect",
    "inspect": "ngramkit.inspect",
    "open_artifact": "ngramkit.inspect",
    "verify": "ngramkit.inspect",
    "build_recipe": "ngramkit.recipes",
    "export": "ngramkit.exchange.convert",
    "import_": "ngramkit.exchange.convert",
    "merge": "ngramkit.ship",
    "merge_histories": "ngramkit.inspect",
    "pull": "ngramkit.ship",
    "push": "ngramkit.ship",
    "search": "ngramkit.ship",
    "trim_history": "ngramkit.inspect",
    "NgramkitCandidates": "ngramkit.decode.candidates",
    "Conversation": "ngramkit.decode.conversation",
    "custom_generate": "ngramkit.decode.generate",
    "generate": "ngramkit.decode.generate",
    "load_tokenizer": "ngramkit.corpus.tokenizer",
    "PassOptions": "ngramkit.decode.session",
    "Sampling": "ngramkit.decode.sampling",
    "SpeCache": "ngramkit.decode.specache.options",
    "load_drafter": "ngramkit.drafters.registry",
    "Drafter": "ngramkit.drafters.base",
    "DraftTree": "ngramkit.drafters.base",
    "Evidence": "ngramkit.drafters.base",
    "bench": "ngramkit.evaluate.bench",
    "needle_test": "ngramkit.evaluate.needle_test",
    "prune": "ngramkit.evaluate.prune",
    "record": "ngramkit.evaluate.record",
    "KeepState": "ngramkit.evaluate.replay",
    "replay": "ngramkit.evaluate.replay",
    "self_corpus": "ngramkit.evaluate.self_corpus",
    "open_corpus": "ngramkit.corpus.open",
    "PastUse": "ngramkit.drafters.sources",
    "Sources": "ngramkit.drafters.sources",
    "using_cache": "ngramkit.remote.staging",
    "Warmed": "ngramkit.warming",
    "warm": "ngramkit.warming",
}

__all__ = [
    "ArtifactError",
    "BuiltTable",
    "Conversation",
    "DraftTree",
    "Drafter",
    "Evidence",
    "InputError",
    "KeepState",
    "NetworkError",
    "NgramkitCandidates",
    "NgramkitError",
    "PassOptions",
    "PastUse",
    "Sampling",
    "Sources",
    "SpeCache",
    "UsageError",
    "Warmed",
    "bench",
    "build_datastore",
    "build_frozen",
    "build_recipe",
    "calibrate",
    "choose_drafter",
    "custom_generate",
    "decode",
    "export",
    "generate",
    "history",
    "import_",
    "inspect",
    "load_drafter",
    "load_tokenizer",
    "merge",
    "merge_histories",
    "model_bigram",
    "model_unigram",
    "needle_test",
    "open_artifact",
    "open_corpus",
    "prune",
    "pull",
    "push",
    "record",
    "replay",
    "search",
    "self_check",
    "self_corpus",
    "tokenize",
    "trim_history",
    "using_cache",
    "verify",
    "warm",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ngramkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
