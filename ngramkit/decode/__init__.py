"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. `loop` reads as prose; `verify_tree` and `verify_rows`
are the model's side of a pass, `accept` decides which draft tokens stay, `session` answers
requests.

The package is a function as well: `ngramkit.decode("def main(")`, see `ngramkit.decode.answer`.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _Function(ModuleType):
    def __call__(self, *prompts: Any, **words: Any) -> Any:
        """Decode, as ngramkit.decode.answer.decode."""
        from ngramkit.decode.answer import decode

        return decode(*prompts, **words)

    @property
    def __signature__(self) -> inspect.Signature:
        from ngramkit.decode.answer import decode

        return inspect.signature(decode)


sys.modules[__name__].__class__ = _Function
