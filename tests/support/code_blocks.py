"""Blocks of code on the pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


class Block(NamedTuple):
    """A block of code.

    Args:
        page: its page, from the project's root.
        line: the number of its first line there.
        kind: its language.
        text: what stands in it.
    """

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def begins(self) -> str:
        """Its first line, by which a test names it."""
        return self.text.partition("\n")[0].strip()


def blocks() -> Iterator[Block]:
    """All of them."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            yield Block(str(page.relative_to(ROOT)), text[: found.start()].count("\n") + 1, found[2], found[3])


BLOCKS = list(blocks())


def block(page: str, begins: str) -> str:
    """The one block of a page that begins so."""
    (found,) = [one.text for one in BLOCKS if one.page == page and one.text.lstrip().startswith(begins)]
    return found
