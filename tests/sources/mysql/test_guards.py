"""Whether a server still is where a pipeline left it is told before anything is read: the loss, or the other server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.mysql import mysql_like, needs_mariadb

from headrace.errors import CaptureError, DataLossError, HeadraceError, PositionMismatch
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.connection import MARIADB, MYSQL, connect
from headrace.sources.mysql.guards import (
    LogFile,
    ServerState,
    files_of,
    require_same_file,
    require_same_log,
)
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import LogState, StreamState
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.offset import Offset
from headrace_emulators.mysql.server import MySqlDatabase, MySqlServer

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FILES = tuple(LogFile(f"bin.{number:06}", 1000) for number in (7, 8, 9))
NOW = ServerState(MARIADB, "uid", "db:3306", FILES, "0-1-50,0-2-60,5-1-7", 86_400)
BEFORE = LogState(MARIADB, "uid", "bin", "mark", gtids="0-1-40,5-1-7")


def state_of(server: MySqlServer) -> ServerState:
    options = {**MySqlDatabase(server, server.database).options, "errors_max_retries": "0"}
    with connect(MysqlSettings.parse(options, owner="test", ignore=lambda _: True)) as connection:
        return ServerState.of(connection)


@pytest.mark.parametrize(
    "boundary",
    [BinlogPosition(0, 7, 4), BinlogPosition(0, 8, 1000), BinlogPosition(0, 9, 500), BinlogPosition(0, 9, 1000)],
    ids=lambda position: position.text,
)
def test_a_place_that_the_log_still_has_is_read_on_from(boundary: BinlogPosition) -> None:
    require_same_log(NOW, BEFORE, boundary)


@pytest.mark.parametrize(
    ("now", "boundary", "kind", "said"),
    [
        (
            {"server": "other"},
            BinlogPosition(0, 8, 4),
            PositionMismatch,
            "another server than 'db:3306': that had the id 'uid'",
        ),
        ({"kind": MYSQL}, BinlogPosition(0, 8, 4), PositionMismatch, "another server"),
        (
            {"files": (LogFile("log.000009", 10),)},
            BinlogPosition(0, 9, 4),
            PositionMismatch,
            r"byte 4 of 'bin.000009', and the files .* are now called 'log'\. Set log_bin back to 'bin'",
        ),
        (
            {},
            BinlogPosition(0, 6, 4),
            DataLossError,
            r"File 'bin.000006' .* is gone, and the oldest one is 'bin.000007'.*binlog_expire_logs_seconds, which is "
            "86400 now, be longer",
        ),
        ({}, BinlogPosition(0, 10, 4), PositionMismatch, "ends at byte 1000 of 'bin.000009': it was begun anew"),
        ({}, BinlogPosition(0, 9, 1001), PositionMismatch, "ends at byte 1000 of 'bin.000009'"),
        ({}, BinlogPosition(0, 8, 1001), PositionMismatch, "that file has 1000 bytes: the server lost the end of it"),
        (
            {"files": (FILES[0], FILES[2])},
            BinlogPosition(0, 8, 4),
            DataLossError,
            "'bin.000008' .* is missing between files",
        ),
        (
            {"gtids": "0-1-39,5-1-7"},
            BinlogPosition(0, 8, 4),
            PositionMismatch,
            "does not have all transactions that were read",
        ),
        (
            {"gtids": "0-1-50"},
            BinlogPosition(0, 8, 4),
            PositionMismatch,
            "does not have all transactions that were read",
        ),
    ],
)
def test_what_has_changed_is_said(
    now: dict[str, Any], boundary: BinlogPosition, kind: type[HeadraceError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        require_same_log(replace(NOW, **now), BEFORE, boundary)


def test_sets_of_mysql_keep_their_holes() -> None:
    now = replace(NOW, kind=MYSQL, gtids=f"{UUID}:1-5:7-9")
    before = replace(BEFORE, kind=MYSQL, gtids=f"{UUID}:1-5:9")
    require_same_log(now, before, BinlogPosition(0, 8, 4))
    with pytest.raises(PositionMismatch, match="does not have all transactions"):
        require_same_log(now, replace(before, gtids=f"{UUID}:1-9"), BinlogPosition(0, 8, 4))
    require_same_log(now, replace(before, gtids=""), BinlogPosition(0, 8, 4))


def test_another_file_with_the_name_of_the_one_that_was_read_is_refused() -> None:
    require_same_file("mark", BEFORE.mark, "bin.000009", "server 'db:3306'")
    with pytest.raises(PositionMismatch, match=r"'bin.000009' of the log of server 'db:3306' is not the one that was"):
        require_same_file("other", BEFORE.mark, "bin.000009", "server 'db:3306'")


def test_a_server_without_a_log_is_refused() -> None:
    with pytest.raises(CaptureError, match="--log-bin"):
        files_of([])


def test_the_bytes_between_two_places_are_counted_over_files() -> None:
    assert NOW.bytes_between(BinlogPosition(0, 7, 900), BinlogPosition(0, 9, 50)) == 100 + 1000 + 50
    assert NOW.bytes_between(BinlogPosition(0, 9, 50), BinlogPosition(0, 9, 80)) == 30


def test_an_offset_keeps_the_log_as_it_was() -> None:
    held = (Prepared("X'61',X'',1", BinlogPosition(0, 7, 200), BinlogPosition(0, 7, 300)),)
    state = StreamState(BEFORE, held, cuts=(BinlogPosition(0, 8, 3).text,), reads=True, waiting=("shop.new",))
    offset = Offset.from_json(state.in_offset(Offset(source="s", commit="c")).to_json())
    assert StreamState.of(offset) == state
    assert StreamState.of(offset).settled() == StreamState(BEFORE, held, waiting=("shop.new",))


def test_a_real_server_says_what_it_is_and_how_far_its_log_goes(binlog_server: MySqlServer) -> None:
    state = state_of(binlog_server)
    assert state.kind == (MARIADB if "maria" in binlog_server.version.lower() else MYSQL)
    assert (state.server, state.base) != ("", "")
    name, position = binlog_server.log_end
    assert (state.files[-1].name, state.files[-1].size) >= (name, position)
    before = LogState(state.kind, state.server, state.base, "mark", gtids=state.gtids)
    require_same_log(state_of(binlog_server), before, BinlogPosition(0, state.files[-1].number, state.files[-1].size))


@needs_mariadb
def test_a_server_is_the_same_after_a_restart_and_says_when_its_log_was_purged_or_begun_anew() -> None:
    with mysql_like(MARIADB) as server:
        server.run("CREATE DATABASE IF NOT EXISTS shop")
        state = state_of(server)
        end = BinlogPosition(0, state.files[-1].number, state.files[-1].size)
        before = LogState(state.kind, state.server, state.base, "mark", gtids=state.gtids)
        server.stop()
        server.start()
        require_same_log(state_of(server), before, end)
        server.run("FLUSH BINARY LOGS")
        newest = state_of(server).files[-1].name
        server.run(f"PURGE BINARY LOGS TO '{newest}'")
        with pytest.raises(DataLossError, match=f"the oldest one is '{newest}'"):
            require_same_log(state_of(server), before, end)
        server.run("RESET MASTER")
        with pytest.raises(PositionMismatch, match="begun anew"):
            require_same_log(state_of(server), before, end)
