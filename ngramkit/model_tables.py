"""Tables read off a language model that is named or loaded (N-Grammys)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.builders.model_passes import (
    BuiltTable,
    Table,
    require_bigram_options,
    require_unigram_options,
)
from ngramkit.decode.pending import require_model
from ngramkit.decode.placement import require_placement
from ngramkit.formats.outputs import default_place
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.public import public
from ngramkit.remote.publishing import build_at, require_out

if TYPE_CHECKING:
    from ngramkit.builders.model_passes import Work
    from ngramkit.decode.load import LanguageModel
    from ngramkit.formats.model_bigram import ModelBigram
    from ngramkit.formats.model_unigram import ModelUnigram


@public
def model_bigram(
    model: str | Path | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = 100,
    width: int = 4,
    prefix: str = "none",
    extend: str = "bigram",
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> BuiltTable[ModelBigram]:
    """Build a model's bigram table: its likeliest tokens after every single token.

    `model` is a name, or a model that `load_model` gave; where it runs as in `load_model`. The
    other options, and the errors, are those of `builders.model_bigram.build_model_bigram`.
    """
    require_bigram_options(k, width, prefix, extend)
    from ngramkit.builders.model_bigram import build_model_bigram

    require_out(out, force=force)
    loaded = _load(model, device, dtype, device_map, trust_remote_code)
    options = {"k": k, "width": width, "prefix": prefix, "extend": extend}
    return _build("bigram", build_model_bigram, loaded, out, options, reporter, force)


@public
def model_unigram(
    model: str | Path | LanguageModel | None = None,
    out: str | Path | None = None,
    *,
    k: int = 100,
    rule: str = "distance",
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> BuiltTable[ModelUnigram]:
    """Build a model's unigram table: tokens that its embeddings make likely anywhere.

    As `model_bigram`; `k` and `rule` as in `builders.model_unigram.build_model_unigram`.
    """
    require_unigram_options(k, rule)
    from ngramkit.builders.model_unigram import build_model_unigram

    require_out(out, force=force)
    loaded = _load(model, device, dtype, device_map, trust_remote_code)
    options = {"k": k, "rule": rule}
    return _build("unigram", build_model_unigram, loaded, out, options, reporter, force)


def _load(
    model: str | Path | LanguageModel | None,
    device: str,
    dtype: str,
    device_map: str | None,
    trust_remote_code: bool,
) -> LanguageModel:
    given: Any = model
    if hasattr(given, "tokenizer"):
        return given  # type: ignore[no-any-return]
    name = chosen_model(given).name
    require_model(name)
    require_placement(device, dtype, device_map)
    from ngramkit.decode.load import load_model

    return load_model(
        name,
        device=device,
        dtype=dtype,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
    )


def _build(
    kind: str,
    builder: Callable[..., BuiltTable[Table]],
    model: LanguageModel,
    out: str | Path | None,
    options: dict[str, Any],
    reporter: Reporter,
    force: bool,
) -> BuiltTable[Table]:
    work: Work | None = None

    def build(path: Path, **run: Any) -> Table:
        nonlocal work
        built = builder(model.model, model.tokenizer, path, **options, **run)
        work = built.work
        return built.table

    place = out or default_place(model.name, kind)
    return BuiltTable(build_at(build, place, reporter=reporter, force=force), work)
