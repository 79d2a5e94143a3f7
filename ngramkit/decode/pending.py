"""A model that is not loaded yet: wrong options are errors before torch is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngramkit.basics.models import named_model
from ngramkit.budget.model_files import read_facts
from ngramkit.choose import DrafterChoice
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.options import DecodeOptions

if TYPE_CHECKING:
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel


@dataclass(frozen=True)
class PendingModel:
    """A model's tokenizer and context (None: unknown); `load` loads it once."""

    name: str
    tokenizer: TextTokenizer
    context: int | None
    load: Callable[[], LanguageModel]

    def decoder(
        self, options: DecodeOptions, choices: Sequence[DrafterChoice]
    ) -> tuple[Decoder, list[DrafterChoice]]:
        """Load the model; return a decoder and the choices fitted to it.

        Raises as `Decoder.settle`.
        """
        from ngramkit.decode.compile_while_loading import compile_meanwhile

        named = [choice.spec.name for choice in choices if choice.made is None]
        with compile_meanwhile(named, self.tokenizer.record.vocabulary):
            model = self.load()
        from ngramkit.decode.decoder import Decoder
        from ngramkit.decode.generation import refuse_unsupported_settings, report_applied

        refuse_unsupported_settings(model)
        report_applied(model, options.sampling, options.reporter)
        suited = [choice.with_default("least_score", model.least_score) for choice in choices]
        return Decoder.settle(model, options), suited


def open_pending_model(options: DecodeOptions) -> PendingModel:
    """Load the tokenizer.

    Raises as `read_facts`, and UsageError for a SpeCache of another number of layers.
    """
    given: Any = options.model
    if hasattr(given, "tokenizer"):  # a LanguageModel
        return PendingModel(given.name, given.tokenizer, given.context, lambda: given)
    ref = named_model(given, options.reporter)
    facts = read_facts(ref)
    if options.specache is not None and facts.layers is not None:
        options.specache.of_layers(facts.layers)

    @functools.cache
    def load() -> LanguageModel:
        options.reporter.stage(f"loading {ref.name}")  # torch and the weights take seconds
        from ngramkit.decode.load import load_weights

        return load_weights(
            ref,
            tokenizer,
            device=options.device,
            dtype=options.dtype,
            device_map=options.device_map,
            trust_remote_code=options.trust_remote_code,
        )

    tokenizer = load_tokenizer(ref, trust_remote_code=options.trust_remote_code)
    return PendingModel(ref.name, tokenizer, facts.context, load)
