"""Artifacts and the live context in, draft trees out."""
