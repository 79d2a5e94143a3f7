"""Readers of other programs' logs.

`read.read_log` yields `request.LoggedRequest`; `request_tokenizer` encodes them. A reader's
docstring specifies its format. Logs are untrusted: sizes are bounded, values checked, and no code
in them runs.
"""
