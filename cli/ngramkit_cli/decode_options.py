"""Options of decoding: which model, how long, how tokens are chosen, where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit.errors import UsageError
from ngramkit_cli.options import WHICH_MODEL

if TYPE_CHECKING:
    from ngramkit.decode.pass_options import PassOptions
    from ngramkit.decode.sampling import Sampling
    from ngramkit.decode.specache.options import SpeCache

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID[@REVISION]|PATH",
        help="A decoder-only causal language model: a short name, a Hub id, a folder or a GGUF "
        f"file (PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}",
    ),
]
NEW_TOKENS = 128
NewTokensOrMore = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        min=1,
        help=f"Tokens at most. Default: {NEW_TOKENS}; of an answer in a conversation 1024.",
    ),
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens at most.")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="auto|eager|static",
        help="static: passes of a few fixed sizes over memory that does not move, as CUDA graphs "
        "on a GPU. auto: static on CUDA, else eager.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[
    str,
    typer.Option(help="auto (float32 on the CPU, bfloat16 on CUDA), float32, float16, bfloat16."),
]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="auto|balanced|balanced_low_0|sequential",
        help="Spread the model's layers over several GPUs (needs accelerate).",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code that the model's repository or folder brings, for architectures that "
        "transformers does not know. It can do whatever you can: read it first.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End with the token that completes TEXT; may be repeated."),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Decode without drafts too, in turns, then with transformers' generate; print the "
        "speed-ups.",
    ),
]
Color = Annotated[
    bool, typer.Option("--color/--no-color", help="Colour drafted tokens on a terminal.")
]


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen. A field is an option."""

    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0
    top_p: Annotated[
        float, typer.Option(help="Keep the likeliest tokens up to this probability.")
    ] = 1.0
    top_k: Annotated[
        int, typer.Option(min=0, help="Keep this many of the likeliest tokens; 0: all.")
    ] = 0
    seed: Annotated[
        int, typer.Option(help="Of the sampling; the same text with and without drafts.")
    ] = 0

    def sampling(self) -> Sampling:
        """Raises UsageError for what makes no sense."""
        from ngramkit.decode.sampling import Sampling

        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)


@dataclass(frozen=True)
class RunOptions:
    """How passes are run and drafts verified. A field is an option."""

    budget: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Draft tokens per pass at most. auto, the default: as many as pay for their time "
            "here, which is learnt from the passes; N gives the same passes in every run.",
        ),
    ] = None
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="tree|batch|chain",
            help="A draft in one pass with an ancestor mask; its paths as rows, for models that "
            "take no such mask; its best path. Default: tree where the model can, chain where it "
            "has recurrent layers.",
        ),
    ] = None
    engine: Engine = "auto"
    device: Device = "auto"
    dtype: Dtype = "auto"
    device_map: DeviceMap = None
    trust_remote_code: TrustRemoteCode = False

    def passes(self, cache: SpeCache | None = None) -> PassOptions:
        """Raises UsageError for a budget that is neither a number nor auto."""
        from ngramkit.decode.pass_options import PassOptions

        budget: Any = self.budget
        if budget not in (None, "auto"):
            try:
                budget = int(budget)
            except ValueError:
                raise UsageError(
                    f"--budget {budget!r} is no number of nodes", "give one, or auto"
                ) from None
        return PassOptions(
            budget,
            self.verify,
            self.engine,
            self.device,
            self.dtype,
            self.device_map,
            cache,
            self.trust_remote_code,
        )
