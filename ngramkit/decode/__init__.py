"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. `loop` reads as prose; `verify_tree` and `verify_rows`
are the model's side of a pass, `accept` decides which draft tokens stay, `session` answers
requests.

The package is a function as well: `ngramkit.decode("def main(")`, see `ngramkit.decode.answer`.
"""

from ngramkit.public import callable_module

callable_module(__name__, "ngramkit.decode.answer", "decode")
