"""Options of decoding: which model, how long, how tokens are chosen, where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from ngramkit.basics.errors import UsageError
from ngramkit_cli.shared_options import WHICH_MODEL, model_option, whole_numbers

if TYPE_CHECKING:
    from ngramkit.decode.specache.options import SpeCache

MODEL = model_option(
    "A decoder-only causal language model: a short name, a Hub id, a folder or a GGUF file "
    f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}"
)
ANSWER_TOKENS = typer.Option(256, min=1, help="Tokens at most.")
TRUST_REMOTE_CODE = typer.Option(
    False,
    "--trust-remote-code",
    help="Run Python code of the model's repository or folder, for architectures that "
    "transformers does not know. It can do whatever you can, so read it first.",
)


@dataclass(frozen=True)
class LoadOptions:
    PANEL: ClassVar[str] = "Running the model"

    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N.")
    dtype: str = typer.Option(
        "auto", help="auto (float32 on the CPU, bfloat16 on CUDA), float32, float16, bfloat16."
    )
    device_map: str | None = typer.Option(
        None,
        metavar="auto|balanced|balanced_low_0|sequential",
        help="Spread the model's layers over several GPUs (needs accelerate).",
    )
    trust_remote_code: bool = TRUST_REMOTE_CODE


STOP = typer.Option(
    None, metavar="TEXT", help="End with the token that completes TEXT. May be repeated."
)


@dataclass(frozen=True)
class SamplingOptions:
    PANEL: ClassVar[str] = "Sampling"

    temperature: float = typer.Option(0.0, min=0.0, help="0 is greedy.")
    top_p: float = typer.Option(
        1.0, help="Sample from the most likely tokens up to this total probability."
    )
    top_k: int = typer.Option(
        0, min=0, help="Sample from this many of the most likely tokens; 0: from all."
    )
    seed: int = typer.Option(
        0, help="Seed of sampling; the text is the same with and without drafts."
    )


def number_or_word(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


@dataclass(frozen=True)
class RunOptions(LoadOptions):
    """Options of where a model runs, and how drafts are verified. A field is an option."""

    budget: Any = typer.Option(
        None,
        metavar="N|auto",
        parser=number_or_word,
        help="Draft nodes per pass, at most. auto (default) adapts to pass times; N "
        "gives the same passes in every run.",
    )
    verify: str | None = typer.Option(
        None,
        metavar="tree|batch|chain",
        help="How a draft is verified: in one pass with an ancestor mask; its paths as rows, "
        "for models without such a mask; its best path. Default: tree if the model can, chain "
        "if it has recurrent layers.",
    )


def per_layer(text: str | int) -> int | list[int]:
    """Parse one number, or a list of one per layer; the parser of options passes defaults too."""
    numbers = whole_numbers(str(text))
    return numbers[0] if len(numbers) == 1 else numbers


@dataclass(frozen=True)
class CacheOptions:
    PANEL: ClassVar[str] = "Cache of keys and values"

    cache: str = typer.Option(
        "full",
        metavar="full|low-bit|specache",
        help="full; or specache: all keys and values in CPU memory, a 1- or 2-bit copy on the "
        "device, and the needed ones fetched ahead (arXiv:2503.16163); low-bit: without "
        "fetching. The last two change the text.",
    )
    bits: Any = typer.Option(
        2,
        "--kv-bits",
        metavar="1|2",
        parser=per_layer,
        help="Bits per number; or one per layer: 2,2,1,1,...",
    )
    group: int = typer.Option(
        64, "--kv-group", help="Numbers that share a scale; it must divide the head's channels."
    )
    kv_top_k: Any = typer.Option(  # top_k is sampling's
        64,
        metavar="N",
        parser=per_layer,
        help="Pairs fetched per layer and head; or one per layer.",
    )
    residual: int = typer.Option(64, "--kv-residual", help="Newest tokens that are not quantised.")
    speculative: str = typer.Option(
        "model",
        "--speculative-token",
        metavar="model|drafter",
        help="The pairs to fetch are those of this one's guess at the next token.",
    )

    def chosen(self) -> SpeCache | None:
        """Return the SpeCache, None for the full cache. Raises UsageError for invalid options."""
        unused = {
            "full": ("bits", "group", "kv_top_k", "residual", "speculative"),
            "low-bit": ("kv_top_k", "speculative"),
        }
        for name in unused.get(self.cache, ()):
            if getattr(self, name) != getattr(CacheOptions, name).default:
                raise UsageError(
                    f"cannot use {name} with cache={self.cache}",
                    "Give cache=specache, or leave it out.",
                    option=(name, "cache"),
                )
        if self.cache == "full":
            return None
        from ngramkit.decode.specache.options import SpeCache, cache_of

        options = SpeCache(self.bits, self.group, self.kv_top_k, self.residual, self.speculative)
        return cache_of(self.cache, options)
