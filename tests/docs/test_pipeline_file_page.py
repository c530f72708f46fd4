"""Rule: the page on the pipeline file has all sections, and all keys of the section `pipeline` with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.pipeline.yaml_file import RunSettings, Sections

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline-file.md").read_text(encoding="utf-8")
SECTIONS, _, KEYS = PAGE.partition("| in `pipeline` |")


def test_every_section_has_its_line() -> None:
    assert {*re.findall(r"^\| `(\w+)`", SECTIONS, re.MULTILINE), "sink"} == set(Sections.model_fields)
    assert "`sink` for a single one" in SECTIONS


def test_every_key_of_a_run_has_its_line_and_default() -> None:
    said = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", KEYS, re.MULTILINE))
    assert said == {
        name: "**required**" if one.is_required() else "see right" if one.default is None else f"`{one.default}`"
        for name, one in RunSettings.model_fields.items()
    }
