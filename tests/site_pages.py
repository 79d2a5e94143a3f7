"""A hook of mkdocs: README.md and its like become pages of the site, and their links follow.

Links to files that are no pages keep their words alone: a site does not know where the code is.
What is folded on GitHub has a heading here, for the contents and the search.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {  # of the repository -> of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "artifacts/README.md": "artifacts.md",
}
FOLDED = re.compile(r"<details><summary><code>(.*?)</code></summary>(.*?)</details>", re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    sources = {name: source for source, name in PAGES.items()}
    uri = page.file.src_uri
    markdown = FOLDED.sub(r"### \1\n\2", markdown)
    return relinked(markdown, sources.get(uri, f"docs/{uri}"), uri)


def relinked(markdown: str, source: str, uri: str) -> str:
    """Return the page `source` of the repository with links as the site's page `uri` has them."""

    def moved(link: re.Match[str]) -> str:
        picture, words, target, anchor = link.groups()
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / file).is_dir() and (ROOT / file / "README.md").is_file():
            file += "/README.md"
        place = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else "")
        if not place:
            return words
        path = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"{picture}[{words}]({path}{anchor or ''})"

    return LINK.sub(moved, markdown)
