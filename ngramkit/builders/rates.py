"""What each stage of a build takes on one core: measured, by `python -m benchmarks stages`.

Tokens by a second of processor time, on chat answers with a Llama tokenizer (3.8 bytes of text a
token). `CORES` says what bounds the cores that a stage can use.
"""

from __future__ import annotations

MACHINE = (
    "one hardware thread of an Intel Xeon (AMX, 2.0 GHz, virtual), beside other work, 2026-11-22"
)
READ = "read"
TOKENIZE = "tokenize"
TOKENIZE_FAST = "tokenize with gigatoken"
SORT = "sort"
COUNT = "count"
WRITE = "write"
CHOOSE = "choose passages"
RATES: dict[str, float] = {
    READ: 21e6,
    TOKENIZE: 0.50e6,
    TOKENIZE_FAST: 4.3e6,
    SORT: 4.3e6,
    COUNT: 10.5e6,
    WRITE: 87e6,
    CHOOSE: 2.1e6,
}
CORES: dict[str, str] = {
    READ: "one for each file",
    TOKENIZE: "one for each file",
    TOKENIZE_FAST: "one for each file",
    SORT: "one for each shard",
    COUNT: "all",
    WRITE: "one for each shard; a frozen table is one file",
    CHOOSE: "one",
}
TEXT_BYTES = 3.8  # of a token
