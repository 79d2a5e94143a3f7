"""Runs that write the same text, a pass of one and then of the other: for comparing their times.

A machine that other programs use is slower now and faster then, by a fifth within a second. Runs
one after another differ by that; runs in turns, a pass at a time, meet the same of it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from ngramkit.budget.costs import MOST
from ngramkit.budget.profile import Profile
from ngramkit.budget.rule import AutoBudget, prepare
from ngramkit.choose import DrafterChoice, choose_drafter, given_drafter
from ngramkit.corpus.chat import OWN, Message, Template
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.loop import Request, Run, decode
from ngramkit.decode.profiles import keep_costs, learnt_costs, profile_file
from ngramkit.decode.result import Decoded, StopStrings
from ngramkit.decode.sampling import GREEDY, MOST_SEED, Sampling
from ngramkit.decode.specache.decoding import CacheFacts, specache_verifier
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.verifiers import open_verifier, require_known, settled
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.references import Given as References
from ngramkit.drafters.registry import NoDraft
from ngramkit.drafters.sources import Given, Sources
from ngramkit.errors import InputError, UsageError, require_between
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.warming import meanwhile


def in_lockstep(runs: Sequence[Run]) -> list[Decoded]:
    """All to their ends. Next is always a pass of the run that has written the fewest tokens, and
    each run's clock stands while it is another's turn. Ctrl-C is raised."""
    with torch.inference_mode():
        try:
            for run in runs:
                run.resume()
                run.begin()
            while going := [run for run in runs if not run.ended_by]:
                run = min(going, key=lambda each: each.tokens)
                run.resume()
                run.step()
        finally:
            for run in runs:
                run.resume()
                run.finish()
    return [run.result() for run in runs]


# How a loaded model's passes are run: everything that "auto" and None stood for, settled once.
#
# The one place that asks `verifiers` what a model can be given. Knows transformers models, no
# tokenizers and no text.

MOST_NODES = 4096  # of a draft; attention to itself grows with their square


@dataclass(frozen=True)
class Runner:
    """`model` is a transformers causal LM, `engine` eager or static, `verify` tree, batch or
    chain.

    `budget` is the most draft nodes of a pass; with `auto` as many of them as pay for their time,
    which is learnt, from a `profile` on if there is one. With `cache`, a SpeCache, there are no
    drafts, and what is written is not the model's own.
    """

    model: Any
    engine: str
    verify: str
    budget: int
    auto: bool = False
    profile: Profile | None = None
    cache: SpeCache | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        budget: int | Literal["auto"] | None = None,
        engine: str = "auto",
        verify: str | None = None,
        cache: SpeCache | None = None,
        reporter: Reporter = SILENT,
    ) -> Runner:
        """As ngramkit.PassOptions says; `reporter` hears of an auto budget.

        Raises UsageError for what makes no sense, InputError for a model that can take no drafts
        and for a profile that is none.
        """
        if cache is not None:
            return cls(model, "eager", "tree", 1, cache=cache)
        if isinstance(budget, int):
            require_between("budget", budget, 1, MOST_NODES)
        engine, verify = settled(model, engine, verify)
        if isinstance(budget, int):
            return cls(model, engine, verify, budget)
        path = profile_file(model, engine)
        reporter.note("budget: auto" if path is None else f"budget: auto, from {path} on")
        profile = None if path is None else Profile.load(path)
        return cls(model, engine, verify, MOST, True, profile)

    @property
    def shown_budget(self) -> int | str:
        """As users write it."""
        return "auto" if self.auto else self.budget

    def undrafted(self) -> Runner:
        """For passes without drafts: there is nothing to decide about."""
        return replace(self, auto=False, profile=None)

    def open(self, tokens: int) -> ResumableVerifier:
        """A verifier with room for so many tokens and one draft."""
        return open_verifier(self.model, self.verify, self.engine, room=tokens + self.budget)

    def decode(
        self,
        request: Request,
        drafter: Drafter,
        sink: Sink | None = None,
        verifier: Verifier | None = None,
    ) -> Decoded:
        """Writes what was requested. `verifier`: one that holds the prompt's beginning, in place of
        an empty one. Ctrl-C ends it; what was written until then is returned."""
        request = self.budgeted(request, drafter)
        room = len(request.prompt) + request.longest
        if self.cache is None:
            found = decode(verifier or self.open(room), drafter, request, sink)
            if request.auto is not None:
                keep_costs(self.model, self.engine, self.verify, request.auto.costs)
            return found
        with specache_verifier(self.model, self.cache, room=room, drafter=drafter) as low:
            run = decode(low, low.drafter, request, sink)
            return replace(run, cache=CacheFacts.of(low.run))

    def budgeted(self, request: Request, drafter: Drafter) -> Request:
        """With the rule that cuts `drafter`'s drafts to what pays, where that is wanted."""
        if not self.auto or isinstance(drafter, NoDraft):
            return request
        costs = learnt_costs(self.model, self.engine, self.verify, self.profile)
        return replace(request, auto=AutoBudget(costs, drafter, rows=self.verify == "batch"))


# Text to the ids a model is prompted with, special tokens included.


def prompt_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as it stands, with the special tokens (BOS) that the tokenizer adds."""
    return tokenizer.encode_prompt(text)


def chat_ids(
    tokenizer: TextTokenizer, template: Template, messages: Sequence[Message]
) -> TokenArray:
    """int32[n]: a conversation, up to where the model's next answer begins.

    A model's own template writes all special tokens itself; of others BOS, if at all, is theirs or
    the tokenizer's.
    """
    text = template.prompt(messages)
    if template.name == OWN:
        return tokenizer.encode(text)
    ids = tokenizer.encode_prompt(text)
    twice = len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos
    return ids[1:] if twice else ids


# What a loaded model is to write after prompts; the same with and without drafts, timed fairly.

WARM_UP = 4  # tokens


@dataclass(frozen=True)
class Task:
    """How every prompt is answered: by which model, in which passes, how long, how chosen."""

    model: LanguageModel
    runner: Runner
    max_new_tokens: int = 128
    sampling: Sampling = GREEDY
    stop: Sequence[str] = ()
    references: References = ()  # what answers are likely to repeat, for the drafter

    def __post_init__(self) -> None:
        require_between("max_new_tokens", self.max_new_tokens, 1)

    def numbered(self, number: int) -> Task:
        """With a seed of its own for every number."""
        sampling = replace(self.sampling, seed=self.sampling.seed + number)
        return replace(self, sampling=sampling)

    def undrafted(self) -> Task:
        """To be measured without drafts."""
        return replace(self, runner=self.runner.undrafted(), references=())

    def open(self, prompt: TokenArray) -> ResumableVerifier:
        """A verifier with room for the prompt, int32[n], its answer and one draft."""
        return self.runner.open(len(prompt) + self.request(prompt).longest)

    def complete(
        self,
        prompt: TokenArray,
        drafter: Drafter,
        sink: Sink | None = None,
        verifier: Verifier | None = None,
    ) -> Decoded:
        """Writes what the model writes after the prompt, int32[n].

        `sink` is called with every written token and whether a draft held it. `verifier`: one that
        holds the prompt's beginning, in place of an empty one. Raises UsageError for an empty
        prompt, InputError for one that is too long.
        """
        return self.runner.decode(self.request(prompt), drafter, sink, verifier)

    def run(self, prompt: TokenArray, drafter: Drafter) -> Run:
        """The same, not begun yet."""
        request = self.runner.budgeted(self.request(prompt), drafter)
        return Run(self.open(prompt), drafter, request)

    def request(self, prompt: TokenArray) -> Request:
        """What the loop is asked for; raises as `complete`."""
        model = self.model
        if len(prompt) == 0:
            raise UsageError("the prompt is empty", "give at least one token of text")
        if model.context is not None and len(prompt) >= model.context:
            raise InputError(
                f"the prompt has {len(prompt):,} tokens, the context of {model.name} "
                f"{model.context:,}",
                "shorten the prompt",
            )
        stop = None
        if self.stop:
            stop = StopStrings(model.tokenizer.backend, prompt, self.stop).completed_by
        return Request(
            prompt=prompt,
            max_new_tokens=self.max_new_tokens,
            budget=self.runner.budget,
            sampling=self.sampling,
            eos=model.eos,
            context=model.context,
            stop=stop,
            references=self.references,
        )


@dataclass(frozen=True)
class Comparison:
    """Of one round, or the best round of each where they could not take turns."""

    drafted: Decoded
    baseline: Decoded
    rounds: tuple[float, ...] = ()  # the speed-up of each

    @property
    def shown_speedup(self) -> str:
        """The speed-up, with the least and the most of all rounds where there were several."""
        if len(self.rounds) < 2:
            return f"{self.speedup:.2f}"
        return f"{self.speedup:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.drafted.seconds

    @property
    def identical(self) -> bool:
        return self.drafted.same_tokens(self.baseline)


def warm_up(task: Task, prompt: TokenArray, drafter: Drafter) -> None:
    """A few tokens nobody sees, after the prompt's last: imports and kernels are paid for once.

    Recordings hold for one memory and one size of context: there the whole prompt is read, in the
    memory that the task will be given.
    """
    if task.runner.auto and not isinstance(drafter, NoDraft):
        prepare()
    short = prompt[-WARM_UP:]
    if task.runner.engine == "static":
        task.open(prompt)
        short = prompt
    _whole(replace(task, max_new_tokens=WARM_UP, stop=()).complete(short, drafter))


def compare(
    task: Task,
    prompt: TokenArray,
    make_drafter: Callable[[], Drafter],
    *,
    rounds: int = 3,
    seconds: float = 5.0,
) -> Comparison:
    """With and without drafts, so that a machine that others use as well favours neither: on a CPU
    pass by pass in turns (see `lockstep`), of which the quickest round counts.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once `seconds` are spent. Ctrl-C is raised.
    """
    alone = task.undrafted()
    warm_up(task, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    started = time.perf_counter()
    found: list[Comparison] = []
    for _ in range(rounds):
        found.append(_round(task, alone, prompt, make_drafter()))
        if time.perf_counter() - started > seconds:
            break
    speedups = tuple(each.speedup for each in found)
    if takes_turns(task):
        quickest = min(found, key=lambda each: each.drafted.seconds + each.baseline.seconds)
        return replace(quickest, rounds=speedups)
    drafted = min((each.drafted for each in found), key=_seconds)
    return Comparison(drafted, min((each.baseline for each in found), key=_seconds), speedups)


def takes_turns(task: Task) -> bool:
    """Whether two runs may go on at a time: recordings share their memory, a device may have none
    for a second cache."""
    runner = task.runner
    on_cpu: bool = runner.model.device.type == "cpu"
    return on_cpu and runner.engine == "eager" and runner.cache is None


def _round(task: Task, alone: Task, prompt: TokenArray, drafter: Drafter) -> Comparison:
    if takes_turns(task):
        runs = [task.run(prompt, drafter), alone.run(prompt, NoDraft())]
        drafted, baseline = in_lockstep(runs)
        return Comparison(drafted, baseline)
    baseline = _whole(alone.complete(prompt, NoDraft()))
    return Comparison(_whole(task.complete(prompt, drafter)), baseline)


def _whole(run: Decoded) -> Decoded:
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def _seconds(run: Decoded) -> float:
    return run.seconds


# Many prompts written on at once, without drafts: for throughput, where nobody waits.
#
# A row of a batch may differ from the same prompt written alone where two tokens are nearly
# equally likely: padding changes how sums are rounded. Knows token ids; knows nothing of files or
# questions.


def write_batch(
    model: LanguageModel,
    prompts: Sequence[TokenArray],
    *,
    max_new_tokens: int,
    sampling: Sampling,
) -> list[TokenArray]:
    """What the model writes after each of `prompts` (int32[n] each, at least one): int32[m] each,
    m <= max_new_tokens, an EOS at the end where it wrote one. Leaves torch's random state as it
    was."""
    longest = max(map(len, prompts))
    pad = min(model.eos, default=0)
    ids = np.full((len(prompts), longest), pad, np.int64)
    mask = np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    device = model.model.device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(sampling.seed)
        written = model.model.generate(
            torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            generation_config=_config(model, max_new_tokens, sampling, pad),
        )
    rows = written[:, longest:].cpu().numpy().astype(np.int32)
    return [_until_eos(row, model.eos) for row in rows]


def seeded(sampling: Sampling, index: int) -> Sampling:
    """The same with a seed of its own for the `index`-th batch."""
    return Sampling(
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        (sampling.seed + index) & MOST_SEED,
    )


def _config(model: LanguageModel, max_new_tokens: int, sampling: Sampling, pad: int) -> Any:
    """All of it: what a checkpoint recommends (a temperature, a penalty) is not asked for."""
    from transformers import GenerationConfig

    drawn: dict[str, Any] = {"do_sample": False}
    if not sampling.greedy:
        drawn = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
        }
    make: Any = GenerationConfig
    return make(
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted(model.eos) or None,
        pad_token_id=pad,
        **drawn,
    )


def _until_eos(row: TokenArray, eos: frozenset[int]) -> TokenArray:
    """Without the padding behind the first EOS."""
    ends = np.flatnonzero(np.isin(row, list(eos)))
    return row[: ends[0] + 1] if len(ends) else row


# How passes are run and drafts verified, as somebody asked for it.


@dataclass(frozen=True)
class PreparedModel:
    """A model's tokenizer, what loads the model, once, and how its passes are to be run."""

    tokenizer: TextTokenizer
    load: Callable[[], LanguageModel]
    passes: PassOptions

    def choose(
        self,
        drafter: Any,
        artifacts: Sources | Sequence[Given] | Given = (),
        reporter: Reporter = SILENT,
    ) -> DrafterChoice:
        """As `choose_drafter`; `drafter` may be an object or a function of the caller's too."""
        record = self.tokenizer.record
        if drafter is not None and not isinstance(drafter, str):
            return given_drafter(drafter, record)
        return choose_drafter(drafter, record, artifacts, reporter=reporter, load_model=self.load)

    def task(
        self,
        choices: Sequence[DrafterChoice],
        max_new_tokens: int,
        sampling: Sampling,
        stop: Sequence[str],
        reporter: Reporter = SILENT,
    ) -> tuple[Task, list[DrafterChoice]]:
        """What the loaded model is to write, and the choices as they suit it. What the drafters
        need is compiled while the model loads.

        Raises ArtifactError where transformers gives the model other ids than its files, else as
        `PassOptions.runner`.
        """
        named = [choice.spec.name for choice in choices if choice.made is None]
        meanwhile.begin(*named, vocabulary=self.tokenizer.record.vocabulary)
        model = self.load()
        meanwhile.wait()
        for artifact in (each for choice in choices for each in choice.opened):
            artifact.tokenizer.require(model.tokenizer.record, str(artifact.path))
        runner = self.passes.runner(model, reporter)
        task = Task(model, runner, max_new_tokens, sampling, tuple(stop))
        return task, [choice.with_default("least_score", model.least_score) for choice in choices]


@dataclass(frozen=True)
class PassOptions:
    """`budget`: draft nodes per pass at most; auto, or None: as many as pay for their time on this
    machine, which is learnt from the passes, so that their number differs from run to run; a number
    gives the same passes each time. `verify`: tree, batch or chain; None: tree where the model can.
    `engine`: auto, eager or static. `cache`: a SpeCache in place of the full one; then what is
    written is not the model's own. `device`, `dtype`, `device_map` and `trust_remote_code` as in
    load_model."""

    budget: int | Literal["auto"] | None = None
    verify: str | None = None
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    device_map: str | None = None
    cache: SpeCache | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        require_known(self.engine, self.verify)
        if isinstance(self.budget, int):
            require_between("budget", self.budget, 1, MOST_NODES)
        if self.cache is None:
            return
        for name in ("budget", "verify"):
            if getattr(self, name) is not None:
                raise UsageError(f"{name} is for drafts, a SpeCache takes none", option=name)
        if self.engine == "static":
            raise UsageError("a SpeCache runs eagerly", "leave out engine=static", option="engine")

    def require_full_cache(self, what: str) -> None:
        """Raises UsageError, naming `what` cannot have it, where a SpeCache was asked for."""
        if self.cache is not None:
            raise UsageError(
                f"{what} keeps its full cache; a SpeCache is for one prompt at a time",
                "leave out the cache, or give a prompt",
                option=("cache", "prompt"),
            )

    def load(self, model: str | LanguageModel | None, reporter: Reporter = SILENT) -> LanguageModel:
        """The model, loaded where it is named; None: the chosen one, which is said."""
        return self.prepare(model, reporter).load()

    def prepare(
        self, model: str | LanguageModel | None, reporter: Reporter = SILENT
    ) -> PreparedModel:
        """The same, loaded when it is needed: what makes no sense is told before."""
        if isinstance(model, LanguageModel):
            return PreparedModel(model.tokenizer, lambda: model, self)
        chosen = chosen_model(model)
        if chosen.why:
            reporter.note(f"model: {chosen.name} ({chosen.why})")
        where: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "device_map": self.device_map,
            "trust_remote_code": self.trust_remote_code,
        }
        load = functools.cache(lambda: load_model(chosen.name, **where))
        tokenizer = load_tokenizer(chosen.name, trust_remote_code=self.trust_remote_code)
        return PreparedModel(tokenizer, load, self)

    def runner(self, model: LanguageModel, reporter: Reporter = SILENT) -> Runner:
        """Everything settled for a loaded model; says what budget holds."""
        return Runner.of(
            model.model,
            budget=self.budget,
            engine=self.engine,
            verify=self.verify,
            cache=self.cache,
            reporter=reporter,
        )
