"""Rules: a stream goes on from every offset that an earlier release left, and loses and repeats nothing by it; from one
of a later release it does not go on, and guesses nothing."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.databases import (
    KEPT,
    LARGER,
    PHASES,
    SOURCES,
    VERSIONS,
    Stream,
    chosen,
    held,
    kept_offsets,
    server_file,
)
from tests.compat.packing import unpack
from tests.support.captured_shop import closing as closed

from headrace.errors import NewerRelease
from headrace.sources.change_tables.history_mark import HistoryMark
from headrace.sources.databases import Offsets
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.stream_state import LogState as MysqlLog
from headrace.sources.mysql.stream_state import StreamState as MysqlState
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.offset import Offset
from headrace.sources.oracle.mining_state import MiningState
from headrace.sources.postgresql.stream_state import LogState as PostgresLog
from headrace.sources.postgresql.stream_state import StreamState as PostgresState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.reader import source_named
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.testing.captured_database import CapturedDatabase


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_of_an_earlier_release_is_written_as_it_was(version: str, source: str) -> None:
    for entry in kept_offsets(version, source):
        offsets = Offsets.from_json(json.loads(entry["offset"]))
        assert offsets.to_text() == entry["offset"]
        for offset in offsets.databases.values() if source == "oracle" else ():
            kept = json.dumps(offset.log)
            assert json.dumps(MiningState.of(offset).to_json()) == kept, entry["phase"]


@pytest.mark.parametrize("source", SOURCES)
def test_an_offset_that_says_more_than_this_release_knows_is_refused_wherever_it_says_it(source: str) -> None:
    tried = set()
    for entry in kept_offsets(VERSIONS[-1], source):
        said = opened(json.loads(entry["offset"]))
        read_whole(source, closed_again(said))
        for path, record in records(said):
            if path not in tried:
                tried.add(path)
                record["later"] = 1
                with pytest.raises(NewerRelease, match="'later', which Headrace"):
                    read_whole(source, closed_again(said))
                del record["later"]
    assert tried >= {
        "",
        "databases.*",
        "databases.*.tables.*",
        "databases.*.ad_hoc",
        "databases.*.ad_hoc.requests[]",
        f"databases.*.structures.*{'[]' if source in ('sqlserver', 'db2') else ''}.schema.columns[]",
    }


@pytest.mark.parametrize("source", SOURCES)
def test_an_offset_of_a_later_version_is_refused_before_anything_of_it_is_read(source: str) -> None:
    said = json.loads(kept_offsets(VERSIONS[-1], source)[-1]["offset"])
    for place in (said, *said["databases"].values()):
        place["version"] += 1
        with pytest.raises(NewerRelease, match=r"version 3, and Headrace .* reads versions up to 2"):
            Offsets.from_json(said)
        place["version"] -= 1


MAPS = ("databases", "tables", "structures", "gaps", "uncaptured", "versions", "open", "commit_scn", "types")
"""Parts of an offset whose keys are data: tables, transactions, types."""


def opened(said: dict[str, Any]) -> dict[str, Any]:
    """An offset with its tables as they are before they are packed."""
    for offset in said["databases"].values():
        offset["structures"] = json.loads(zlib.decompress(base64.b64decode(offset["structures"])))
    return said


def closed_again(said: dict[str, Any]) -> str:
    packed = json.loads(json.dumps(said))
    for offset in packed["databases"].values():
        offset["structures"] = base64.b64encode(zlib.compress(json.dumps(offset["structures"]).encode())).decode()
    return json.dumps(packed)


def records(part: Any, path: str = "", *, data: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """All JSON objects whose keys are names, each with its path in which `*` and `[]` stand for data."""
    if isinstance(part, dict):
        # Nothing is kept where nothing was ever asked for.
        if not data and (part or not path.endswith("ad_hoc")):
            yield path, part
        for name, inner in list(part.items()):
            step = "*" if data else name
            yield from records(inner, f"{path}.{step}".lstrip("."), data=not data and name in MAPS)
    elif isinstance(part, list):
        for inner in part:
            yield from records(inner, f"{path}[]")


def read_whole(source: str, text: str) -> None:
    """Read an offset with all that its source keeps in it."""
    for offset in Offsets.from_json(json.loads(text)).databases.values():
        AdHoc.from_json(offset.ad_hoc)
        if source == "oracle":
            MiningState.of(offset)
        else:
            HistoryMark.from_json(offset.log)
        source_named(source, PLACES[source]).schemas(offset)


PLACES = {
    "sqlserver": {"hostname": "h", "user": "u", "password": "p", "database": "shop", "tables": "t"},
    "db2": {"hostname": "h", "user": "u", "password": "p", "database": "shop", "tables": "t"},
    "oracle": {"hostname": "h", "user": "u", "password": "p", "database": "ORCL", "tables": "t"},
}


@pytest.fixture(
    params=[
        # What no release left is read by `make test-all`.
        pytest.param(
            (version, source), marks=[pytest.mark.system] if "dev" in version else [], id=f"{version}-{source}"
        )
        for version in VERSIONS
        for source in SOURCES
    ]
)
def kept(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, CapturedDatabase, list[dict[str, Any]]]]:
    version, source = request.param
    entries = kept_offsets(version, source)
    with closed(KEPT[source](unpack(server_file(version, source), tmp_path / "server"))) as database:
        yield source, database, entries


# Db2 has its planner from SQL Server.
@pytest.mark.smoke("*-sqlserver", "*-oracle")
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


MYSQL = MysqlState(
    MysqlLog("mariadb", "s", "binlog", "mark"), (Prepared("x", BinlogPosition(0, 1, 4), BinlogPosition(0, 1, 9)),)
)
POSTGRES = PostgresState(PostgresLog("1", 1, "slot", "pub", 7, members={1: 2}), "c", TypeCatalog({}))


@pytest.mark.parametrize("state", [MYSQL, POSTGRES], ids=["mysql", "postgresql"])
def test_what_a_source_that_reads_its_own_log_keeps_comes_back_and_nothing_unknown_is_left_out(state: Any) -> None:
    offset = state.in_offset(Offset())
    assert type(state).of(offset) == state
    for record in (offset.log, offset.log["server"]):
        record["later"] = 1
        with pytest.raises(NewerRelease, match="'later', which Headrace"):
            type(state).of(offset)
        del record["later"]
