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

from ngramkit.basics.errors import (
    ArtifactError as ArtifactError,
    InputError as InputError,
    NetworkError as NetworkError,
    NgramkitError as NgramkitError,
    UsageError as UsageError,
)
from ngramkit.basics.version import __version__ as __version__

if TYPE_CHECKING:
    from ngramkit.basics.models import models as models, resolve_model as resolve_model, use as use
    from ngramkit.basics.progress import Reporter as Reporter
    from ngramkit.budget.engine_benchmark import pass_cost as pass_cost
    from ngramkit.builders.datastore import build_datastore as build_datastore
    from ngramkit.builders.frozen import build_frozen as build_frozen
    from ngramkit.builders.merge import merge as merge
    from ngramkit.builders.model_table import BuiltTable as BuiltTable
    from ngramkit.builders.tokens import tokenize as tokenize
    from ngramkit.catalog import list_ as list_, rm as rm
    from ngramkit.choose import choose_drafter as choose_drafter
    from ngramkit.corpus.open import corpora as corpora, open_corpus as open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer as load_tokenizer
    from ngramkit.decode.answer import decode as decode
    from ngramkit.decode.calibrate import calibrate as calibrate
    from ngramkit.decode.conversation import Conversation as Conversation
    from ngramkit.decode.generate import custom_generate as custom_generate, generate as generate
    from ngramkit.decode.load import LanguageModel as LanguageModel, load_model as load_model
    from ngramkit.decode.model_tables import (
        model_bigram as model_bigram,
        model_unigram as model_unigram,
    )
    from ngramkit.decode.options import DecodeOptions as DecodeOptions
    from ngramkit.decode.sampling import Sampling as Sampling
    from ngramkit.decode.specache.options import SpeCache as SpeCache
    from ngramkit.drafters.base import (
        Drafter as Drafter,
        DraftTree as DraftTree,
        Evidence as Evidence,
        Source as Source,
    )
    from ngramkit.drafters.create import load_drafter as load_drafter
    from ngramkit.drafters.registry import drafters as drafters
    from ngramkit.drafters.sources import PastUse as PastUse, Sources as Sources
    from ngramkit.engines.check import check_engine as check_engine
    from ngramkit.evaluate.bench import bench as bench
    from ngramkit.evaluate.forecast import forecast as forecast
    from ngramkit.evaluate.prune import prune as prune
    from ngramkit.evaluate.record import record as record
    from ngramkit.evaluate.records import Question as Question, Record as Record, Turn as Turn
    from ngramkit.evaluate.replay import KeepState as KeepState, replay as replay
    from ngramkit.evaluate.self_corpus import self_corpus as self_corpus
    from ngramkit.exchange.convert import export as export, import_ as import_
    from ngramkit.hub.pull import pull as pull
    from ngramkit.hub.push import push as push
    from ngramkit.hub.search import search as search
    from ngramkit.inspection import (
        inspect as inspect,
        open_artifact as open_artifact,
        verify as verify,
    )
    from ngramkit.logs.history_commands import (
        history_forget as history_forget,
        history_import as history_import,
        history_inspect as history_inspect,
        history_merge as history_merge,
        history_trim as history_trim,
    )
    from ngramkit.recipes import build as build
    from ngramkit.remote.url_cache import using_cache as using_cache
    from ngramkit.warming import Warmed as Warmed, warm as warm

# Module -> names imported on first use; the imports above are for editors and type checkers.
_NAMES = {
    "ngramkit.basics.models": "models resolve_model use",
    "ngramkit.basics.progress": "Reporter",
    "ngramkit.budget.engine_benchmark": "pass_cost",
    "ngramkit.builders.datastore": "build_datastore",
    "ngramkit.builders.frozen": "build_frozen",
    "ngramkit.builders.merge": "merge",
    "ngramkit.builders.model_table": "BuiltTable",
    "ngramkit.builders.tokens": "tokenize",
    "ngramkit.catalog": "list_ rm",
    "ngramkit.choose": "choose_drafter",
    "ngramkit.corpus.open": "corpora open_corpus",
    "ngramkit.corpus.tokenizer": "load_tokenizer",
    "ngramkit.decode.answer": "decode",
    "ngramkit.decode.calibrate": "calibrate",
    "ngramkit.decode.conversation": "Conversation",
    "ngramkit.decode.generate": "custom_generate generate",
    "ngramkit.decode.load": "LanguageModel load_model",
    "ngramkit.decode.model_tables": "model_bigram model_unigram",
    "ngramkit.decode.options": "DecodeOptions",
    "ngramkit.decode.sampling": "Sampling",
    "ngramkit.decode.specache.options": "SpeCache",
    "ngramkit.drafters.base": "DraftTree Drafter Evidence Source",
    "ngramkit.drafters.create": "load_drafter",
    "ngramkit.drafters.registry": "drafters",
    "ngramkit.drafters.sources": "PastUse Sources",
    "ngramkit.engines.check": "check_engine",
    "ngramkit.evaluate.bench": "bench",
    "ngramkit.evaluate.forecast": "forecast",
    "ngramkit.evaluate.prune": "prune",
    "ngramkit.evaluate.record": "record",
    "ngramkit.evaluate.records": "Question Record Turn",
    "ngramkit.evaluate.replay": "KeepState replay",
    "ngramkit.evaluate.self_corpus": "self_corpus",
    "ngramkit.exchange.convert": "export import_",
    "ngramkit.hub.pull": "pull",
    "ngramkit.hub.push": "push",
    "ngramkit.hub.search": "search",
    "ngramkit.inspection": "inspect open_artifact verify",
    "ngramkit.logs.history_commands": (
        "history_forget history_import history_inspect history_merge history_trim"
    ),
    "ngramkit.recipes": "build",
    "ngramkit.remote.url_cache": "using_cache",
    "ngramkit.warming": "Warmed warm",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_ERRORS = "ArtifactError InputError NetworkError NgramkitError UsageError"
__all__ = sorted([*_HOMES, *_ERRORS.split()])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ngramkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
