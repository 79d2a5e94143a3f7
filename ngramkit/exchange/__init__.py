"""Import and export of other programs' files. Each module's docstring specifies its format."""
