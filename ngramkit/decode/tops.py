"""The best token of every row of a pass and its likeliest ones, brought to the host in one copy.

The copy packs whole numbers and floats into one array on the device. It decides what is written, so
it is believed on a device only when it has given there what plain reductions give.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from ngramkit.decode.base import Tops
from ngramkit.drafters.base import TOPS

TOLERANCE = 1e-3  # of log probabilities: exp and log differ between devices
Read = Callable[..., tuple[list[int], Tops]]  # of logits [rows, V], and how many of each row


def best_and_tops(logits: torch.Tensor, count: int = TOPS) -> tuple[list[int], Tops]:
    """Of logits [rows, V] the argmax of every row, and its `count` likeliest tokens."""
    if logits.device.type == "cpu":
        return in_one_copy(logits, count)
    return _reader(logits.device, logits.dtype)(logits, count)


def in_one_copy(logits: torch.Tensor, count: int = TOPS) -> tuple[list[int], Tops]:
    """The argmax is taken by itself: of equal logits, topk may put another first."""
    count = min(count, logits.shape[-1])
    values, ids = logits.topk(count, -1)
    log_probs = values.float() - logits.float().logsumexp(-1, keepdim=True)
    whole = torch.cat([logits.argmax(-1, keepdim=True), ids], -1).to(torch.int32)
    packed = torch.cat([whole, log_probs.view(torch.int32)], -1).cpu().numpy()
    tops = Tops(packed[:, 1 : count + 1], packed[:, count + 1 :].view(np.float32))
    return packed[:, 0].tolist(), tops


def apart(logits: torch.Tensor, count: int = TOPS) -> tuple[list[int], Tops]:
    """The same by plain reductions: the best token as without evidence, the rest on the host."""
    best: list[int] = logits.argmax(-1).tolist()
    values, ids = logits.cpu().float().log_softmax(-1).topk(min(count, logits.shape[-1]), -1)
    return best, Tops(ids.to(torch.int32).numpy(), values.numpy())


@cache
def _reader(device: torch.device, dtype: torch.dtype) -> Read:
    return proven(device, dtype, in_one_copy)


def proven(device: torch.device, dtype: torch.dtype, read: Read) -> Read:
    """`read`, if it gives on the device what `apart` gives; else that, and it is said."""
    found = _fault(device, dtype, read)
    if not found:
        return read
    logging.getLogger("ngramkit").warning(
        "what the model held likely %s in one copy from %s; it is read apart", found, device
    )
    return apart


def _fault(device: torch.device, dtype: torch.dtype, read: Read) -> str:
    logits = _made_up().to(device, dtype)
    try:
        return _difference(logits, read(logits))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        line = str(error).partition("\n")[0]
        return f"fails ({type(error).__name__}: {line:.200})"


def _difference(logits: torch.Tensor, found: tuple[list[int], Tops]) -> str:
    (best, tops), (right, wanted) = found, apart(logits)
    if best != right:
        return "comes with other tokens"
    rows = np.arange(len(right))[:, None]
    held = logits.float().cpu().numpy()
    same = np.array_equal(held[rows, tops.ids], held[rows, wanted.ids])  # equal ones in any order
    with np.errstate(invalid="ignore"):  # -inf less -inf
        near = np.nan_to_num(tops.log_probs - wanted.log_probs)
    return "" if same and np.abs(near).max() <= TOLERANCE else "is something else"


def _made_up() -> torch.Tensor:
    """Rows of 1,000 logits: spread wide, all alike, two best ones, all but three ruled out."""
    random = torch.Generator().manual_seed(7)
    logits = 10 * torch.randn((9, 1000), generator=random)
    logits[1] = 1.0
    logits[2, [17, 900]] = 60.0
    logits[3, torch.arange(1000) % 400 != 5] = -torch.inf
    return logits
