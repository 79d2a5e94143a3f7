"""Sessions of coding agents: Claude Code, Codex and Pi.

`read.Reading` turns the records of a session's file into answers of the model, each with the
conversation before it, as the server saw them.
"""
