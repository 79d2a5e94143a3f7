"""Logs of requests as other programs write them: a reader per format, one kind of record.

`read.read_log` finds out which format a file has and yields `request.LoggedRequest`, `tokens` makes
them token ids. A reader's docstring is its format's specification. What is read was written by
somebody else: it is bounded, checked and never run.
"""
