"""Options of decoding: which model, how long, how tokens are chosen, where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ngramkit.basics.errors import UsageError
from ngramkit_cli.shared_options import WHICH_MODEL, model_option, whole_numbers

if TYPE_CHECKING:
    from ngramkit.decode.specache.options import SpeCache


Model = Annotated[
    str | None,
    model_option(
        "A decoder-only causal language model: a short name, a Hub id, a folder or a GGUF file "
        f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}"
    ),
]
NEW_TOKENS = 128
NEW_TOKENS_OF_TURN = 1024
NewTokensOrMore = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        min=1,
        help=f"Tokens at most. Default: {NEW_TOKENS}; of an answer in a conversation "
        f"{NEW_TOKENS_OF_TURN}.",
    ),
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens at most.")]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code of the model's repository or folder, for architectures that "
        "transformers does not know. It can do whatever you can, so read it first.",
    ),
]


@dataclass(frozen=True)
class LoadOptions:
    PANEL: ClassVar[str] = "Running the model"

    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto"
    dtype: Annotated[
        str,
        typer.Option(
            help="auto (float32 on the CPU, bfloat16 on CUDA), float32, float16, bfloat16."
        ),
    ] = "auto"
    device_map: Annotated[
        str | None,
        typer.Option(
            metavar="auto|balanced|balanced_low_0|sequential",
            help="Spread the model's layers over several GPUs (needs accelerate).",
        ),
    ] = None
    trust_remote_code: TrustRemoteCode = False


Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End with the token that completes TEXT. May be repeated."),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Also decode without drafts and with transformers' generate; print the speed-ups.",
    ),
]
Color = Annotated[
    bool, typer.Option("--color/--no-color", help="Colour drafted tokens on a terminal.")
]


@dataclass(frozen=True)
class SamplingOptions:
    PANEL: ClassVar[str] = "Sampling"

    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0
    top_p: Annotated[
        float, typer.Option(help="Sample from the most likely tokens up to this total probability.")
    ] = 1.0
    top_k: Annotated[
        int,
        typer.Option(min=0, help="Sample from this many of the most likely tokens; 0: from all."),
    ] = 0
    seed: Annotated[
        int, typer.Option(help="Seed of sampling; the text is the same with and without drafts.")
    ] = 0


def number_or_word(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


@dataclass(frozen=True)
class RunOptions(LoadOptions):
    """Options of where a model runs, and how drafts are verified. A field is an option."""

    budget: Annotated[
        Any,
        typer.Option(
            metavar="N|auto",
            parser=number_or_word,
            help="Draft nodes per pass, at most. auto (default) adapts to pass times; N "
            "gives the same passes in every run.",
        ),
    ] = None
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="tree|batch|chain",
            help="How a draft is verified: in one pass with an ancestor mask; its paths as rows, "
            "for models without such a mask; its best path. Default: tree if the model can, chain "
            "if it has recurrent layers.",
        ),
    ] = None


def per_layer(text: str | int) -> int | list[int]:
    """Parse one number, or a list of one per layer; the parser of options passes defaults too."""
    numbers = whole_numbers(str(text))
    return numbers[0] if len(numbers) == 1 else numbers


@dataclass(frozen=True)
class CacheOptions:
    PANEL: ClassVar[str] = "Cache of keys and values"

    cache: Annotated[
        str,
        typer.Option(
            metavar="full|low-bit|specache",
            help="full; or specache: all keys and values in CPU memory, a 1- or 2-bit copy on the "
            "device, and the needed ones fetched ahead (arXiv:2503.16163); low-bit: without "
            "fetching. The last two change the text.",
        ),
    ] = "full"
    kv_bits: Annotated[
        Any,
        typer.Option(
            metavar="1|2", parser=per_layer, help="Bits per number; or one per layer: 2,2,1,1,..."
        ),
    ] = 2
    kv_group: Annotated[
        int, typer.Option(help="Numbers that share a scale; it must divide the head's channels.")
    ] = 64
    kv_top_k: Annotated[
        Any,
        typer.Option(
            metavar="N",
            parser=per_layer,
            help="Pairs fetched per layer and head; or one per layer.",
        ),
    ] = 64
    kv_residual: Annotated[int, typer.Option(help="Newest tokens that are not quantised.")] = 64
    speculative_token: Annotated[
        str,
        typer.Option(
            metavar="model|drafter",
            help="The pairs to fetch are those of this one's guess at the next token.",
        ),
    ] = "model"

    def chosen(self) -> SpeCache | None:
        """Return the SpeCache, None for the full cache. Raises UsageError for invalid options."""
        unused = {
            "full": ("kv_bits", "kv_group", "kv_top_k", "kv_residual", "speculative_token"),
            "low-bit": ("kv_top_k", "speculative_token"),
        }
        for name in unused.get(self.cache, ()):
            if getattr(self, name) != getattr(CacheOptions, name):  # the default
                raise UsageError(
                    f"cannot use {name} with cache={self.cache}",
                    "Give cache=specache, or leave it out.",
                    option=(name, "cache"),
                )
        if self.cache == "full":
            return None
        from ngramkit.decode.specache.options import SpeCache, cache_of

        options = SpeCache(
            bits=self.kv_bits,
            group=self.kv_group,
            top_k=self.kv_top_k,
            residual=self.kv_residual,
            speculative=self.speculative_token,
        )
        return cache_of(self.cache, options)
