"""The long description of the package: README.md, with links that lead somewhere from an index.

Everything else is in pyproject.toml. If its [project.urls] has a Repository, README's links and
pictures lead to the files there, at this version's tag. Without one, pictures are left out and
links to files become plain text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")  # ![text](a file of ours)


def described(text: str, repository: str | None, tag: str) -> str:
    """Return a page with links to files of the repository made absolute."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, file = link.groups()
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/{tag}/{file})"

    return LINK.sub(absolute, text)


def version() -> str:
    """Return `__version__` without an import of the package."""
    text = (ROOT / "ngramkit" / "basics" / "version.py").read_text(encoding="utf-8")
    return text.partition('__version__ = "')[2].partition('"')[0]


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=described(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            project.get("urls", {}).get("Repository"),
            f"v{version()}",
        ),
        long_description_content_type="text/markdown",
    )
