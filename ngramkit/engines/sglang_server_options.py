"""The options of SGLang's server that decide how ngramkit drafts, read without SGLang."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ngramkit.basics.terminal_text import visible
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.options_file import GivenOptions
from ngramkit.engines.vllm_server_options import OptionParser, effects_of_unread_file

# Options of SGLang's own corpus. Only the breadth has an effect, and only if it is 1.
IGNORED_SETTINGS = (
    "min-bfs-breadth", "max-trie-depth", "capacity", "match-type", "external-sam-budget",
    "external-corpus-max-tokens",
)  # fmt: skip


def effects_of_sglang_options(read: GivenOptions, config: DraftConfig | None) -> Iterator[str]:
    """Yield what follows from the server's options: whether ngramkit drafts first.

    `config`: that of NGRAMKIT_DRAFT. Raises UsageError for values that cannot be read.
    """
    given = _parse_options(read)
    algorithm, size = given.speculative_algorithm, given.speculative_num_draft_tokens
    if algorithm is None or algorithm.upper() != "NGRAM":
        got = "nothing" if algorithm is None else visible(algorithm, 40)
        yield f"ngramkit does not draft: --speculative-algorithm must be NGRAM, got {got}"
        return
    if config is None:
        yield f"ngramkit does not draft, but SGLang's own n-gram drafter: set {CONFIG_VARIABLE}"
        return
    shape = "chains" if given.speculative_ngram_max_bfs_breadth == 1 else "trees"
    if size is None:
        yield f"{shape} of one node less than SGLang's default number of draft tokens"
    elif size < 1:
        yield f"SGLang cannot draft: --speculative-num-draft-tokens must be at least 1, got {size}"
    else:
        yield f"{shape} of {size - 1} nodes; a pass verifies {size} tokens of each request"
    breadth = given.speculative_ngram_max_bfs_breadth
    if breadth is not None and breadth < 1:
        name = "--speculative-ngram-max-bfs-breadth"
        yield f"SGLang cannot draft: {name} must be at least 1, got {breadth}"
    if given.enable_dp_attention:
        yield "SGLang refuses n-gram drafts with --enable-dp-attention"
    yield from effects_of_unread_file(read.words)
    if given.speculative_ngram_external_corpus_path is not None:
        yield "--speculative-ngram-external-corpus-path is refused: build a datastore"
    for name in IGNORED_SETTINGS:
        if getattr(given, f"speculative_ngram_{name.replace('-', '_')}") is not None:
            yield f"--speculative-ngram-{name} has no effect"
    if given.tensor_parallel_size > 1:
        yield "tensor parallelism was not tried; the first rank writes the history"
    if given.data_parallel_size > 1:
        yield "each data-parallel replica drafts alone; the first one writes the history"
    if given.tokenizer_worker_num > 1:
        yield "several tokenizer workers refuse no wrong text, and add no templates of tools"
    if given.skip_tokenizer_init:
        yield "texts of requests are read as token ids only, as SGLang has no tokenizer"


def drafts_of_sglang_options(read: GivenOptions) -> tuple[int | None, bool]:
    """Return the nodes of a draft, if they are given, all of which SGLang verifies."""
    size = _parse_options(read).speculative_num_draft_tokens
    return max((size or 1) - 1, 0) or None, True


def _parse_options(read: GivenOptions) -> argparse.Namespace:
    parser = OptionParser(prog="sglang.launch_server", add_help=False)
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--speculative-num-draft-tokens", type=int)
    parser.add_argument("--speculative-ngram-max-bfs-breadth", type=int)
    parser.add_argument("--speculative-ngram-external-corpus-path")
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "--dp-size", "--dp", type=int, default=1)
    parser.add_argument("--tokenizer-worker-num", type=int, default=1)
    for name in ("--skip-tokenizer-init", "--enable-dp-attention"):
        parser.add_argument(name, action="store_true")
    for name in IGNORED_SETTINGS:
        parser.add_argument(f"--speculative-ngram-{name}")
    return parser.parse_known_args(read.words)[0]
