"""A model that is not loaded yet: wrong options are errors before torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ngramkit.basics.models import ModelRef, chosen_model
from ngramkit.budget.model_files import read_facts
from ngramkit.choose import DrafterChoice, choose_from_sources
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.reference_files import open_references
from ngramkit.drafters.references import NO_REFERENCES

if TYPE_CHECKING:
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel


@dataclass
class PendingModel:
    """A model's tokenizer and context (None: unknown); `load` loads it once."""

    options: DecodeOptions
    name: str
    tokenizer: TextTokenizer
    context: int | None
    model: LanguageModel | ModelRef  # a ModelRef until it is loaded

    def load(self) -> LanguageModel:
        if isinstance(self.model, ModelRef):
            self.options.reporter.stage(f"loading {self.name}")  # torch and weights take seconds
            from ngramkit.decode.load import load_weights

            self.model = load_weights(
                self.model,
                self.tokenizer,
                device=self.options.device,
                dtype=self.options.dtype,
                device_map=self.options.device_map,
                trust_remote_code=self.options.trust_remote_code,
            )
        return self.model

    def decoder(self, choices: Sequence[DrafterChoice]) -> tuple[Decoder, list[DrafterChoice]]:
        """Load the model; return a decoder and the choices fitted to it.

        Raises as `Decoder.settle`.
        """
        from ngramkit.decode.compile_while_loading import compile_meanwhile

        named = [choice.spec.name for choice in choices if choice.spec.make is None]
        with compile_meanwhile(named, self.tokenizer.record.vocabulary):
            model = self.load()
        from ngramkit.decode.decoder import Decoder
        from ngramkit.decode.generation import refuse_unsupported_settings, report_applied

        refuse_unsupported_settings(model)
        report_applied(model, self.options.sampling, self.options.reporter)
        suited = [choice.with_default("least_score", model.least_score) for choice in choices]
        return Decoder.settle(model, self.options), suited


def open_pending_model(options: DecodeOptions) -> PendingModel:
    """Load the tokenizer.

    Raises as `read_facts`, and UsageError for a SpeCache of another number of layers.
    """
    given: Any = options.model
    if hasattr(given, "tokenizer"):  # a LanguageModel
        return PendingModel(options, given.name, given.tokenizer, given.context, given)
    ref = ModelRef.of(chosen_model(given, options.reporter).name)
    facts = read_facts(ref)
    if options.specache is not None and facts.layers is not None:
        options.specache.of_layers(facts.layers)
    tokenizer = load_tokenizer(ref, trust_remote_code=options.trust_remote_code)
    return PendingModel(options, ref.name, tokenizer, facts.context, ref)


def load_decoder(pending: PendingModel) -> tuple[Decoder, DrafterChoice]:
    """Choose the drafter and load the model, in this order. A SpeCache needs no drafter."""
    options = pending.options
    references = NO_REFERENCES
    if len(options.references):
        references = open_references(options.references, pending.tokenizer, options.reporter)
    drafter = options.drafter or (None if options.cache is None else "none")
    choice = choose_from_sources(
        drafter, pending.tokenizer.record, options.sources(), options.reporter, pending.load
    )
    decoder, (choice,) = pending.decoder([choice])
    return replace(decoder, references=references), choice
