"""Rule: an offset keeps what tables were in its batch, and stays small."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.mysql_tables import table

from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.stream_state import LogState, StreamState
from headrace.sources.offset import Offset

LOG = LogState("mariadb", "s", "binlog", "m")
TABLES, COLUMNS, ALTERED = 1000, 100, 50


def test_states_of_tables_are_kept_as_they_were() -> None:
    first, second = table("a int", "u uuid", structure="h"), table("b varchar(3)", "u uuid", "a int", structure="i")
    states = {"d.t": (("", first), ("0001", None), ("0002", second), ("0003", first)), "d.u": (("", None),)}
    offset = StreamState(LOG, states=states, unsure=("d.u",), dropped={"d.t": ("x",)}).in_offset(Offset.nothing())
    read = StreamState.of(Offset.from_json(json.loads(offset.to_text())))
    assert read.states == states and (read.unsure, read.dropped) == (("d.u",), {"d.t": ("x",)})
    assert read.states["d.t"][0][1].structure == "h"
    assert StreamState.of(read.settled().in_offset(offset)).states == {}


def size(tables: dict[str, MysqlTable], state: StreamState) -> int:
    schemas = {path: found.to_json() for path, found in tables.items()}
    return len(
        json.dumps(state.in_offset(Offset(source="s", commit="c", known=tuple(tables), schemas=schemas)).log)
    ) + len(json.dumps(schemas))


@pytest.mark.system
def test_an_offset_of_a_thousand_tables_grows_by_less_than_a_fifth() -> None:
    wide = table(*(f"column_{number} varchar(20)" for number in range(COLUMNS - 1)), structure="0123456789abcdef")
    after = table(*(f"column_{number} varchar(20)" for number in range(COLUMNS)), structure="fedcba9876543210")
    tables = {f"d.t{number}": wide for number in range(TABLES)}
    states = dict.fromkeys(list(tables)[:ALTERED], (("", wide), ("0000:0000000001:00000000000000000001", after)))
    before = size({path: replace(found, structure="") for path, found in tables.items()}, StreamState(LOG))
    assert size(tables, StreamState(LOG)) < 1.01 * before
    assert size(tables, StreamState(LOG, states=states)) < 1.1 * before
