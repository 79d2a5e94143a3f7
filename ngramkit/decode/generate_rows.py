"""Batch rows whose tokens are chosen together, as in `model.generate`.

Logits processors and stopping criteria may keep state per row, so each is called once per token
with all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ngramkit.decode.base import Choose, Tops
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.loop import Run
from ngramkit.decode.packed_weights import packed_weights_of
from ngramkit.decode.passes import model_passes
from ngramkit.decode.request import Request
from ngramkit.decode.sampling import best_and_tops
from ngramkit.drafters.base import Drafter

if TYPE_CHECKING:
    from ngramkit.decode.sampling import Draw


class _Logits:
    """A choice that returns a row's logits [1, V]."""

    def read(self, logits: torch.Tensor) -> Choose:
        rows: Any = lambda row: logits[row : row + 1]  # noqa: E731
        return rows  # type: ignore[no-any-return]

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]


def decode_rows(
    decoder: Decoder,
    requests: Sequence[Request],
    drafters: Sequence[Drafter],
    ids: torch.Tensor,
    processors: Any,
    criteria: Any,
    draw: Draw,
    pad: torch.Tensor | None,
    put: Callable[[torch.Tensor], None],
) -> torch.Tensor:
    """Decode until every row has ended; return prompts and new tokens, int64[rows, n].

    `ids`: prompts padded on the left, int64[rows, n]. `processors` see an ended row's last scores.
    `pad` follows a row's end; None: rows go on until all have ended. `put` gets each step's tokens.
    """
    ended = [False] * len(requests)
    runs: list[Run] = []
    for row, (request, drafter) in enumerate(zip(requests, drafters, strict=True)):
        stop = lambda _, row=row: ended[row]  # noqa: E731
        request = replace(request, choice=_Logits(), eos=frozenset(), stop=stop)
        runs.append(decoder.start(request, drafter))
    going = torch.ones(len(runs), dtype=torch.bool, device=ids.device)
    with packed_weights_of(decoder.model.model), model_passes():
        try:
            for run in runs:
                run.clock.resume()
                run.prefill()
            logits: list[Any] = [run.choose_token() for run in runs]
            while True:
                scores = torch.cat(logits).to(ids.device, torch.float32)
                tokens = draw(processors(ids, scores))
                if pad is not None:
                    tokens = torch.where(going, tokens, pad)
                ids = torch.cat([ids, tokens[:, None]], -1)
                going = going & ~criteria(ids, None)
                put(tokens)
                goes_on = going.tolist()
                is_over = not any(goes_on)
                for row, (run, token) in enumerate(zip(runs, tokens.tolist(), strict=True)):
                    if run.ended_by:
                        continue
                    ended[row] = is_over or (pad is not None and not goes_on[row])
                    if not run.accept_or_end_pass(token) and not run.ended_by:
                        run.clock.resume()
                        run.verify()
                    if not run.ended_by:
                        logits[row] = run.choose_token()
                if is_over:
                    return ids
        finally:
            for run in runs:
                run.finish()
