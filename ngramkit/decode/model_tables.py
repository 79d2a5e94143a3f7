"""Tables of a language model's likeliest tokens (N-Grammys)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_type, check_types
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.builders.model_table import (
    DEFAULT_K,
    BuiltTable,
    require_bigram_options,
    require_rows,
    require_unigram_options,
)
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import open_pending_model
from ngramkit.formats.manifest import Manifest
from ngramkit.formats.outputs import default_place
from ngramkit.remote.publishing import require_out, require_same_or_force

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.formats.model_bigram import ModelBigram
    from ngramkit.formats.model_unigram import ModelUnigram


def model_bigram(
    model: str | Path | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = DEFAULT_K,
    width: int = 4,
    prefix: str = "none",
    extend: str = "bigram",
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> BuiltTable[ModelBigram]:
    """Build a model's bigram table: its likeliest tokens after every single token.

    `model` is a name or the result of `load_model`, which describes its placement; other options
    and errors are as in `builders.model_bigram.build_model_bigram`.
    """
    k, width = check_types(int, k=k, width=width)
    require_bigram_options(k, width, prefix, extend)
    require_out(out, "model-bigram", force=force)
    run = DecodeOptions(
        model, reporter=reporter, device=device, dtype=dtype, device_map=device_map,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    options = {"k": k, "width": width, "prefix": prefix, "extend": extend}
    return _build_table("bigram", run, out, options, force)


def model_unigram(
    model: str | Path | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = DEFAULT_K,
    rule: str = "distance",
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> BuiltTable[ModelUnigram]:
    """Build a model's unigram table: tokens that its embeddings make likely anywhere.

    As `model_bigram`; `k` and `rule` as in `builders.model_unigram.build_model_unigram`.
    """
    k = check_type("k", k, [int])
    require_unigram_options(k, rule)
    require_out(out, "model-unigram", force=force)
    run = DecodeOptions(
        model, reporter=reporter, device=device, dtype=dtype, device_map=device_map,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    return _build_table("unigram", run, out, {"k": k, "rule": rule}, force)


def _build_table(
    kind: str, run: DecodeOptions, out: str | Path | None, options: dict[str, Any], force: bool
) -> BuiltTable[Any]:
    pending = open_pending_model(run)
    require_rows(options["k"], pending.tokenizer, options.get("prefix", "none"))

    def is_same(there: Manifest) -> bool:
        same = there.tokenizer.fingerprint == pending.tokenizer.record.fingerprint
        return same and options.items() <= there.parameters.items()

    place = out or default_place(pending.name, kind)
    require_same_or_force(place, f"model-{kind}", is_same, force=force)
    model = pending.load()
    from ngramkit.builders.model_bigram import build_model_bigram  # imports torch, as the model has
    from ngramkit.builders.model_unigram import build_model_unigram

    build: Any = {"bigram": build_model_bigram, "unigram": build_model_unigram}[kind]
    built: BuiltTable[Any] = build(
        model.model, model.tokenizer, place, **options, reporter=run.reporter, force=force
    )
    return built
