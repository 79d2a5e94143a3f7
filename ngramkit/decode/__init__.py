"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. `loop` reads as prose; `verify` is the model's side of
a pass, `sampling` chooses tokens, `cache` and `masks` are what a pass needs.
"""
