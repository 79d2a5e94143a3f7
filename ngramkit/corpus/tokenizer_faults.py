"""What tokenizers raises where a file asks for what it cannot do: it has no errors of its own."""

from __future__ import annotations

from ngramkit.errors import InputError

PANIC = "PanicException"  # of Rust, by pyo3; no Exception, and nowhere to import from


def refuse_fault(error: BaseException, model: str) -> None:
    """Raise InputError where `error` is a bare Exception or a panic of Rust's."""
    if type(error) is Exception or type(error).__name__ == PANIC:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"the tokenizer of {model} fails: {said:.200}", "download the model again"
        ) from error
