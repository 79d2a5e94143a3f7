"""A check of an engine: version, configuration, artifacts, tokenizer, a draft."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.arguments import refuse_earlier_names
from ngramkit.basics.errors import (
    InputError,
    UsageError,
    require_between,
    require_list,
    require_texts,
)
from ngramkit.basics.kinds import KINDS
from ngramkit.basics.machine import version_of
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.terminal_text import visible
from ngramkit.budget.crossover import gain_of_drafts, stops_paying
from ngramkit.budget.model_files import read_size
from ngramkit.budget.pass_times import pass_times
from ngramkit.drafters.registry import drafter_entry
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.engines import sglang_server_options, vllm_server_options
from ngramkit.engines.config import (
    CONFIG_VARIABLE,
    ENGINES,
    KEY_RANGES,
    DraftConfig,
    existing_history,
    local_folders,
    require_engine,
    require_usable_config,
)
from ngramkit.engines.metrics import require_metrics
from ngramkit.engines.options_file import GivenOptions, read_options
from ngramkit.engines.vllm_modes import (
    MODES,
    V1_SETTING,
    is_cpu_build,
    why_not_v2_before_start,
)
from ngramkit.engines.vllm_server_options import config_in_options, weight_options
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.history import require_writable_folder
from ngramkit.formats.opening import open_artifact_folder

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer
    from ngramkit.engines.batch import BatchDrafter

Tokens = npt.NDArray[np.int32]
PROMPT_TEXT = "The answer to the question is that"  # the prompt
PROMPT_TOKENS = 16  # tokens of a datastore that are the prompt without a tokenizer
SHOWN_TOKENS = tuple(1 << i for i in range(10))  # of passes
# Engine -> what the options of its server mean for drafts.
EFFECTS = {
    "vllm": vllm_server_options.effects_of_vllm_options,
    "sglang": sglang_server_options.effects_of_sglang_options,
}
# Engine -> the tokens of a draft that its options ask for, and whether all are verified.
DRAFTS = {
    "vllm": vllm_server_options.drafts_of_vllm_options,
    "sglang": sglang_server_options.drafts_of_sglang_options,
}
DEFAULT_BUDGET, MAX_BUDGET = 8, 64
MAX_NODES = KEY_RANGES["budget"][1]
TIMED_CALLS = 20  # timed calls, whose median is shown


@dataclass(frozen=True)
class CheckedArtifact(Result):
    path: str
    kind: str
    tokenizer: str  # the model that it was built for
    vocabulary: int


@dataclass(frozen=True)
class CheckedMode(Result):
    """A way to draft in vLLM."""

    runner: str  # V1 or V2
    mode: str
    options: str  # of the server
    usable: bool  # with the version that is installed
    known: str  # about its speed, or why it is not usable


@dataclass(frozen=True)
class CheckedPass(Result):
    """The cost of a pass, and the gain of drafts if as many requests as it has tokens are served.

    Typical drafts: each token is accepted with `budget.crossover.ACCEPTANCE` after accepted ones.
    """

    tokens: int
    cost: float  # in passes over one token
    drafted: float  # tokens for each request that are worth verifying
    speed: float  # with drafts, over no drafts
    padded: float  # the same if all tokens of a draft are verified, as in SGLang


@dataclass(frozen=True)
class CheckedEngine(Result):
    """The findings about an engine; None if there was nothing to check."""

    engine: str
    version: str | None  # installed here
    tried: tuple[str, ...]
    source: str  # of the configuration
    drafter: str
    artifacts: Rows[CheckedArtifact]
    history: str | bool | None  # as in the configuration
    drafts_from: tuple[str, ...]  # its sources, in words
    learns: str  # what it remembers of finished requests, in words
    notes: tuple[str, ...]  # what is missing, and what is given but not used
    effects: tuple[str, ...]  # of the engine's options
    model: str | None
    prompt: str | None
    draft: str | None  # after `prompt`
    draft_tokens: int
    milliseconds: float  # of a call of one row
    modes: Rows[CheckedMode]  # the best known first; none for engines with one mode
    passes: Rows[CheckedPass]
    passes_by: str  # what their costs follow from
    pays_below: int | None  # requests at once; None: drafts pay for thousands
    budget: int  # tokens of a draft in `passes`
    padded: bool  # all of them are verified, drafted or not: `pays_below` is about these


@refuse_earlier_names(tokens="budget")
def check_engine(
    engine: str,
    *,
    model: str | None = None,
    draft: str | Path | Mapping[str, Any] | None = None,
    budget: int | None = None,
    options: Sequence[str] = (),
    trust_remote_code: bool = False,
) -> CheckedEngine:
    """Open what an engine would open, compare it with `model`'s tokenizer, and draft once.

    `engine`: one of `engines.config.ENGINES`. `draft`: the configuration, its JSON or a
    file of that (default: NGRAMKIT_DRAFT, else the engines' default). `budget`: draft nodes, at
    most (default: as many as the options or the configuration ask for, else 8). `model`: a short
    name, a Hub id or a folder; without one nothing is compared, and a datastore gives the prompt.
    `options`: of `vllm serve` or SGLang's server, such as ["--no-async-scheduling"], also in a file
    that "--config" names, whose effects are reported. Without a configuration, vLLM's options may
    hold it.
    Costs of passes follow from pass_cost of the configuration, else from `model`'s config.

    Raises UsageError for an unknown engine, InputError if metrics cannot be written or a file of
    options cannot be read, and as `DraftConfig.read`, `engines.source.open_source` and
    `require_same_encoding`.
    """
    from ngramkit.corpus.tokenizer import load_tokenizer

    require_engine(engine)
    if budget is not None:
        require_between("budget", budget, 1, MAX_BUDGET)
    require_list("options", options)
    options = list(options)
    require_texts("options", options)
    if options and engine not in EFFECTS:
        raise UsageError(
            f"cannot read options of {engine}, only of {' and '.join(EFFECTS)}",
            "Leave them out.",
            option="options",
        )
    about = ENGINES[engine]
    source = CONFIG_VARIABLE if draft is None else "what was given"
    config = DraftConfig.from_environment() if draft is None else DraftConfig.read(draft, "draft")
    read = read_options(options)
    option_effects = tuple(EFFECTS[engine](read, config)) if options else ()
    if config is None and engine == "vllm":
        source, config = "ngramkit in --additional-config", config_in_options(read)
    if config is None:
        source, config = f"none: {CONFIG_VARIABLE} is not set", DraftConfig()
    if model is None and config == DraftConfig():
        raise UsageError(
            "cannot check an engine without a configuration or a model",
            f"Set {CONFIG_VARIABLE}, or give model.",
            option="model",
        )
    require_usable_config(config, engine)
    learns = drafter_entry(DrafterSpec.parse(config.drafter).name).uses("history")
    if model is None and learns and not config.artifacts and existing_history(config) is None:
        raise UsageError(
            f"cannot check {config.drafter} without a model: it has no artifact to draft from",
            "Give model.",
            option="model",
        )
    if config.metrics is not None:
        require_metrics(Path(config.metrics))
    if isinstance(config.history, str) and config.store:
        require_writable_folder(Path(config.history))
    for _, folder in local_folders(config):
        open_artifact_folder(folder)  # report damage before numba is imported
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code) if model else None
    from ngramkit.engines.batch import BatchDrafter

    record = tokenizer.record if tokenizer is not None else None
    checked = replace(config, store=False, metrics=None)  # an engine may be running
    if isinstance(config.history, str) and existing_history(config) is None:
        of_tenants = config.history_by is not None and Path(config.history).is_dir()
        if not of_tenants:  # the engine makes the folder
            checked = replace(checked, history=True)
    drafter = BatchDrafter.open(
        checked, vocabulary=record.vocabulary if record else None, tokenizer=record
    )
    if tokenizer is not None:
        drafter.require_same_encoding(tokenizer.encode)
    artifacts = drafter.source.artifacts
    asked, padded = DRAFTS[engine](read) if engine in DRAFTS else (None, False)
    most = None if padded else config.tokens  # has no effect on padded drafts
    if engine == "sglang":
        most = config.budget
    length = min(budget or asked or most or DEFAULT_BUDGET, most or MAX_NODES)
    slots = min(budget or asked or length, MAX_NODES) if padded else length
    context, text = _context_for_timing(tokenizer, artifacts)
    chain, seconds = _time_drafts(drafter, context, min(length, MAX_BUDGET))
    return CheckedEngine(
        engine,
        version_of(about.distribution),
        about.tried,
        source,
        config.drafter,
        Rows(
            CheckedArtifact(str(a.path), a.kind, a.tokenizer.id, a.tokenizer.vocabulary)
            for a in artifacts
        ),
        config.history,
        *_describe_sources(
            config, artifacts, list(_unused_keys(engine, config, by_default=not options and padded))
        ),
        option_effects,
        model,
        text,
        tokenizer.decode_answer(chain) if tokenizer is not None else None,
        len(chain),
        1e3 * seconds,
        Rows(vllm_modes() if engine == "vllm" else ()),
        *_passes_table(engine, config, model, length, slots, read, padded=padded),
        length,
        padded,
    )


def _unused_keys(engine: str, config: DraftConfig, *, by_default: bool) -> Iterator[str]:
    """Yield notes about keys without effect. `by_default`: vLLM has no options: its fixed mode."""
    yield from (
        f"{key} has no effect in this engine" for key in config.unused(ENGINES[engine].unused)
    )
    if engine == "vllm" and by_default and (keys := config.unused(MODES["fixed"].unused)):
        yield f"these keys have no effect in the fixed mode, vLLM's default: {', '.join(keys)}"
    if engine == "sglang" and config.min_probability is not None:
        yield "min_probability shortens only chains; with trees it only lets drafting pause"
    elif engine == "sglang" and not config.pause:
        yield "pause has no effect in this engine without min_probability"


def _describe_sources(
    config: DraftConfig, artifacts: Sequence[Artifact], unused_keys: Sequence[str]
) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return `drafts_from`, `learns` and `notes` of a CheckedEngine."""
    name = DrafterSpec.parse(config.drafter).name
    entry = drafter_entry(name)
    used = [artifact for artifact in artifacts if entry.uses(KINDS[artifact.kind].role or "")]
    found = [f"{artifact.path}, a {artifact.kind}" for artifact in used]
    unused = [f"{each.path} is not used: {name} does not draft from it"
              for each in artifacts if each not in used]  # fmt: skip
    remembers = bool(config.history) and entry.uses("history")
    if config.history and not remembers:
        unused.append(f"history is not used: {name} does not draft from it")
    kept = existing_history(config) if remembers else None
    unused += unused_keys
    requests = 0 if kept is None else len(kept.read().requests)
    if requests:
        found.append(f"{requests:,} past requests")
    learns = _describe_learning(config) if remembers else "nothing"
    if entry.own_text:
        found.insert(0, "the text of the request itself")
    missing = []
    if entry.needs_evidence:
        missing.append(f"{name} needs the model's top-k, which engines do not give")
    if not found:
        missing.append("there is nothing to draft from" + (" until requests finish" * remembers))
    elif not used and not requests and not remembers:
        missing.append("only the request's own text is drafted from: add datastores or a history")
    return tuple(found), learns, (*missing, *unused)


def _describe_learning(config: DraftConfig) -> str:
    if not config.store:
        return "nothing: store is false"
    what = "prompts and answers" if config.history_prompts else "answers"
    where = "in memory" if config.history is True else f"in {config.history}"
    apart = f", one history for each {config.history_by}" if config.history_by else ""
    return f"the {what} of finished requests, {where}{apart}"


def _passes_table(
    engine: str,
    config: DraftConfig,
    model: str | None,
    length: int,
    slots: int,
    options: GivenOptions,
    *,
    padded: bool,
) -> tuple[Rows[CheckedPass], str, int | None]:
    size, by = None, "pass_cost"
    if config.pass_cost is None:
        with suppress(InputError):  # a tokenizer is enough
            served = weight_options(options) if engine in EFFECTS else (None, None)
            size = read_size(model, *served) if model else None
        cpu = engine == "llama-cpp" or is_cpu_build(version_of(ENGINES[engine].distribution))
        device = "cpu" if cpu else "cuda"
        what = "a dense model" if size is None else f"the config of {model}"
        by = f"{what}, on a {'CPU' if cpu else 'GPU'}"
        if size is not None and size.unknown:
            by += f"; weights of the unknown quantisation {visible(size.unknown)!r} count 16 bits"
        times = pass_times(None, size, device)
    else:
        times = pass_times(config.pass_cost)
    rows = []
    one = float(times.times(np.ones(1))[0])
    for tokens in SHOWN_TOKENS:
        found = gain_of_drafts(times, tokens, length, slots=slots)
        cost = float(times.times(np.array([float(tokens)]))[0]) / one
        figures = (round(each, 3) for each in (cost, *found))
        rows.append(CheckedPass(tokens, *figures))
    return Rows(rows), by, stops_paying(times, length, padded=padded, slots=slots)


def vllm_modes() -> Iterator[CheckedMode]:
    """Yield the modes of Model Runner V2, then V1."""
    why = why_not_v2_before_start(version_of(ENGINES["vllm"].distribution))
    ngram = """--speculative-config '{"method": "ngram", "num_speculative_tokens": K}'"""
    for name, mode in MODES.items():
        options = f"{ngram} {mode.options}".strip()
        yield CheckedMode("V2", name, options, why is None, why or mode.known)
    known = "deprecated by vLLM; synchronous scheduling only"
    yield CheckedMode("V1", "trimmed", f"--speculative-config '{V1_SETTING}'", True, known)


def _time_drafts(drafter: BatchDrafter, context: Tokens, budget: int) -> tuple[Tokens, float]:
    """Return the draft after `context` and the median seconds of a call; 0 without a context."""
    chain, seconds = context, []
    for _ in range(TIMED_CALLS if len(context) else 0):
        drafter.sessions.clear()
        started = time.perf_counter()
        chain = drafter.chain_batch([context], [budget])[0].token_ids
        seconds.append(time.perf_counter() - started)
    return chain, statistics.median(seconds) if seconds else 0.0


def _context_for_timing(
    tokenizer: TextTokenizer | None, artifacts: Sequence[Artifact]
) -> tuple[Tokens, str | None]:
    if tokenizer is not None:
        return tokenizer.encode(PROMPT_TEXT), PROMPT_TEXT
    for artifact in artifacts:
        if isinstance(artifact, Datastore):
            return np.array(artifact.shards[0].tokens[:PROMPT_TOKENS], np.int32), None
    return np.zeros(0, np.int32), None
