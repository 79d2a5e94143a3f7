"""Artifacts on the Hub: pull, push and search."""
