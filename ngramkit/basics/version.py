"""The version of ngramkit."""

__version__ = "0.2.0"
