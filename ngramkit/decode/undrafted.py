"""Short texts of a model that was not tried yet: written without drafts, by transformers' own loop.

To find out how a model can verify drafts takes some eight passes, more than the drafts of a short
text can save.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ngramkit.decode.verifiers import is_known
from ngramkit.drafters.base import Drafter

LOG = logging.getLogger("ngramkit")
SHORT = 32  # tokens, of all calls together: from so many on a model is tried
_ASKED: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def pays_to_try(model: Any, tokens: int) -> bool:
    """Whether drafts are worth trying the model for, with so many more tokens to be written."""
    if is_known(model) or not hasattr(model, "_sample"):
        return True
    _ASKED[model] = _ASKED.get(model, 0) + tokens
    return _ASKED[model] >= SHORT


def undrafted(
    model: Any, input_ids: torch.Tensor, drafter: Drafter, padding: int, **call: Any
) -> Any:
    """As `model.generate` without drafts, of one row with `padding` tokens on its left; the drafter
    learns what was written. `call`: what transformers gives its loop."""
    LOG.info(
        "%s: no drafts yet: to try how it takes them costs more passes than a short text can save",
        model.config.model_type,
    )
    output = model._sample(input_ids, **call)
    rows = output if isinstance(output, torch.Tensor) else output.sequences
    tokens = rows[0].cpu().numpy().astype(np.int32)
    length = input_ids.shape[1]
    drafter.start(tokens[padding:length])
    drafter.accept(tokens[length:])
    drafter.finish()
    return output
