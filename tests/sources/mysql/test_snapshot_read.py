"""Rows of a snapshot: every type as canonical text, and each row of a table in exactly one chunk."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql import snapshot_statements as statements
from headrace.sources.mysql.binlog_position import commit_before
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.incremental import KeysNow, read_incremental
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.snapshot_read import SnapshotReader, more_chunks
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.offset import TableProgress
from headrace.sources.rows import change_batch
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk, RequestWaits
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

_TRUTH = Path(__file__).parents[2] / "golden" / "real_debezium" / "mariadb_truth_snapshot"
_GEOMETRIES = ("geometry", "point", "polygon")
_IN_HEX = ("bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", *_GEOMETRIES)


def settings_of(database: MySqlDatabase, **options: str) -> MysqlSettings:
    return MysqlSettings.parse({**database.options, **options}, owner="source 'mysql_cdc'")


def session_of(database: MySqlDatabase) -> Connection:
    session = Connection(settings_of(database))
    session.run(f"USE {database.name}")
    return session


def snapshots_of(database: MySqlDatabase) -> Snapshots:
    with session_of(database) as session:
        return Snapshots(session.server)


def table_of(database: MySqlDatabase, name: str, key: tuple[str, ...] = (), engine: str = "innodb") -> MysqlTable:
    checks = ""
    if database.server.name == MARIADB:
        checks = str(database.execute(f"SHOW CREATE TABLE `{name}`")[0][1])
    found = database.execute(
        "SELECT column_name, column_type, character_set_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (database.name, name),
    )
    natives = tuple(
        NativeType.of_catalog(kind, charset, json=f"json_valid(`{c}`)" in checks) for c, kind, charset in found
    )
    columns = tuple(
        Column(row[0], position, native.logical, native.name)
        for position, (row, native) in enumerate(zip(found, natives, strict=True), 1)
    )
    return MysqlTable(TableSchema(TableId(database.name, "", name), columns, key), natives, key, engine=engine)


def reader_of(database: MySqlDatabase, changes: Iterable[pa.RecordBatch] = ()) -> SnapshotReader:
    connector = database.server.name
    settings = settings_of(database)
    return SnapshotReader(
        lambda: Connection(settings), snapshots_of(database), connector, "log", settings, lambda *_: changes
    )


def commit_now(database: MySqlDatabase) -> str:
    session = session_of(database)
    head = snapshots_of(database).head(session)
    session.close()
    return commit_before(head)


def whole(table: MysqlTable, commit: str) -> Chunk:
    return Chunk(table.path, 0, 0, None, None, commit, None, None)


def rows_of(reader: SnapshotReader, table: MysqlTable, chunk: Chunk) -> list[dict[str, str | None]]:
    _, *batches = reader.chunk(table, chunk, None)
    return [dict(image) for batch in batches for image in batch.column("after").to_pylist() if image is not None]


def keyed_by(name: str) -> tuple[str, ...]:
    return {"composite_key": ("seq", "tenant"), "decimal_key": ("k", "kd"), "odd_names": ("order",)}.get(
        name,
        {"customers": ("id",), "orders": ("order_number",), "unique_only": ("code",), "keyless": ()}.get(name, ("id",)),
    )


def canonical(native: NativeType, text: str | None) -> str | None:
    """What the client's text means, by the table of `headrace.changes.types`."""
    if text is None:
        return None
    if native.kind in _GEOMETRIES:
        data = bytes.fromhex(text)
        found: dict[str, Any] = {"wkb": base64.b64encode(data[4:]).decode(), "srid": struct.unpack("<I", data[:4])[0]}
        if data[5:9] == b"\1\0\0\0" and len(data) == 25:
            found = {**dict(zip("xy", struct.unpack("<dd", data[9:]), strict=True)), **found}
        return json.dumps(found, separators=(",", ":"))
    if native.kind == "bit":
        data = bytes.fromhex(text)
        return str(any(data)).lower() if native.length == 1 else base64.b64encode(data[::-1]).decode()
    if native.kind in _IN_HEX:
        return base64.b64encode(bytes.fromhex(text)).decode()
    if native.kind in ("float", "double"):
        return native.logical.to_text(float(text))
    if native.kind == "timestamp":
        return text.replace(" ", "T") + "Z"
    if native.kind == "int":
        return str(int(text))
    return text


def inserted(database: MySqlDatabase, table: MysqlTable, rows: list[dict[str, str | None]]) -> None:
    generated = ("c_gen_v", "c_gen_s")
    session = session_of(database)
    for row in rows:
        names = [name for name in row if name not in generated]
        values = []
        for name in names:
            text = row[name]
            if text is None:
                values.append("NULL")
            elif table.native(name).kind in _IN_HEX:
                values.append(f"x'{text}'")
            else:
                values.append(statements.text(text))
        columns = ", ".join(map(statements.identifier, names))
        session.run(f"INSERT INTO {statements.quoted(table.id)} ({columns}) VALUES ({', '.join(values)})")
    session.close()


@pytest.mark.parametrize("name", sorted(path.stem for path in _TRUTH.glob("[a-z]*.jsonl")))
def test_every_value_of_every_type_is_the_canonical_text_of_what_a_client_reads(
    mariadb_database: MySqlDatabase, name: str
) -> None:
    found = re.search(rf"CREATE TABLE `{name}` .*?;\n", (_TRUTH / "_ddl.sql").read_text(), re.DOTALL)
    assert found is not None
    mariadb_database.run(re.sub(r",\s*CONSTRAINT[^\n]*FOREIGN KEY[^\n]*", "", found[0]))
    table = table_of(mariadb_database, name, keyed_by(name))
    truth = [json.loads(line) for line in (_TRUTH / f"{name}.jsonl").read_text().splitlines()]
    inserted(mariadb_database, table, truth)
    read = rows_of(reader_of(mariadb_database), table, whole(table, commit_now(mariadb_database)))
    expected = [{column: canonical(table.native(column), text) for column, text in row.items()} for row in truth]
    assert Counter(map(str, map(sorted_row, read))) == Counter(map(str, map(sorted_row, expected)))


def sorted_row(row: dict[str, str | None]) -> list[tuple[str, str | None]]:
    return sorted(row.items())


_KEYS = [
    ("a INT UNSIGNED", ("a",), ["0", "1", "2", "4294967295", "77"]),
    ("a VARCHAR(20) COLLATE utf8mb4_general_ci", ("a",), ["'b'", "'A'", "'ü'", "'Z'", "''", "'a b'", "'\\\\'"]),
    ("a VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci", ("a",), ["'ae'", "'z'", "'ö'", "'o'"]),
    ("a CHAR(4) CHARACTER SET gbk", ("a",), ["'中'", "'文'", "'a'", "'b'"]),
    ("a VARBINARY(9)", ("a",), ["x'00'", "x'0000'", "x'ff'", "x''", "x'27'"]),
    ("a FLOAT", ("a",), ["16777216", "0.1", "-3.4028e38", "1.17e-38"]),
    ("a DOUBLE", ("a",), ["0.1", "1e300", "-5e-324", "0.30000000000000004"]),
    ("a ENUM('z','y','x')", ("a",), ["'x'", "'y'", "'z'"]),
    ("a BIT(40)", ("a",), ["b'0'", "b'1000000000000000000000000000000000000000'", "b'111'"]),
    ("a DATETIME(6)", ("a",), ["'2024-01-01 00:00:00.000001'", "'0000-00-00'", "'1999-12-31'"]),
    ("a TIMESTAMP(3) NOT NULL", ("a",), ["'2024-01-01 00:00:00.001'", "'1999-12-31'"]),
    ("a TIME(2)", ("a",), ["'-838:59:59'", "'00:00:00.01'", "'25:00:00'"]),
    ("a YEAR", ("a",), ["'0000'", "'2155'", "'1901'"]),
    ("a DECIMAL(30,10)", ("a",), ["1.5", "-99999999999999999999.9999999999", "0"]),
    ("a INT, b VARCHAR(9)", ("b", "a"), ["1, 'x'", "2, 'X '", "1, 'y'", "2, 'y'", "-1, ''"]),
]


@pytest.mark.parametrize("columns, key, values", _KEYS, ids=[columns for columns, *_ in _KEYS])
def test_each_row_is_in_exactly_one_chunk_whatever_the_servers_order(
    binlog_database: MySqlDatabase, columns: str, key: tuple[str, ...], values: list[str]
) -> None:
    database, rows = binlog_database, len(values)
    database.run(f"CREATE TABLE t ({columns}, v INT, PRIMARY KEY ({', '.join(key)}))")
    session = session_of(database)
    for number, value in enumerate(values):
        session.run(f"INSERT INTO t VALUES ({value}, {number})")
    table, commit = table_of(database, "t", key), commit_now(database)
    read: list[str | None] = []
    progress, chunks = TableProgress(commit=commit), 0
    while not progress.done:
        progress = more_chunks(session, table, progress.advanced(), settings_of(database), rows=2, budget=1)
        assert len(progress.bounds) == 1
        chunk = Chunk(table.path, 0, progress.chunk, progress.lower, progress.bounds[0], commit, None, None)
        read += [row["v"] for row in rows_of(reader_of(database), table, chunk)]
        chunks += 1
    session.close()
    assert sorted(map(str, read)) == [str(number) for number in range(rows)] and chunks == (rows + 1) // 2


def test_a_key_that_is_no_text_of_its_column_never_reaches_the_server(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    table = table_of(mariadb_database, "t", ("id",))
    with pytest.raises(FormatError, match="not of its column's type"):
        statements.in_range(table, ("1 OR 1 = 1",), None)


@pytest.mark.parametrize("engine", ["innodb", "myisam"])
def test_a_table_without_a_key_is_taken_back_to_the_snapshots_place(
    binlog_database: MySqlDatabase, engine: str
) -> None:
    binlog_database.run(
        f"CREATE TABLE t (a INT, b VARCHAR(9)) ENGINE={engine}; INSERT INTO t VALUES (1, 'x'), (1, 'x')"
    )
    table, commit = table_of(binlog_database, "t", engine=engine), commit_now(binlog_database)
    # Deleted, written twice, and updated since.
    binlog_database.run(
        "DELETE FROM t LIMIT 1; INSERT INTO t VALUES (2, NULL), (2, NULL); UPDATE t SET b = 'y' WHERE a = 1"
    )
    old, new = [("a", "1"), ("b", "x")], [("a", "1"), ("b", "y")]
    added = [("a", "2"), ("b", None)]
    kind = pa.map_(pa.string(), pa.string())
    changes = change_batch(
        4,
        {
            "op": pa.array(["d", "c", "c", "u"]),
            "before": pa.array([old, None, None, old], kind),
            "after": pa.array([None, added, added, new], kind),
        },
    )
    read = rows_of(reader_of(binlog_database, [changes]), table, whole(table, commit))
    assert read == [{"a": "1", "b": "x"}, {"a": "1", "b": "x"}]


def test_a_table_that_was_altered_since_it_is_known_is_an_error(binlog_database: MySqlDatabase) -> None:
    binlog_database.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'x')")
    table, commit = table_of(binlog_database, "t", ("id",)), commit_now(binlog_database)
    binlog_database.run("ALTER TABLE t MODIFY v VARBINARY(9)")
    with pytest.raises(CaptureError, match="was altered"):
        rows_of(reader_of(binlog_database), table, whole(table, commit))


def test_a_row_longer_than_a_packet_is_read(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB, w INT); SET GLOBAL max_allowed_packet = 64 << 20"
    )
    mariadb_database.run("INSERT INTO t VALUES (1, 'a', 1), (2, REPEAT('b', 17 << 20), 2), (3, NULL, 3)")
    table = table_of(mariadb_database, "t", ("id",))
    read = rows_of(reader_of(mariadb_database), table, whole(table, commit_now(mariadb_database)))
    sizes = [None if row["v"] is None else len(base64.b64decode(row["v"])) for row in read]
    assert sizes == [1, 17 << 20, None] and [row["w"] for row in read] == ["1", "2", "3"]


def _packets(*rows: bytes) -> Iterator[bytes]:
    yield b"".join(len(row).to_bytes(3, "little") + b"\0" + row for row in rows)


@pytest.mark.parametrize(
    "row",
    [b"", b"\x01", b"\x011\x02a", b"\x011\x01ab", b"\xff1", b"\xfc\x01", b"\x011\xfe\xff\xff\xff\xff\xff\xff\xff\xff"],
)
def test_bytes_that_are_no_row_are_an_error(row: bytes) -> None:
    from headrace.sources.mysql.text_rows import TextRows

    rows = TextRows(("a", "b"), (NativeType("int"), NativeType("varchar", charset="utf8mb4")))
    with pytest.raises(FormatError):
        list(rows.read(_packets(row)))


def test_a_text_that_is_not_utf8_is_an_error_that_names_its_column() -> None:
    from headrace.sources.mysql.text_rows import TextRows

    rows = TextRows(("a", "b"), (NativeType("int"), NativeType("varchar", charset="utf8mb4")))
    with pytest.raises(FormatError, match="column 'b'"):
        list(rows.read(_packets(b"\x011\x01\xff")))


def test_rows_beside_the_stream_are_those_that_nobody_wrote_since_the_batch_ended(
    binlog_database: MySqlDatabase,
) -> None:
    binlog_database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    table, commit = table_of(binlog_database, "t", ("id",)), commit_now(binlog_database)
    binlog_database.run(
        "UPDATE t SET v = 'B' WHERE id = 2; INSERT INTO t VALUES (4, 'd'); UPDATE t SET v = 'C' WHERE id = 3"
    )
    whole_image, part = [("id", "2"), ("v", "B")], [("id", "3")]
    changes = change_batch(
        3,
        {
            "op": pa.array(["u", "c", "u"]),
            "after": pa.array([whole_image, [("id", "4"), ("v", "d")], part], pa.map_(pa.string(), pa.string())),
        },
    )
    chunk = IncrementalChunk(table.path, 0, 0, None, ("4",), None, opening=False)
    [batch] = read_incremental(reader_of(binlog_database, [changes]), table, chunk, commit, None)
    assert [dict(image)["v"] for image in batch.column("after").to_pylist()] == ["a", "C"]


def test_an_ad_hoc_snapshot_waits_for_the_definition_of_a_table_that_was_altered(
    binlog_database: MySqlDatabase,
) -> None:
    binlog_database.run("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (7)")
    table = table_of(binlog_database, "t", ("id",))
    with session_of(binlog_database) as session:
        keys = KeysNow(session)
        assert keys.greatest(table, None) == [("7",)] and keys.greatest(table, "id < 5") == [("1",)]
        assert keys.bounds(table, None, ("7",), 1, 9, None) == [("1",), ("7",)]
        binlog_database.run("ALTER TABLE t MODIFY id BIGINT")
        with pytest.raises(RequestWaits):
            keys.greatest(table, None)
