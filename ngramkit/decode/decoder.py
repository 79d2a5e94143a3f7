"""A loaded model with settled options."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import torch

from ngramkit.basics.errors import UsageError
from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.costs import MAX_NODES, PassCosts
from ngramkit.budget.profile import Profile
from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.ends import StopStrings
from ngramkit.decode.generation import applied_settings, choice_and_stop_of, either_ends
from ngramkit.decode.kept_costs import keep_costs, learnt_costs, profile_file
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Run, decode
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.packed_weights import packed_weights_of
from ngramkit.decode.pass_threads import PassThreads, pass_threads
from ngramkit.decode.prompts import require_prompt_fits
from ngramkit.decode.request import Request
from ngramkit.decode.result import Decoded
from ngramkit.decode.sampling import MAX_SEED
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.prefetching_cache import CacheFacts
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.decode.verifiers import choose_verify_mode, open_verifier, require_own_inputs
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.references import Given as References
from ngramkit.drafters.registry import NoDraft


@dataclass(frozen=True)
class Decoder:
    """A loaded model with settled options, which answers requests.

    `verify` is tree, batch or chain, `budget` the maximum of draft nodes per pass. With `costs` the
    draft size adapts.
    """

    model: LanguageModel
    options: DecodeOptions
    verify: str
    budget: int
    costs: PassCosts | None = None
    references: References = ()

    @classmethod
    def settle(cls, model: LanguageModel, options: DecodeOptions | None = None) -> Decoder:
        """Settle verify mode and budget.

        Raises InputError if the model cannot verify drafts or its profile is broken, UsageError in
        training mode.
        """
        options = options or DecodeOptions()
        if any(module.training for module in model.model.modules()):
            raise UsageError(
                "the model must be in evaluation mode, got training mode",
                "Call model.eval() first.",
                option="model",
            )
        if options.cache is not None:
            require_own_inputs(model.model)
            return cls(model, options, "tree", 1)
        verify = choose_verify_mode(model.model, options.verify)
        if isinstance(options.budget, int):
            return cls(model, options, verify, options.budget)
        path = profile_file(model.model)
        options.reporter.note("budget: auto" if path is None else f"budget: auto, from {path}")
        profile = None if path is None else Profile.load(path)
        return cls(model, options, verify, MAX_NODES, learnt_costs(model.model, verify, profile))

    @property
    def shown_budget(self) -> int | str | None:
        if self.options.cache is not None:  # it verifies no drafts
            return None
        return self.budget if self.costs is None else "auto"

    def with_seed_offset(self, offset: int) -> Decoder:
        seed = (self.options.seed + offset) & MAX_SEED
        return replace(self, options=replace(self.options, seed=seed))

    def undrafted(self) -> Decoder:
        return replace(self, costs=None, references=())

    def decode(
        self,
        request: Request,
        drafter: Drafter,
        sink: Sink | None = None,
        verifier: Verifier | None = None,
    ) -> Decoded:
        """Decode a request until an end or Ctrl-C.

        `sink` gets each token and whether it was drafted. `verifier` holds the beginning of the
        prompt.
        """
        with packed_weights_of(self.model.model):
            if self.options.specache is not None:
                return self._decode_with(self.options.specache, request, drafter, sink)
            verifier = verifier or open_verifier(self.model.model, self.verify, room=request.room)
            run = decode(verifier, drafter, self._budgeted(request, drafter), sink)
            if self.costs is not None:
                keep_costs(self.model.model, self.verify, self.costs)
            return run

    def _decode_with(
        self, cache: SpeCache, request: Request, drafter: Drafter, sink: Sink | None
    ) -> Decoded:
        vocabulary = self.model.model.config.get_text_config().vocab_size
        guesses = None if cache.speculative == "model" else Guesses(drafter, vocabulary)
        two_rows = SpeCacheVerifier(self.model.model, cache, room=request.room, guesses=guesses)
        with closing(two_rows):
            run = decode(two_rows, two_rows.drafter, request, sink)
            used = two_rows.run
        hits = used.hits if cache.measure else None
        return replace(run, cache=CacheFacts(cache, used.bytes, hits))

    def run(self, prompt: TokenArray, drafter: Drafter) -> Run:
        return self.start(self.request(prompt), drafter)

    def start(self, request: Request, drafter: Drafter) -> Run:
        verifier = open_verifier(self.model.model, self.verify, room=request.room)
        return Run(verifier, drafter, self._budgeted(request, drafter))

    def open(self, prompt: TokenArray) -> ResumableVerifier:
        """Open a verifier with room for the prompt, int32[n], its answer and one draft."""
        return open_verifier(self.model.model, self.verify, room=self.request(prompt).room)

    def request(self, prompt: TokenArray) -> Request:
        """Return the request to continue the prompt, int32[n].

        Raises UsageError for an empty prompt, InputError for one that is too long or has an unknown
        id.
        """
        model, options = self.model, self.options
        require_prompt_fits(prompt, model.name, model.context, model.vocabulary)
        request = Request(
            prompt=prompt,
            max_new_tokens=options.max_new_tokens,
            budget=self.budget,
            eos=model.eos,
            context=model.context,
            references=self.references,
        )
        sampling = options.sampling
        if not sampling.greedy or applied_settings(model, sampling):
            choice, stop = choice_and_stop_of(
                model, prompt, sampling, max_length=len(prompt) + request.longest
            )
            request = replace(request, choice=choice, stop=stop)
        if options.stop:
            stop = StopStrings(model.tokenizer.backend, prompt, options.stop).completed_by
            either = stop if request.stop is None else either_ends(request.stop, stop)
            request = replace(request, stop=either)
        return request

    @property
    def threads(self) -> PassThreads | None:
        several = self.model.model.device.type == "cpu" and torch.get_num_threads() > 1
        return pass_threads() if several else None

    def _budgeted(self, request: Request, drafter: Drafter) -> Request:
        request = replace(request, threads=self.threads)
        if self.costs is None or isinstance(drafter, NoDraft):
            return request
        return replace(request, auto=AutoBudget(self.costs, drafter, rows=self.verify == "batch"))
