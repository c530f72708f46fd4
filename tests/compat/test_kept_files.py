"""Rule: every release keeps an offset of every source and a target of every kind, and they stay small."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.databases import HERE, LOG_SOURCES, SOURCES, VERSIONS

from headrace import registry

TARGETS = {
    # A pipeline's checkpoint, its Delta and Iceberg tables of each kind, and its folder of messages.
    "shop.tar.xz",
    # A checkpoint of topics, and tables that were filled without a pipeline.
    "topic.tar.xz",
    "by-hand.tar.xz",
    # Tables of databases with their progress table.
    "postgresql.sql",
    "mariadb.sql",
}
FIRST = "0.1.0"
"""It had no source that reads a database's own log but Oracle's."""
# A version of development keeps as much as somebody made: its folder goes when the release is made.


def test_every_source_is_kept() -> None:
    assert {*SOURCES, *LOG_SOURCES} == set(registry.built_in_names("source"))


@pytest.mark.parametrize("version", [version for version in VERSIONS if ".dev" not in version])
def test_a_release_keeps_all_that_it_leaves(version: str) -> None:
    folder = HERE / version
    sources = SOURCES if version == FIRST else (*SOURCES, *LOG_SOURCES)
    offsets = {Path("offsets") / f"{source}.{what}.xz" for source in sources for what in ("jsonl", "server.tar")}
    found = {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
    assert found == {*map(Path, TARGETS), *offsets}
    assert sum((folder / file).stat().st_size for file in found) < 2 << 20
