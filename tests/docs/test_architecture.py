"""The page on the architecture names functions and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
FILE = re.compile(r"`([\w/]+\.py)`")
NAME = re.compile(r"`([\w.]+)`")


def test_each_file_that_the_page_names_is_there() -> None:
    names = FILE.findall(PAGE)
    missing = [name for name in names if not (ROOT / "src" / "headrace" / name).is_file()]
    assert names and not [name for name in missing if not _is_below_a_folder_that_the_line_names(name)]


def _is_below_a_folder_that_the_line_names(name: str) -> bool:
    """Lines say `permissions.py` of a source or sink, whichever it is."""
    return "/" not in name and any((ROOT / "src" / "headrace").rglob(name))


def test_each_function_on_the_way_of_a_window_is_in_its_file() -> None:
    lines = [line for line in _section("The way of one window").splitlines() if line.startswith("|") and ".py`" in line]
    for line in lines:
        *_, functions, files, _ = line.split("|")
        source = "".join((ROOT / "src" / "headrace" / name).read_text("utf-8") for name in FILE.findall(files))
        for name in NAME.findall(functions):
            *owner, function = name.split(".")
            assert f"def {function}(" in source, name
            assert not owner or re.search(rf"^class {owner[0]}\b", source, re.MULTILINE), name
    assert len(lines) > 10


def _section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
