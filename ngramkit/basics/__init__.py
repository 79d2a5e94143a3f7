"""Errors, results, progress, machine, caches, names, and limits for untrusted files."""
