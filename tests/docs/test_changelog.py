"""Rule: the changelog has every release of which something is kept, the version of the code, and all that goes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.compat.databases import VERSIONS

from headrace import registry
from headrace.versions import __version__

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MOVED = re.compile(r'"""The name that `[\w.]+` had.*?works until (\d+\.\d+) and warns', re.DOTALL)
MODULES = sorted((ROOT / "src/headrace").rglob("*.py"))
KINDS = ("source", "format", "sink")


def test_every_release_has_its_part_in_the_changelog() -> None:
    titles = re.findall(r"^## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE) == titles
    released = [title.split(" ")[0] for title in titles if title != "Unreleased"]
    assert {version for version in VERSIONS if ".dev" not in version} <= set(released)
    # A version of development is of a release that is not made.
    assert titles[0] == "Unreleased" if ".dev" in __version__ else released[0] == __version__


def test_what_goes_is_in_the_changelog_with_the_release_that_has_it_no_more() -> None:
    moved = ((module(file), MOVED.search(file.read_text(encoding="utf-8"))) for file in MODULES)
    going = [(name, until[1]) for name, until in moved if until]
    assert len(going) >= 5
    declared = [
        o for kind in KINDS for name in registry.built_in_names(kind) for o in registry.find(kind, name).options
    ]
    going += [(former.name, former.until) for option in declared for former in option.former]
    going += [(option.name, option.goes.until) for option in declared if option.goes is not None]
    for name, until in going:
        assert f"`{name}`" in CHANGELOG, name
        assert f"until {until}" in CHANGELOG, name


def module(file: Path) -> str:
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")
