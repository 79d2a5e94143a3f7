"""corpus -> tokens -> artifact -> drafter -> decode

ngramkit builds, ships and runs the lookup artifacts of training-free speculative decoding.

    store = ngramkit.build_tokens(ngramkit.open_corpus("python-stdlib"), "demo")
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
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.builders.model_unigram import build_model_unigram
    from ngramkit.builders.tokens import build_tokens
    from ngramkit.choose import choose_drafter
    from ngramkit.corpus.opening import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.decode.answer import decode
    from ngramkit.decode.calibration import calibrate
    from ngramkit.decode.candidates import NgramkitCandidates
    from ngramkit.decode.conversation import Conversation
    from ngramkit.decode.generate import custom_generate, generate
    from ngramkit.decode.pass_options import PassOptions
    from ngramkit.decode.sampling import Sampling
    from ngramkit.decode.specache.options import SpeCache
    from ngramkit.drafters import load_drafter
    from ngramkit.drafters.base import Drafter, DraftTree, Evidence
    from ngramkit.evaluate.benchmark import bench
    from ngramkit.evaluate.needle_test import needle_test
    from ngramkit.evaluate.replays import KeepState, replay
    from ngramkit.formats.kinds import open_artifact
    from ngramkit.sources import PastUse, Sources

__version__ = "0.2.0"

_HOMES = {
    "build_datastore": "ngramkit.builders.datastore",
    "build_frozen": "ngramkit.builders.frozen",
    "build_model_bigram": "ngramkit.builders.model_bigram",
    "build_model_unigram": "ngramkit.builders.model_unigram",
    "build_tokens": "ngramkit.builders.tokens",
    "choose_drafter": "ngramkit.choose",
    "decode": "ngramkit.decode.answer",
    "calibrate": "ngramkit.decode.calibration",
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
    "KeepState": "ngramkit.evaluate.replays",
    "replay": "ngramkit.evaluate.replays",
    "open_artifact": "ngramkit.formats.kinds",
    "open_corpus": "ngramkit.corpus.opening",
    "PastUse": "ngramkit.sources",
    "Sources": "ngramkit.sources",
}

__all__ = [
    "ArtifactError",
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
    "bench",
    "build_datastore",
    "build_frozen",
    "build_model_bigram",
    "build_model_unigram",
    "build_tokens",
    "calibrate",
    "choose_drafter",
    "custom_generate",
    "decode",
    "generate",
    "load_drafter",
    "load_tokenizer",
    "needle_test",
    "open_artifact",
    "open_corpus",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ngramkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
