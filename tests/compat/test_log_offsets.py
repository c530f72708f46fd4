"""Rule: a stream of a real server's log goes on from every offset that an earlier release left, on the server that it
was left on; rows that were read are not read again."""

from __future__ import annotations

import pytest
from tests.compat.databases import (
    LARGER,
    LOG_SOURCES,
    PHASES,
    VERSIONS,
    Stream,
    chosen,
    held,
    kept_offsets,
    server_file,
)
from tests.compat.log_databases import LACKING, serving

KEPT = [
    pytest.param(source, version, marks=pytest.mark.skipif(bool(lacking := LACKING[source]()), reason=lacking))
    for source in LOG_SOURCES
    for version in VERSIONS
    if server_file(version, source).exists()
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "version"), KEPT)
def test_a_stream_goes_on_from_every_phase_of_an_earlier_release(source: str, version: str) -> None:
    entries = kept_offsets(version, source)
    assert {entry["phase"] for entry in entries} >= PHASES
    # The tables as a first snapshot finds them today, by the options.
    now = {}
    with serving(source, server_file(version, source)) as (_, database):
        for entry in chosen(entries):
            options = {**database.options, **entry["options"], **LARGER}
            tables = options["tables"]
            if tables not in now:
                now[tables] = held(Stream(source, {**options, **database.first_options}).rest(), {})
            database.go_back()
            rows = Stream(source, options, entry["offset"]).rest()
            assert held(rows, entry["held"]) == now[tables], entry["phase"]
            if entry is entries[-1]:
                # No request waits for it in the log.
                assert rows and "r" not in {row["op"] for row in rows}
