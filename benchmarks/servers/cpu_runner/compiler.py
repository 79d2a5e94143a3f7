"""A Triton compiler for CPUs that compiles nothing."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import BaseBackend

HINT = "set TRITON_INTERPRET=1"


class CPUBackend(BaseBackend):  # type: ignore[misc]
    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "interpreter"

    def parse_options(self, options: Any) -> Any:
        raise NotImplementedError(HINT)

    def add_stages(self, stages: Any, options: Any, language: Any = None) -> None:
        raise NotImplementedError(HINT)

    def load_dialects(self, context: Any) -> None:
        raise NotImplementedError(HINT)

    def get_module_map(self) -> dict[str, Any]:
        return {}
