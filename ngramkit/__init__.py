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

from ngramkit.errors import (
    ArtifactError,
    InputError,
    NetworkError,
    NgramkitError,
    UsageError,
)

if TYPE_CHECKING:
    from ngramkit.choose import choose_drafter
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.decode.answer import decode
    from ngramkit.decode.calibration import calibrate
    from ngramkit.decode.candidates import NgramkitCandidates
    from ngramkit.decode.conversation import Conversation
    from ngramkit.decode.generate import custom_generate, generate
    from ngramkit.decode.pass_options import PassOptions
    from ngramkit.decode.sampling import Sampling
    from ngramkit.decode.self_check import self_check
    from ngramkit.decode.specache.options import SpeCache
    from ngramkit.drafters import load_drafter
    from ngramkit.drafters.base import Drafter, DraftTree, Evidence
    from ngramkit.evaluate.benchmark import bench
    from ngramkit.evaluate.needle_test import needle_test
    from ngramkit.evaluate.pruning import prune
    from ngramkit.evaluate.recording import record
    from ngramkit.evaluate.replays import KeepState, replay
    from ngramkit.evaluate.self_corpus import self_corpus
    from ngramkit.hub_push import push
    from ngramkit.sources import PastUse, Sources
    from ngramkit.storage.cache import using_cache
    from ngramkit.verbs.building import (
        BuiltTable,
        build_datastore,
        build_frozen,
        model_bigram,
        model_unigram,
        tokenize,
    )
    from ngramkit.verbs.exchanging import export, import_
    from ngramkit.verbs.histories import merge_histories, trim_history
    from ngramkit.verbs.looking import history, inspect, open_artifact, verify
    from ngramkit.verbs.recipe import build_recipe
    from ngramkit.verbs.shipping import (
        merge,
        pull,
        search,
    )
    from ngramkit.warming import Warmed, warm


__version__ = "0.2.0"

_HOMES = {
    "choose_drafter": "ngramkit.choose",
    "decode": "ngramkit.decode.answer",
    "calibrate": "ngramkit.decode.calibration",
    "self_check": "ngramkit.decode.self_check",
    "build_datastore": "ngramkit.verbs.building",
    "build_frozen": "ngramkit.verbs.building",
    "model_bigram": "ngramkit.verbs.building",
    "model_unigram": "ngramkit.verbs.building",
    "tokenize": "ngramkit.verbs.building",
    "BuiltTable": "ngramkit.verbs.building",
    "history": "ngramkit.verbs.looking",
    "inspect": "ngramkit.verbs.looking",
    "open_artifact": "ngramkit.verbs.looking",
    "verify": "ngramkit.verbs.looking",
    "build_recipe": "ngramkit.verbs.recipe",
    "export": "ngramkit.verbs.exchanging",
    "import_": "ngramkit.verbs.exchanging",
    "merge": "ngramkit.verbs.shipping",
    "merge_histories": "ngramkit.verbs.histories",
    "pull": "ngramkit.verbs.shipping",
    "push": "ngramkit.hub_push",
    "search": "ngramkit.verbs.shipping",
    "trim_history": "ngramkit.verbs.histories",
    "NgramkitCandidates": "ngramkit.decode.candidates",
    "Conversation": "ngramkit.decode.conversation",
    "custom_generate": "ngramkit.decode.generate",
    "generate": "ngramkit.decode.generate",
    "load_tokenizer": "ngramkit.corpus.tokenizer",
    "PassOptions": "ngramkit.decode.pass_options",
    "Sampling": "ngramkit.decode.sampling",
    "SpeCache": "ngramkit.decode.specache.options",
    "load_drafter": "ngramkit.drafters",
    "Drafter": "ngramkit.drafters.base",
    "DraftTree": "ngramkit.drafters.base",
    "Evidence": "ngramkit.drafters.base",
    "bench": "ngramkit.evaluate.benchmark",
    "needle_test": "ngramkit.evaluate.needle_test",
    "prune": "ngramkit.evaluate.pruning",
    "record": "ngramkit.evaluate.recording",
    "KeepState": "ngramkit.evaluate.replays",
    "replay": "ngramkit.evaluate.replays",
    "self_corpus": "ngramkit.evaluate.self_corpus",
    "open_corpus": "ngramkit.corpus.open",
    "PastUse": "ngramkit.sources",
    "Sources": "ngramkit.sources",
    "using_cache": "ngramkit.storage.cache",
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
