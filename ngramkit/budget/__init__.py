"""The part of each draft that is worth verifying, by measured pass times."""
