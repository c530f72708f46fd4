"""Rule: a stream goes on from every offset that an earlier release left, and loses and repeats nothing by it."""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.databases import KEPT, SOURCES, VERSIONS, Stream, held, offsets_file, server_file, unpack
from tests.support.captured_shop import closing as closed

from headrace.sources.databases import Offsets
from headrace.sources.oracle.mining_state import MiningState
from headrace.testing.captured_database import CapturedDatabase

PHASES = {
    "snapshot",
    "stream",
    "a table added",
    "ad-hoc snapshot",
    "ad-hoc snapshot paused",
    "ad-hoc snapshot resumed",
    "blocking snapshot",
}

LARGER = {"incremental_snapshot_chunk_size": "100", "snapshot_chunk_rows": "100", "snapshot_chunks_per_batch": "10"}
"""What goes on goes on in fewer batches, because each waits for capture."""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_of_an_earlier_release_is_written_as_it_was(version: str, source: str) -> None:
    for entry in kept_offsets(version, source):
        offsets = Offsets.from_json(json.loads(entry["offset"]))
        assert offsets.to_text() == entry["offset"]
        for offset in offsets.databases.values() if source == "oracle" else ():
            kept = json.dumps(offset.log)
            assert json.dumps(MiningState.of(offset).to_json()) == kept, entry["phase"]


def kept_offsets(version: str, source: str) -> list[dict[str, Any]]:
    with lzma.open(offsets_file(version, source), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(params=[(version, source) for version in VERSIONS for source in SOURCES], ids="-".join)
def kept(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, CapturedDatabase, list[dict[str, Any]]]]:
    version, source = request.param
    entries = kept_offsets(version, source)
    with closed(KEPT[source](unpack(server_file(version, source), tmp_path / "server"))) as database:
        yield source, database, entries


@pytest.mark.slow
def test_a_stream_goes_on_from_every_phase_of_an_earlier_release(
    kept: tuple[str, CapturedDatabase, list[dict[str, Any]]],
) -> None:
    source, database, entries = kept
    assert {entry["phase"] for entry in entries} >= PHASES
    # The tables as a first snapshot finds them today, by the options.
    now: dict[str, Any] = {}
    with database.capturing():
        for entry in chosen(entries):
            options = {**database.options, **entry["options"], **LARGER}
            tables = options.get("database", "") + options["tables"]
            if tables not in now:
                now[tables] = held(Stream(source, options).rest(), {})
            stream = Stream(source, options, entry["offset"])
            assert held(stream.rest(), entry["held"]) == now[tables], entry["phase"]


def chosen(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each phase the first and the last."""
    found = []
    for _, group in itertools.groupby(entries, lambda entry: entry["phase"]):
        phase = list(group)
        found += [phase[place] for place in sorted({0, len(phase) - 1})]
    return found
