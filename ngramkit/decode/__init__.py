"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. `loop` reads as prose; `verify` is the model's side of
a pass, `sampling` chooses tokens, `cache` and `masks` are what a pass needs.

The package is a verb as well: `ngramkit.decode("def main(")`, see `ngramkit.decode.answer`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *prompts: Any, **options: Any) -> Any:
        """As ngramkit.decode.answer.decode."""
        from ngramkit.decode.answer import decode

        return decode(*prompts, **options)


sys.modules[__name__].__class__ = _Verb
