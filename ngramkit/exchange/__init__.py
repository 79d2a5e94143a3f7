"""Other engines' files. Each module's docstring is its format's specification."""
