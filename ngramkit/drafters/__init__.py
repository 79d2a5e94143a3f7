"""Drafters: artifacts and the context in, draft trees out.

The package is callable: `ngramkit.drafters()` lists the drafters.
"""

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, name: str | None = None) -> Any:
        from ngramkit.drafters.registry import drafters

        return drafters(name)


sys.modules[__name__].__class__ = _Package
