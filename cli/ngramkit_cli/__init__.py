"""The command line. Parses, calls `ngramkit`, prints."""
