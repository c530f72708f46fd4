"""The examples of the page about redo statements are true."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "oracle-redo.md"


def test_the_examples_of_the_page_give_what_it_says() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 8 and not found.failed
