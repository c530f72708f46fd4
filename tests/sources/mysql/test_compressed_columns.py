"""Rule: the log has COMPRESSED columns of MariaDB compressed, a snapshot has them plain, and both give one text."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from headrace.sources.mysql import texts
from headrace.sources.mysql.source import MysqlSource
from headrace.testing.sources import SourceRun
from headrace_emulators.mysql.server import MySqlDatabase

COLUMNS = {
    "v": "VARCHAR(300) COMPRESSED CHARACTER SET utf8mb4",
    "l": "VARCHAR(100) CHARACTER SET latin1 COMPRESSED",
    "b": "VARBINARY(300) COMPRESSED",
    "t": "MEDIUMTEXT COMPRESSED",
    "x": "BLOB COMPRESSED",
    "j": "LONGTEXT COMPRESSED CHECK (JSON_VALID(j))",
    "plain": "VARCHAR(300)",
}
ROWS = (
    "repeat('é😀', 120), repeat('ü', 90), repeat(x'00ff', 120), repeat('t', 70000), repeat(x'dead', 5000), "
    "concat('[', repeat('1, ', 200), '2]'), 'p'",
    "'', '', '', '', '', '[]', ''",
    "'é', 'ü', x'00', 'x', x'ff00', 'null', 'ä'",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL",
)


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
@pytest.mark.parametrize("wrap", ["ON", "OFF"])
def test_a_snapshot_and_the_log_give_the_same_values(mariadb_database: MySqlDatabase, metadata: str, wrap: str) -> None:
    columns = ", ".join(f"{name} {declared}" for name, declared in COLUMNS.items())
    with mariadb_database.server.changed(binlog_row_metadata=metadata, column_compression_zlib_wrap=wrap):
        mariadb_database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
        mariadb_database.run("".join(f"INSERT INTO t VALUES ({n}, {row});" for n, row in enumerate(ROWS)))
        run = SourceRun(lambda: MysqlSource.of(mariadb_database.options))
        read = [dict(row["after"]) for row in run.all() if row["op"] == "r"]
        mariadb_database.run("".join(f"INSERT INTO t VALUES ({n + 10}, {row});" for n, row in enumerate(ROWS)))
        made = [dict(row["after"]) for row in run.all() if row["op"] == "c"]
    assert len(read) == len(made) == len(ROWS)
    assert [{**row, "id": "0"} for row in made] == [{**row, "id": "0"} for row in read]
    assert read[0]["v"] == "é😀" * 120 and read[1]["v"] == "" and read[3]["v"] is None


WHOLE = zlib.compress(b"abcdef")
DAMAGED = {
    b"\x91\x06" + WHOLE: "method 9",
    b"\x81\x06" + WHOLE[:-3]: "can't be decompressed",
    b"\x81\x05" + WHOLE: "another length",
    b"\x89\x06" + WHOLE: "can't be decompressed",
    b"\x81": "can't be decompressed",
}


@pytest.mark.parametrize(("data", "said"), DAMAGED.items(), ids=list(DAMAGED.values()))
def test_damage_is_an_error(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        texts.inflated(pa.array([data], pa.binary()))
