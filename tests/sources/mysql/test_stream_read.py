"""Rule: windows that are read from a real server have its changes, with the values that a snapshot has."""

import pytest

from headrace.changes import TableSchema
from headrace.errors import DataLossError
from headrace.sources.mysql.binlog_position import BinlogPosition, file_of
from headrace.sources.mysql.catalog import Catalog
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.guards import ServerState
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.slices import changes_of, read_window
from headrace.sources.mysql.snapshot_read import texts_of
from headrace.sources.mysql.snapshot_statements import rows as select_rows
from headrace.sources.mysql.stream_state import LogState
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.mysql.window import Window

SHARED = (
    "id BIGINT UNSIGNED PRIMARY KEY, b TINYINT(1), price DECIMAL(12,2), ratio DOUBLE, single FLOAT, "
    "word VARCHAR(20) CHARACTER SET latin1, note TEXT, raw VARBINARY(9), fixed BINARY(4), day DATE, at DATETIME(6), "
    "seen TIMESTAMP(3) NULL, took TIME(2), made YEAR, mood ENUM('a','ö'), tags SET('x','y'), bits BIT(12), doc JSON, "
    "place POINT"
)
VALUES = (
    "(18446744073709551615, 1, -0.05, 0.1, 16777216, 'é', '日本', x'00ff', x'0102', '2024-02-29', "
    "'2024-02-29 01:02:03.000004', '2024-02-29 01:02:03.5', '-838:59:59', 2155, 'ö', 'y,x', 5, '{\"a\": 1.5}', "
    "POINT(1, 2)), (0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
    "NULL, NULL)"
)


def end_of_log(database):
    file, position = database.server.log_end
    base, number = file_of(file)
    return base, BinlogPosition(0, number, position)


class Reader:
    """Reads what a server logged since this was made."""

    def __init__(self, database, *names, **options):
        self.database = database
        given = {**database.options, "tables": ",".join(f"{database.name}.{name}" for name in names), **options}
        self.settings = MysqlSettings.parse(given, owner="source 'mysql_cdc'")
        with connect(self.settings) as session:
            self.tables = Catalog(session, self.settings).captured(strict=True)
        self.log, self.start = end_of_log(database)

    def window(self, start=None, end=None, prepared=()):
        end = end or end_of_log(self.database)[1]
        return Window(start or self.start, end, self.log, self.database.server.name, self.tables, {}, prepared)

    def rows(self, start=None, end=None, prepared=()):
        found = []
        for batch in read_window(self.window(start, end, prepared), self.settings, None):
            batch.validate(full=True)
            found += batch.to_pylist()
        return found

    def changes(self, *positions, **options):
        return [row for row in self.rows(*positions, **options) if row["op"] in "cudt"]


def test_values_of_the_stream_are_those_of_a_snapshot(binlog_database):
    binlog_database.execute(f"CREATE TABLE item ({SHARED}) CHARACTER SET utf8mb4")
    reader = Reader(binlog_database, "item")
    binlog_database.execute(f"INSERT INTO item VALUES {VALUES}")
    (table,) = reader.tables.values()
    with connect(reader.settings) as session:
        batches = list(texts_of(session, table, select_rows(table)))
    names = [column.name for column in table.schema.columns]
    read = [
        dict(zip(names, values, strict=True))
        for batch in batches
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    streamed = [dict(row["after"]) for row in reader.changes()]
    assert sorted(streamed, key=lambda row: row["id"]) == sorted(read, key=lambda row: row["id"])
    schemas = [row for row in reader.rows() if row["op"] == "schema"]
    assert [row["schema_id"] for row in schemas] == [table.schema.fingerprint]
    assert isinstance(table.schema, TableSchema)


def test_every_kind_of_change_comes_wherever_windows_are_cut(binlog_database):
    database = binlog_database
    database.execute("CREATE TABLE item (id INT PRIMARY KEY, note VARCHAR(20))")
    database.execute("CREATE TABLE other (n INT)")
    reader = Reader(database, "item", provide_transaction_metadata=True)
    edges = []
    for statements in (
        ["INSERT INTO item VALUES (1, 'a'), (2, 'b')"],
        ["UPDATE item SET id = 3 WHERE id = 1", "INSERT INTO other VALUES (1)", "DELETE FROM item WHERE id = 2"],
        ["ALTER TABLE item ADD COLUMN more INT DEFAULT 7"],
        ["INSERT INTO item VALUES (4, 'c', 8)"],
        ["SET SESSION binlog_row_image = MINIMAL", "UPDATE item SET note = 'd' WHERE id = 4"],
        ["TRUNCATE TABLE item"],
        ["INSERT INTO item VALUES (5, 'e', NULL)"],
    ):
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("COMMIT")
        edges.append(end_of_log(database)[1])
    whole = reader.rows()
    assert [(row["op"], row["key_text"]) for row in whole if row["op"] in "cudt"] == [
        ("c", '["1"]'), ("c", '["2"]'), ("u", '["3"]'), ("d", '["2"]'), ("c", '["4"]'), ("u", '["4"]'), ("t", None),
        ("c", '["5"]'),
    ]  # fmt: skip
    minimal = [row for row in whole if row["op"] == "u"][-1]
    assert (minimal["before"], minimal["after"]) == ([("id", "4")], [("id", "4"), ("note", "d")])
    assert "begin" in {row["op"] for row in whole} and "end" in {row["op"] for row in whole}

    def told(rows):
        return [(row["op"], row["position"], row["after"], row["source"]) for row in rows if not row["table_schema"]]

    for edge in edges:
        assert told(reader.rows(end=edge)) + told(reader.rows(start=edge)) == told(whole)


def test_a_distributed_transaction_is_read_where_it_was_prepared(binlog_database):
    database = binlog_database
    database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    reader = Reader(database, "item")
    xid = f"'{database.name}'"
    with database.connect() as session, session.cursor() as cursor:
        for statement in (f"XA START {xid}", "INSERT INTO item VALUES (1)", f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)
        prepared = end_of_log(database)[1]
        assert reader.changes() == []
        database.execute("FLUSH BINARY LOGS")
        cursor.execute(f"XA COMMIT {xid}")
    (row,) = reader.changes()
    held = Prepared(f"X'{database.name.encode().hex()}',X'',1", reader.start, prepared)
    assert reader.changes(prepared, None, prepared=(held,)) == [row]
    assert row["position"] > prepared.text
    # A reader that was not told of it looks for it.
    assert reader.changes(prepared) == [row]


def test_compressed_changes_are_read(binlog_database):
    database = binlog_database
    database.execute("CREATE TABLE item (id INT PRIMARY KEY, note TEXT)")
    reader = Reader(database, "item")
    names = {"mariadb": ("log_bin_compress", "log_bin_compress_min_len"), "mysql": ("binlog_transaction_compression",)}
    with database.server.changed(**dict(zip(names[database.server.name], (1, 10), strict=False))):
        database.execute("INSERT INTO item SELECT 1, REPEAT('x', 10000)")
        database.execute("UPDATE item SET note = REPEAT('y', 9000)")
    assert [(row["op"], len(dict(row["after"])["note"])) for row in reader.changes()] == [("c", 10000), ("u", 9000)]


def test_the_changes_of_one_table_come_as_they_are(binlog_database):
    binlog_database.execute("CREATE TABLE item (id INT PRIMARY KEY, note VARCHAR(9))")
    options = {"column.mask.with.3.chars": f"{binlog_database.name}.item.note", "skipped_operations": "c"}
    reader = Reader(binlog_database, "item", **options)
    binlog_database.execute("INSERT INTO item VALUES (1, 'plain')")
    (table,) = reader.tables.values()
    with connect(reader.settings) as session:
        state = ServerState.of(session)
    changes = changes_of(reader.settings, LogState(state.kind, state.server, reader.log, ""))
    rows = [row for batch in changes(table, reader.start, end_of_log(binlog_database)[1]) for row in batch.to_pylist()]
    assert [row["after"] for row in rows if row["op"] == "c"] == [[("id", "1"), ("note", "plain")]]
    assert reader.changes() == []


def test_a_file_that_is_not_there_any_more_stops(binlog_database):
    binlog_database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    reader = Reader(binlog_database, "item")
    with pytest.raises(DataLossError):
        reader.rows(start=BinlogPosition(0, 999_999, 4), end=BinlogPosition(0, 999_999, 5))
