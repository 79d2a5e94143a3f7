"""One matplotlib figure as SVG for a page: text stays text, colours are the page's.

Knows nothing of results. Colours become CSS variables, so that one picture serves a light page and
a dark one; the page sets them (report.html.jinja).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ngramkit.evaluate.style import INK, MUTED, PALETTE, styled

VARIABLES = {INK: "ink", MUTED: "muted"} | {color: f"c{i}" for i, color in enumerate(PALETTE)}
UNREAD = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # metadata that is left out


@dataclass(frozen=True)
class Picture:
    title: str
    description: str  # what it shows, in words, for those who do not see it
    box: str  # the viewBox
    content: str  # what stands inside <svg>


def picture(
    title: str,
    description: str,
    draw: Callable[[Any], None],
    size: tuple[float, float] = (5.0, 4.2),
) -> Picture:
    """`draw` fills a new figure of `size` inches: small, so that its text can be read on a phone.

    The same drawing gives the same bytes.
    """
    with styled(svg_fonttype="none", svg_hashsalt=title):
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=UNREAD, transparent=True)
        pyplot.close(figure)
    text = out.getvalue()
    found = re.search(r'<svg[^>]*viewBox="([-0-9. ]+)"[^>]*>(.*)</svg>', text, re.DOTALL)
    assert found is not None
    return Picture(title, description, found[1], _for_the_page(found[2]))


def _for_the_page(content: str) -> str:
    """With the page's colours, and without what would reach beyond this picture: rules for every
    element of the page, and ids that every picture gives."""
    content = re.sub(r"<style.*?</style>", "", content, flags=re.DOTALL)
    content = re.sub(r'<g id="[^"]*"', "<g", content)
    for color, name in VARIABLES.items():
        content = content.replace(color, f"var(--{name})")
    return content
