"""Decode held-out prompts with and without drafts: `python -m ngramkit.evaluate.demo`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ngramkit.basics.errors import NgramkitError
from ngramkit.basics.progress import Reporter
from ngramkit.choose import choose_drafter
from ngramkit.decode.compare import Comparison, compare
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.sources import Sources

DEFAULT_PROMPTS = 3
DEFAULT_NEW_TOKENS = 128
TABLE_HEAD = ("drafter", "tokens/step", "tokens/s", "without", "speed-up", "output")
TABLE_LINE = "{:<9}  {:>11}  {:>8}  {:>7}  {:>19}  {:>13}"  # fits 80 columns


def main() -> int:
    try:
        model = load_model("demo")
        drafters = demo_drafters(model)
    except NgramkitError as error:
        print(f"error: {error}\n  -> {error.hint}", file=sys.stderr)
        return 1
    print(
        f"\n{DEFAULT_PROMPTS} prompts from files that neither the model nor the artifacts ever saw,"
    )
    print(
        f"{DEFAULT_NEW_TOKENS} tokens each, with as many draft nodes per pass as pay for their "
        "time:\n"
    )
    print(TABLE_LINE.format(*TABLE_HEAD))
    decoder, identical = (
        Decoder.settle(model, DecodeOptions(max_new_tokens=DEFAULT_NEW_TOKENS)),
        True,
    )
    for where, text in demo_prompts(DEFAULT_PROMPTS):
        print(f"\n{where}")
        prompt = model.tokenizer.encode_prompt(text)
        for name, make_drafter in drafters.items():
            result = compare(decoder, prompt, make_drafter)
            print(table_line(name, result), flush=True)
            identical = identical and result.identical
    return 0 if identical else 1


class Notes(Reporter):
    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


def demo_drafters(model: LanguageModel) -> dict[str, Callable[[], Drafter]]:
    """Return {name: factory}; blend omits the frozen table of the same corpus."""
    record, notes = model.tokenizer.record, Notes()
    rest = choose_drafter("rest", record, reporter=notes)
    cacheback = choose_drafter("cacheback", record, reporter=notes)
    blend = choose_drafter("blend", record, Sources(datastores=rest.opened), reporter=notes)
    return {choice.label: choice.load for choice in (blend, rest, cacheback)}


def table_line(name: str, result: Comparison) -> str:
    return TABLE_LINE.format(
        name,
        f"{result.drafted.tokens_per_step:.2f}",
        f"{result.drafted.tokens_per_second:.0f}",
        f"{result.baseline.tokens_per_second:.0f}",
        result.shown_speedup,
        "identical" if result.identical else "NOT identical",
    )


if __name__ == "__main__":
    raise SystemExit(main())
