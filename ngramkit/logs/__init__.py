"""Logs of requests that other programs write: one reader per format, one kind of record.

`read.read_log` recognizes a file's format and yields `request.LoggedRequest`; `tokens` encodes
them. A reader's docstring specifies its format. Logs are untrusted: sizes are bounded, values
checked, and no code in them runs.
"""
