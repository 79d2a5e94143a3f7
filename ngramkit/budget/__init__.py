"""The part of each draft that is worth verifying, by measured pass times, for decode and engines.

It knows drafts, seconds and tokens; a model is only a key to its pass times.
"""
