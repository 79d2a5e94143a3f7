"""Bytes on disk. Each module's docstring is its format's specification."""
