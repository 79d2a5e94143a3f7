"""How much of a draft is worth verifying, by what passes take here: for decode's loop and engines.

Knows drafts, seconds and tokens; a model is no more to it than whose passes they are.
"""
