"""Packages that share their name with a public function, and can be called as that function."""

from __future__ import annotations

import sys
from pkgutil import resolve_name
from types import ModuleType
from typing import Any


def callable_as(package: str, function: str) -> None:
    """Let calls of `package` call `function`, "module:name", which is imported by the first."""

    class Package(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return resolve_name(function)(*args, **options)

    sys.modules[package].__class__ = Package
