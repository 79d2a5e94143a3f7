"""Text that several tests tokenise."""

from __future__ import annotations

import json

import pytest

LICENSES = ["mit", "apache-2.0", None]


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Two folders of files of several kinds, one of them empty; conversations and licences."""
    folder = tmp_path_factory.mktemp("texts")
    for corpus in ("a", "b"):
        (folder / corpus).mkdir()
        for file in range(4):
            lines = [
                json.dumps({"text": [f"{corpus} {file} turn {n}", "yes " * (n % 5)][: n % 4],
                            "license": LICENSES[n % 3]})
                for n in range(12 * (file != 2))
            ]  # fmt: skip
            (folder / corpus / f"{file}.jsonl").write_text("\n".join(lines))
        (folder / corpus / "z.txt").write_text(f"the end of {corpus}, é漢\n")
    return folder
